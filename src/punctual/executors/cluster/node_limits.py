"""Which nodes of a cluster are used, how much of them, and as what kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from punctual.executors.cluster.channel import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the cluster says of a node: by which names it is known, the one for people first, and what it has."""

    names: Sequence[str]
    cores: float
    gpus: float
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimit:
    """How much of a node is used, and its kind; an empty one is that which its agent tells."""

    cores: float = inf
    gpus: float = inf
    memory_bytes: float = inf
    device: str = ""

    def applied(self, answer: Answer) -> Answer:
        """An answer of the node's agent, with no more than that."""
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
Limits = Callable[[Mapping[str, NodeFacts]], Mapping[str, NodeLimit]]


def unlimited(nodes: Mapping[str, NodeFacts]) -> Mapping[str, NodeLimit]:
    """All nodes are used, and all of them; of one kind are those that the cluster calls so."""
    return {node: NodeLimit(device=facts.device) for node, facts in nodes.items()}
