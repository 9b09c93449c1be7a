"""Nodes of a cluster: which are used, how they are called, how much of each is used, and its device kind."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from punctual.core.ids import NodeId
from punctual.executors.json_files import read_json, write_json

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node as the cluster describes it: its host name and address, its resources and labels, and its id there."""

    names: Sequence[str]
    cores: float
    gpus: float
    device: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    id: str = ""


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


class UsedNode(NamedTuple):
    """A node that is used: its id in the cluster, and its limits."""

    id: str
    limit: NodeOverride


class NodeNames:
    """Names nodes after their machines, so that a node is the same one when the cluster is started again there.

    Of machines of one host name the first has that name, and the others have their addresses as well. A second node on one
    machine has a part of its id in the cluster as well. Machines of pools have the names that their provider says.

    * `limits`: returns limits of the nodes to use.
    * `file`: file of the names of all machines that have been in the cluster, which outlives this process; None: there is none.
    """

    def __init__(self, limits: Limits = unlimited, file: Path | None = None) -> None:
        self._limits, self._file = limits, file
        #: Names of machines by host name and address, and of the present nodes by their ids.
        self._machines: dict[tuple[str, ...], NodeId] = {}
        self._nodes: dict[str, NodeId] = {}
        #: Nodes that are machines of pools, with their limits, by id; None: the node is none.
        self._pooled: dict[str, tuple[NodeId, NodeOverride] | None] = {}
        if file is not None:
            with suppress(ValueError, TypeError):
                self._machines = {(host, address): NodeId(name) for host, address, name in read_json(file) or ()}

    def used(self, nodes: Mapping[str, NodeFacts], name_of: NameOf | None) -> dict[NodeId, UsedNode]:
        """Return the nodes to use of these, which are there.

        `name_of`: tells machines of pools; one that it cannot tell is not used yet. None: there are no pools.
        """
        pooled = {} if name_of is None else self._told(nodes, name_of)
        is_known = nodes if name_of is None else self._pooled
        others = {id: facts for id, facts in nodes.items() if id in is_known and id not in pooled}
        limits = {**self._limits(others), **{id: limit for id, (_, limit) in pooled.items()}}
        self._nodes = {id: node for id, node in self._nodes.items() if id in limits}
        for _, id in sorted((tuple(nodes[id].names), id) for id in limits.keys() - self._nodes.keys()):
            node = pooled[id][0] if id in pooled else self._new_name(nodes[id])
            if (
                node not in self._nodes.values()
            ):  # else another one has the label of this machine, as long as it is there
                self._nodes[id] = node
        return {node: UsedNode(id, limits[id]) for id, node in self._nodes.items()}

    def _told(self, nodes: Mapping[str, NodeFacts], name_of: NameOf) -> dict[str, tuple[NodeId, NodeOverride]]:
        """Return the nodes that are machines of pools, with their names and limits."""
        for id, facts in nodes.items():
            if id not in self._pooled:
                try:
                    self._pooled[id] = name_of(facts)
                except Exception:  # noqa: BLE001 -- whatever a provider raises
                    _LOG.exception("node '%s' cannot be named", id)
        return {id: told for id in nodes if (told := self._pooled.get(id)) is not None}

    def _new_name(self, facts: NodeFacts) -> NodeId:
        """Choose the name of a node that has just come, which stays that of its machine."""
        machine = tuple(facts.names)
        if machine not in self._machines:
            host, address = machine
            self._machines[machine] = NodeId(host if host not in self._machines.values() else f"{host}-{address}")
            self._keep()
        node = self._machines[machine]
        return NodeId(f"{node}-{facts.id[-8:]}") if node in self._nodes.values() else node

    def _keep(self) -> None:
        if self._file is None:
            return
        try:
            write_json(self._file, [[*machine, name] for machine, name in self._machines.items()])
        except OSError:
            _LOG.exception("the names of nodes cannot be kept: after a restart they may be others")
