"""Machines of pools as nodes that Ray's autoscaler starts, told apart by their labels.

Ray decides which node it starts. A new node with the labels of a pool is the machine that was asked for first and has no node yet.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.units import span
from punctual.executors.cluster.machines import (
    ClusterPlace,
    DescribedMachines,
    MachinesUnknown,
    PoolTerms,
    Started,
    check_head,
    check_options,
    wait_s_in,
)
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.json_files import read_object, write_json
from punctual.executors.ray_requests import RayRequests, WantedNode

_LOG = logging.getLogger(__name__)

#: Label of a node's market, which Ray gives to nodes of some clouds.
_MARKET_LABEL = "ray.io/market-type"


class RayMachines(DescribedMachines):
    """Provider of machines that are nodes of Ray's autoscaler.

    * `labels`: labels of each pool's nodes. All nodes that have them are this service's.
    * `wait_s`: seconds beyond its start-up within which a machine must have come.
    * `retry_s`: seconds until a pool that had no more machines is thought to have some again: Ray does not tell.
    """

    poll_interval_s = 2.0

    def __init__(
        self,
        pools: Sequence[PoolTerms],
        place: ClusterPlace,
        labels: Mapping[str, Mapping[str, str]],
        *,
        wait_s: float = 60.0,
        retry_s: float = 300.0,
    ) -> None:
        super().__init__(pools)
        self._labels, self._wait_s, self.retry_s = labels, wait_s, retry_s
        self._file = Path(place.folder) / "ray_machines.json"
        self._requests = RayRequests(place.address)
        #: Guards the tables of machines, which `name_of` uses in another thread.
        self._lock = threading.Lock()
        #: Pool of each machine that starts or is there, in the order of asking, and the machine of each node of Ray's.
        self._pool_of: dict[NodeId, str] = {}
        self._machine_of: dict[str, NodeId] = {}
        self._load()
        #: Nodes that Ray has told of: others may have come to the cluster just now.
        self._seen = set(self._machine_of)
        #: Nodes that are to end; the value tells whether also with work on them.
        self._drain: dict[str, bool] = {}
        self._asked_at = dict.fromkeys(self._pool_of, time.monotonic())
        self._ask()

    # The protocol.

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        """Request nodes for these machines; whether they come shows later."""
        now = time.monotonic()
        with self._lock:
            self._pool_of |= dict.fromkeys(nodes, pool.name)
            self._asked_at |= dict.fromkeys(nodes, now)
        self._ask()
        return Started(nodes=nodes)

    def end(self, nodes: Collection[NodeId]) -> None:
        """Withdraw the request for these machines, and have their nodes end."""
        for node in nodes:
            self._forget(node)
        self._ask()

    def machines(self) -> Collection[NodeId]:
        """Return the machines that are requested; raises `MachinesUnknown` if Ray does not tell its nodes."""
        self._note(self._requests.nodes())
        return list(self._pool_of)

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        """Return the machine of a node; a new node becomes the first machine of its pool that has none."""
        with self._lock:
            known = self._machine_of.get(facts.id)
            if known is not None or facts.id in self._drain:
                return known
            pool = self._pool_with(facts.labels)
            taken = set(self._machine_of.values())
            machine = next((node for node, of in self._pool_of.items() if of == pool and node not in taken), None)
            if machine is not None:
                self._machine_of[facts.id] = machine
                self._save()
            return machine

    def close(self, *, for_good: bool) -> None:
        """Withdraw all requests, or leave them."""
        machines = list(self._pool_of)
        if for_good:
            self.end(machines)
        if not self._requests.close() and for_good and machines:
            raise MachinesUnknown(
                "Ray has not been told that no machine is needed any more: its autoscaler may keep some"
            )

    # The nodes.

    def _note(self, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """Give up machines whose nodes are gone or do not come; have nodes end that are no machine: they are paid for, too."""
        with self._lock:
            node_of = {machine: node for node, machine in self._machine_of.items()}
            spare = [
                node
                for node, labels in nodes.items()
                if node not in self._machine_of and node not in self._drain and self._pool_with(labels) is not None
            ]
        self._seen |= nodes.keys()
        now, lost = time.monotonic(), dict[NodeId, str]()
        waiting = [machine for machine in self._pool_of if machine not in node_of]
        for machine in self._pool_of.keys() & node_of.keys():
            # Of a node that has only vanished its jobs may run on: it is lost once its agent has been silent for long enough.
            if node_of[machine] in self._seen - nodes.keys() - self._requests.vanished:
                lost[machine] = "Ray has ended its node"
        for machine in waiting:
            pool = self._pools.get(self._pool_of[machine])
            limit_s = self._wait_s + (pool.spec.startup_s if pool is not None else 0.0)
            if now > self._asked_at[machine] + limit_s:
                lost[machine] = f"Ray's autoscaler has started no node ({self._words(machine)}) within {span(limit_s)}"
        if waiting and self._requests.n_impossible == len(self._pool_of):  # then it starts none of them
            lost[waiting[-1]] = f"Ray's autoscaler can never start so many nodes ({self._words(waiting[-1])}) at once"
        # A node that has just come is named within a second or two; or it is in place of one that has vanished.
        vanished = [machine for machine in self._pool_of if node_of.get(machine) in self._requests.vanished]
        wanted = {self._pool_of[machine] for machine in (*waiting, *vanished) if machine not in lost}
        spare = [node for node in spare if self._pool_with(nodes[node]) not in wanted]
        self._seen &= nodes.keys() | self._requests.vanished
        self._drain = {node: forced for node, forced in self._drain.items() if node in nodes}
        if lost or spare:
            for machine in lost:
                self._forget(machine)
            self._lost |= lost
            self._drain |= dict.fromkeys(spare, False)
            self._ask()

    def _forget(self, machine: NodeId) -> None:
        with self._lock:
            self._pool_of.pop(machine, None)
            self._asked_at.pop(machine, None)
            for node in [node for node, of in self._machine_of.items() if of == machine]:
                del self._machine_of[node]
                self._drain[node] = True

    def _ask(self) -> None:
        """Request what is wanted now, which outlives this process, as does the table of it."""
        with self._lock:
            self._save()
            want = [self._wanted(pool) for pool in self._pool_of.values() if pool in self._pools]
        self._requests.ask(want, self._drain)

    def _wanted(self, pool: str) -> WantedNode:
        amounts = self._pools[pool].amounts
        resources = {"CPU": amounts["cores"], "GPU": amounts.get("gpus", 0.0)}
        return {kind: amount for kind, amount in resources.items() if amount}, self._labels[pool]

    def _pool_with(self, labels: Mapping[str, str]) -> str | None:
        return next((pool for pool, wanted in self._labels.items() if wanted.items() <= labels.items()), None)

    def _words(self, machine: NodeId) -> str:
        labels = self._labels.get(self._pool_of[machine], {})
        return ", ".join(f"{name}={value}" for name, value in labels.items())

    # The file.

    def _load(self) -> None:
        with suppress(AttributeError, KeyError, TypeError):
            read = read_object(self._file)
            self._pool_of = {NodeId(node): str(pool) for node, pool in read["pool_of"].items()}
            self._machine_of = {str(node): NodeId(machine) for node, machine in read["machine_of"].items()}

    def _save(self) -> None:
        try:
            write_json(self._file, {"pool_of": self._pool_of, "machine_of": self._machine_of})
        except OSError:
            _LOG.exception("the machines of Ray cannot be kept: after a restart they are ended")


def provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any]) -> RayMachines:
    """Make the provider; raises `InvalidSpec` if an option is wrong."""
    where = "`machines.options`"
    check_options(options, ("wait_s",), "Ray", where)
    wait_s = wait_s_in(options, where)
    check_head(place.address, "Ray's autoscaler")
    labels = {pool.spec.name: _labels(pool) for pool in pools}
    for name, wanted in labels.items():
        other = next((other for other in labels if other != name and labels[other].items() <= wanted.items()), None)
        if other is not None:
            raise InvalidSpec(
                "labels must tell the nodes of one pool from those of another",
                f"the labels of pool '{other}' are on the nodes of '{name}' too",
                f"`options.labels` of pool '{name}'",
                "Give each node type of Ray a label of its own, and write it here.",
            )
    return RayMachines(pools, place, labels, wait_s=wait_s)


def _labels(pool: PoolTerms) -> dict[str, str]:
    """Return the labels of a pool's nodes: by default its market; raises `InvalidSpec` if they, or its cores, are wrong."""
    where = f"`options` of pool '{pool.spec.name}'"
    check_options(pool.options, ("labels",), "Ray", where)
    if "cores" not in pool.amounts:
        raise InvalidSpec(
            "a pool of Ray's autoscaler must say its `cores`",
            "none",
            f"pool '{pool.spec.name}'",
            "Write those of a whole node: of less Ray would put two machines on one.",
        )
    if "labels" not in pool.options and pool.spec.market == "own":
        raise InvalidSpec(
            "a pool of one's own machines must say the `labels` of its nodes",
            "none",
            where,
            'Write for example `options.labels = {"kind" = "big"}`.',
        )
    labels = pool.options.get("labels", {_MARKET_LABEL: pool.spec.market})
    if not isinstance(labels, dict) or not labels or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidSpec(
            "`labels` must be a table of texts",
            repr(labels),
            where,
            f'Write for example `options.labels = {{"{_MARKET_LABEL}" = "spot"}}`.',
        )
    return labels
