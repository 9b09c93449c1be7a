"""Protocol of providers, which start and end machines of pools for a live cluster."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.executors.cluster.node_limits import NodeFacts

#: Label of a node of Ray that has the name of its machine: ``ray start --labels punctual.machine=spot-3``.
MACHINE_LABEL = "punctual.machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """A pool as its user's file describes it.

    * `price_usd_h`: price of a machine-hour; None: the provider knows it.
    * `trace`, `trace_start_s`: file with the machines that could be had over time, and the second of it that is now;
      for providers that replay one.
    * `amounts`: amounts of one machine that the file names: `cores`, `gpus`, `memory_gib`.
    * `options`: further keys, for the provider.
    """

    spec: PoolSpec
    price_usd_h: float | None = None
    amounts: Mapping[str, float] = field(default_factory=dict)
    trace: str | None = None
    trace_start_s: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlace:
    """A cluster for which a provider starts machines.

    * `address`: address of the cluster, as its user gave it; empty: that of this machine.
    * `name`: tells the machines of one service from those of another; the same after a restart of the service.
    * `folder`: folder of the provider's files, which outlives this process.
    """

    address: str
    name: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Price and number of the machines of a pool that can be had now.

    * `obtainable`: machines that can be had, those included that are there or start.
    * `seen`: offers before, oldest first: seconds ago, price and machines. They are read once, when a service begins.
    """

    spec: PoolSpec
    price_usd_h: float
    obtainable: int
    seen: Sequence[tuple[float, float, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Answer to an order: the machines that are being started, and why others are not; empty: all are."""

    nodes: Sequence[NodeId]
    cause: str = ""


class MachinesUnknown(Exception):
    """Raised if a provider cannot tell its machines for a while: those that are there go on. Its text is for the user."""


class MachineProvider(Protocol):
    """Starts and ends machines of pools, each of which joins the cluster as a node.

    The calls may block; one thread makes all of them, one after the other, but for `name_of`, which another thread calls.
    An exception of a call is logged, and the call made again later; that of `start` refuses the order. Users read the text of
    `MachinesUnknown`, and the causes of `Started` and `lost`, as why machines are not there. Of each look `machines` is called first, then `lost`, `noticed` and `offers`.

    A provider is made by a function ``provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any])``.
    It is made anew after a restart of the service, and finds the machines of its `ClusterPlace.name` again.

    * `poll_interval_s`: seconds between two queries for its offers and machines.
    * `retry_s`: seconds until a pool is asked again that has refused machines, or has started some in vain, and still
      offers more.
    """

    poll_interval_s: float
    retry_s: float

    def offers(self) -> Mapping[str, Offer]:
        """Return what can be had of each pool now."""
        ...

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        """Start machines of these names, as many as can be had; returns without waiting for them to join."""
        ...

    def end(self, nodes: Collection[NodeId]) -> None:
        """End machines, also those that still start; one that is gone already is no fault."""
        ...

    def machines(self) -> Collection[NodeId]:
        """Return all machines that start or run, those of an earlier process included: what costs money."""
        ...

    def lost(self) -> Mapping[NodeId, str]:
        """Return machines that were started and are gone, or never come, with the cause, since the last call."""
        ...

    def noticed(self) -> Mapping[NodeId, float]:
        """Return the Unix time at which each machine that is to be taken away ends, where known before the cluster tells."""
        ...

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        """Return the machine that a node of the cluster is; None: none of this provider's.

        Called again for the same node after a restart, and then returns the same name.
        """
        ...

    def close(self, *, for_good: bool) -> None:
        """Release what this process holds. `for_good`: nothing goes on, and no machine is left; else all of them stay.

        Raises `MachinesUnknown` if machines may be left: a later process tries again.
        """
        ...


class DescribedMachines:
    """Base of providers that offer each pool as its file describes it, always its most machines: only an order shows what can be had.

    A subclass notes the machines that it has lost in `_lost`.
    """

    def __init__(self, pools: Sequence[PoolTerms]) -> None:
        self._pools = {pool.spec.name: pool for pool in pools}
        self._lost: dict[NodeId, str] = {}

    def offers(self) -> Mapping[str, Offer]:
        """Return the most machines of each pool, at one price."""
        return {
            name: Offer(spec=pool.spec, price_usd_h=pool.price_usd_h or 0.0, obtainable=pool.spec.most)
            for name, pool in self._pools.items()
        }

    def lost(self) -> Mapping[NodeId, str]:
        """Return the lost machines, and why."""
        lost, self._lost = self._lost, {}
        return lost

    def noticed(self) -> Mapping[NodeId, float]:
        """Return nothing: the cluster tells which machines are to be taken away."""
        return {}


def machine_name(pool: str, number: int) -> NodeId:
    """Return the name of a pool's machine; no other machine of the pool has had this number."""
    return NodeId(f"{pool}-{number}")


def pool_of(node: NodeId) -> str:
    """Return the name of the pool whose machine has this name."""
    return node.rpartition("-")[0]


def check_options(options: Mapping[str, Any], known: Sequence[str], of: str, where: str) -> None:
    """Raise `InvalidSpec` if an option is not among those that machines of `of` have."""
    for key in options:
        if key not in known:
            raise InvalidSpec(
                f"`{key}` must be an option of machines of {of}",
                f"`{key}`",
                where,
                f"{did_you_mean(key, known)}Known: {', '.join(known)}.",
            )


def wait_s_in(options: Mapping[str, Any], where: str) -> float:
    """Return the option `wait_s`, by default a minute; raises `InvalidSpec` if it is no time."""
    wait_s = options.get("wait_s", 60.0)
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s < inf:
        raise InvalidSpec("`wait_s` must be seconds", repr(wait_s), where, "Write for example `wait_s = 60`.")
    return float(wait_s)


def check_head(address: str, whose: str) -> None:
    """Raise `InvalidSpec` if a cluster's address is one for clients, which is of no use to machines of `whose` kind."""
    if address.startswith("ray://"):
        raise InvalidSpec(
            f"machines of {whose} must know the address of Ray's head",
            f"'{address}', which is for clients",
            "`--address`",
            "Write that of Ray's head, HOST:PORT; the usual port is 6379.",
        )


def machine_by_label(facts: NodeFacts) -> NodeId | None:
    """Return the machine that a node's label names; None: it has no such label."""
    name = facts.labels.get(MACHINE_LABEL)
    return None if name is None else NodeId(name)
