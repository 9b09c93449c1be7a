"""Limit a live cluster's nodes to those that its user has described."""

import logging
from collections.abc import Mapping, Sequence
from math import inf

from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride
from punctual.request.cluster_file import NodeGroup

_LOG = logging.getLogger(__name__)


class ConfiguredNodes:
    """Finds the group of each node: the one that names it, else one without names that has room and fits the node.

    A node keeps its group as long as it is there. What is not as described is told once.
    """

    def __init__(self, groups: Sequence[NodeGroup]) -> None:
        self._groups = groups
        self._group_of: dict[str, NodeGroup] = {}
        self._told: set[str] = set()
        self._n_missing: int | None = None

    def __call__(self, nodes: Mapping[str, NodeFacts]) -> Mapping[str, NodeOverride]:
        """Return the limit of each node that a group of the file describes."""
        self._group_of = {node: group for node, group in self._group_of.items() if node in nodes}
        for node, facts in nodes.items():
            if node not in self._group_of:
                self._find(node, facts)
        self._tell_missing()
        return {node: _limit(group) for node, group in self._group_of.items()}

    def _find(self, node: str, facts: NodeFacts) -> None:
        named = next((group for group in self._groups if not set(group.nodes).isdisjoint(facts.machine)), None)
        fitting = [
            group for group in self._groups if not group.nodes and self._n_left(group) and _is_like(facts, group)
        ]
        group = named or max(fitting, key=lambda group: (group.gpus, group.cores or 0.0), default=None)
        if group is None:
            self._tell(f"node '{facts.host}' is not used: the cluster file does not describe it ({_in_words(facts)})")
            return
        self._group_of[node] = group
        if not _is_like(facts, group):
            self._tell(f"node '{facts.host}' is not as the cluster file describes it: it has {_in_words(facts)}")

    def _n_left(self, group: NodeGroup) -> int:
        return group.n_nodes - sum(other is group for other in self._group_of.values())

    def _tell_missing(self) -> None:
        n_missing = sum(max(0, self._n_left(group)) for group in self._groups)
        if n_missing != self._n_missing and (n_missing or self._n_missing):
            n_nodes = sum(group.n_nodes for group in self._groups)
            _LOG.warning("%d of the %d nodes that the cluster file describes are there", n_nodes - n_missing, n_nodes)
        self._n_missing = n_missing

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _LOG.warning("%s", text)


def _is_like(facts: NodeFacts, group: NodeGroup) -> bool:
    is_kind = not group.device or not facts.device or group.device == facts.device
    return is_kind and facts.cores >= (group.cores or 0.0) and facts.gpus >= group.gpus


def _limit(group: NodeGroup) -> NodeOverride:
    memory_bytes = inf if group.memory_gib is None else group.capacity().memory_bytes
    return NodeOverride(cores=group.cores or inf, gpus=group.gpus, memory_bytes=memory_bytes, device=group.device)


def _in_words(facts: NodeFacts) -> str:
    kind = f" of kind {facts.device}" if facts.device else ""
    return f"{facts.cores:g} cores, {facts.gpus:g} GPUs{kind}"
