"""Limits of a cluster's nodes: which are used, how much of each, and its device kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from punctual.core.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node as the cluster describes it: its id there, its host name and address, its resources and labels."""

    id: str
    host: str
    address: str
    cores: float
    gpus: float
    device: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> tuple[str, str]:
        """Host name and address: the same ones for each node on one machine, also after a restart of the cluster."""
        return self.host, self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOverride:
    """Limits of a node's resources, and its kind; an empty kind is replaced by the agent's."""

    cores: float = inf
    gpus: float = inf
    memory_bytes: float = inf
    device: str = ""

    def applied(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer of the node's agent with its capacity cut to the limits."""
        if "capacity" not in answer:
            return answer
        has = answer["capacity"]
        limits = {"cores": self.cores, "gpus": self.gpus, "memory_bytes": self.memory_bytes}
        capacity = {**has, **{kind: min(has[kind], most) for kind, most in limits.items()}}
        limited = {**answer, "capacity": capacity, "device": self.device or answer["device"]}
        if "taken_cores" in answer:
            limited["taken_cores"] = min(answer["taken_cores"], max(0.0, self.cores - capacity["cores"]))
        return limited


#: The limits of the nodes that are used, of those that there are.
Limits = Callable[[Mapping[str, NodeFacts]], Mapping[str, NodeOverride]]

#: Returns the name and the limits of a node; None: it is named after its machine, and limited as the user says.
NameOf = Callable[[NodeFacts], tuple[NodeId, NodeOverride] | None]


def unlimited(nodes: Mapping[str, NodeFacts]) -> Mapping[str, NodeOverride]:
    """Return limits that use all nodes fully; each node's kind is the one that the cluster reports."""
    return {node: NodeOverride(device=facts.device) for node, facts in nodes.items()}
