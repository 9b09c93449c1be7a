"""Names of a cluster's nodes, and which of them are used."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from punctual.core.ids import NodeId
from punctual.executors.cluster.node_limits import Limits, NameOf, NodeFacts, NodeOverride, unlimited
from punctual.executors.json_files import read_json, write_json

_LOG = logging.getLogger(__name__)


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
        self._machines: dict[tuple[str, str], NodeId] = {}
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
        pooled = {} if name_of is None else self._in_pools(nodes, name_of)
        unknown = set() if name_of is None else nodes.keys() - self._pooled.keys()
        others = {id: facts for id, facts in nodes.items() if id not in pooled and id not in unknown}
        limits = {**self._limits(others), **{id: limit for id, (_, limit) in pooled.items()}}
        self._nodes = {id: node for id, node in self._nodes.items() if id in limits}
        for _, id in sorted((nodes[id].machine, id) for id in limits.keys() - self._nodes.keys()):
            node = pooled[id][0] if id in pooled else self._new_name(nodes[id])
            # Otherwise another node has the label of this machine, as long as it is there.
            if node not in self._nodes.values():
                self._nodes[id] = node
        return {node: UsedNode(id, limits[id]) for id, node in self._nodes.items()}

    def _in_pools(self, nodes: Mapping[str, NodeFacts], name_of: NameOf) -> dict[str, tuple[NodeId, NodeOverride]]:
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
        if facts.machine not in self._machines:
            is_new = facts.host not in self._machines.values()
            self._machines[facts.machine] = NodeId(facts.host if is_new else f"{facts.host}-{facts.address}")
            self._keep()
        node = self._machines[facts.machine]
        return NodeId(f"{node}-{facts.id[-8:]}") if node in self._nodes.values() else node

    def _keep(self) -> None:
        if self._file is None:
            return
        try:
            write_json(self._file, [[*machine, name] for machine, name in self._machines.items()])
        except OSError:
            _LOG.exception("the names of nodes cannot be kept: after a restart they may be others")
