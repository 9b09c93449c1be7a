"""Pools of machines that can be asked for, and the machines of each."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import Literal, NamedTuple

from punctual.core.ids import NodeId
from punctual.core.job import STOP_GRACE_S
from punctual.core.plan import Plan
from punctual.core.resources import Resources

#: *spot*: cheap, and taken away at short notice; *on-demand*: there whenever asked for, and stays; *own*: paid for already.
Market = Literal["spot", "on-demand", "own"]

#: What was seen of a pool is kept for so long. In one window of a published trace a job cost a tenth more with one week of it.
SEEN_S = 14 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Equal machines of one price.

    Attributes
    ----------
    capacity, device
        Capacity of one machine, and the kind of its devices.
    least, most
        Least and most machines to have at once.
    startup_s
        Seconds from an order to the first step on the machine; they are paid for. Of a pool whose machines have taken longer,
        policies see the longer time.
    notice_s
        Seconds from the notice that a machine is taken away to its end.
    least_billed_s
        Least time billed for a machine.
    """

    name: str
    capacity: Resources
    device: str = ""
    market: Market = "on-demand"
    least: int = 0
    most: int = 1
    startup_s: float = 0.0
    notice_s: float = 0.0
    least_billed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool as a policy sees it.

    Attributes
    ----------
    price_usd_h
        Present price of a machine-hour.
    obtainable
        Machines that can be had now, those included that are there or start.
    there
        Machines that are there, without those that have had notice.
    leaving
        Machines that are there and were asked to end.
    n_starting
        Machines that were asked for and are not there yet.
    counts
        `obtainable` over the last days: instants with the count from then on.
    """

    spec: PoolSpec
    price_usd_h: float
    obtainable: int
    there: tuple[NodeId, ...] = ()
    leaving: tuple[NodeId, ...] = ()
    n_starting: int = 0
    counts: tuple[tuple[float, int], ...] = ()


#: Codes of a plan's reasons why it buys no machine for a job that waits: none is worth its price, or its budget is spent.
TOO_DEAR, SPENT = "too-dear", "budget-spent"


class Lack(NamedTuple):
    """Machines of a pool that are not there.

    Attributes
    ----------
    n_starting
        Machines that start; 0: no more can be had.
    n_refused
        Machines that were asked for last and refused; 0: none was.
    since_at
        Instant of the first order since a machine of the pool joined last; without one, from which on no more can be had.
    cause, again_at
        As in `punctual.core.events.MachinesRefused`.
    """

    pool: PoolSpec
    n_starting: int
    n_refused: int
    since_at: float
    cause: str = ""
    again_at: float | None = None


class HeldMachines(NamedTuple):
    """Machines of a pool that have not ended, and the least number that no machine of it has had in its name.

    `spec`, `price_usd_h`: as the pool was offered last; None: not known.
    """

    nodes: tuple[NodeId, ...] = ()
    n_named: int = 0
    spec: PoolSpec | None = None
    price_usd_h: float = 0.0


@dataclass(slots=True)
class _Record:
    """One pool and its machines."""

    spec: PoolSpec
    price_usd_h: float = 0.0
    obtainable: int = 0
    counts: list[tuple[float, int]] = field(default_factory=list)
    there: list[NodeId] = field(default_factory=list)
    starting: list[NodeId] = field(default_factory=list)
    n_wanted: int = 0
    #: Machines of an order without an answer, and its instant.
    n_asked: int = 0
    asked_at: float = 0.0
    #: Machines that were asked to end.
    released: list[NodeId] = field(default_factory=list)
    #: Machines that have had a name so far: the numbers at the ends of their names are smaller.
    n_named: int = 0
    #: None: nothing was asked for since a machine joined. Its `n_starting` does not count.
    lack: Lack | None = None
    #: Instants at which each machine that no job has held was ordered, joined, and was first planned for; and the seconds that
    #: the last ones took from the order to the first job that held them, without those in which no plan wanted them.
    starts: dict[NodeId, list[float]] = field(default_factory=dict)
    started_in_s: list[float] = field(default_factory=list)

    @property
    def n_held(self) -> int:
        return sum(node not in self.released for node in (*self.there, *self.starting))

    @property
    def seen_spec(self) -> PoolSpec:
        """The pool with the start-up that its machines really take, if that is longer than was said."""
        took_s = median(self.started_in_s) if self.started_in_s else 0.0
        # Simulated ones are as long as was said, but for rounding.
        return replace(self.spec, startup_s=took_s) if took_s > (1 + 1e-6) * self.spec.startup_s else self.spec

    @property
    def n_starting(self) -> int:
        """Machines that were asked for and are not there yet."""
        return len([node for node in self.starting if node not in self.released]) + self.n_asked


@dataclass(slots=True)
class PoolTable:
    """Pools and their machines, and the nodes that have had notice.

    Attributes
    ----------
    ends_at
        Instant at which each node that has had notice ends.
    """

    ends_at: dict[NodeId, float] = field(default_factory=dict)
    _pools: dict[str, _Record] = field(default_factory=dict)
    #: Pool of each of its machines that has not ended.
    _pool_of: dict[NodeId, _Record] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._pools)

    def held(self) -> dict[str, HeldMachines]:
        """Return the machines of each pool that have not ended, those that have had notice included."""
        pool_of = [(node, record.spec.name) for node, record in self._pool_of.items()]
        return {
            name: HeldMachines(
                tuple(node for node, pool in pool_of if pool == name), record.n_named, record.spec, record.price_usd_h
            )
            for name, record in self._pools.items()
        }

    def ask_anew(self) -> None:
        """Forget the orders without an answer: they were lost with the process that steered before."""
        for record in self._pools.values():
            record.n_asked = 0
            record.released.clear()

    def offer(self, at: float, spec: PoolSpec, price_usd_h: float, obtainable: int) -> None:
        """Add a pool, or change its price and count."""
        record = self._pools.setdefault(spec.name, _Record(spec))
        record.spec, record.price_usd_h = spec, price_usd_h
        self._count(record, at, obtainable)

    def start(self, at: float, pool: str, nodes: Iterable[NodeId]) -> None:
        """Note machines that the provider starts."""
        if (record := self._pools.get(pool)) is None:
            return
        for node in nodes:
            record.starting.append(node)
            record.starts[node] = [at]
            self._pool_of[node] = record
            record.n_asked = max(0, record.n_asked - 1)
            number = node.rpartition("-")[2]
            record.n_named = max(record.n_named, int(number) + 1 if number.isdecimal() else 0)

    def refuse(self, at: float, pool: str, n_machines: int, cause: str = "", again_at: float | None = None) -> None:
        """Note that a pool has no more machines than those that are held."""
        if (record := self._pools.get(pool)) is not None:
            record.n_asked = max(0, record.n_asked - n_machines)
            self._count(record, at, min(record.obtainable, record.n_held))
            lack = record.lack or Lack(record.spec, 0, 0, at)
            record.lack = lack._replace(n_refused=n_machines or lack.n_refused, cause=cause, again_at=again_at)

    def join(self, at: float, node: NodeId) -> None:
        """Note that a machine is there."""
        record = self._pool_of.get(node)
        if record is not None and node in record.starting:
            record.starting.remove(node)
            record.there.append(node)
            record.starts[node].append(at)
            record.lack = None

    def plan(self, at: float, nodes: Iterable[NodeId]) -> None:
        """Note that a job is to have something on these nodes."""
        for node in nodes:
            if (record := self._pool_of.get(node)) and len(record.starts.get(node, ())) == 2:
                record.starts[node].append(at)

    def use(self, at: float, nodes: Iterable[NodeId], own_s: float) -> None:
        """Note that a job holds something on these nodes; `own_s`: seconds that its own start takes anywhere."""
        for node in nodes:
            if (record := self._pool_of.get(node)) and len(record.starts.get(node, ())) == 3:
                ordered_at, joined_at, planned_at = record.starts.pop(node)
                took_s = at - ordered_at - (planned_at - joined_at) - own_s
                # The last five: one that hung does not count among them, and what has changed does soon.
                record.started_in_s = [*record.started_in_s, took_s][-5:]

    def notice(self, node: NodeId, ends_at: float) -> None:
        """Note that a node ends at `ends_at`: it is no longer offered to policies."""
        self.ends_at[node] = ends_at
        self._drop(node)

    def withdraw_notice(self, node: NodeId) -> None:
        """Note that a node stays after all."""
        self.ends_at.pop(node, None)
        if (record := self._pool_of.get(node)) is not None:
            record.there.append(node)

    def lose(self, node: NodeId) -> None:
        """Forget a node that is gone."""
        self.ends_at.pop(node, None)
        self._drop(node)
        self._pool_of.pop(node, None)

    def owns(self, nodes: Iterable[NodeId]) -> bool:
        """Whether one of the nodes is a machine of a pool."""
        return any(node in self._pool_of for node in nodes)

    def is_hired(self, nodes: Iterable[NodeId]) -> bool:
        """Whether one of the nodes is a machine that is paid for."""
        return any(record.price_usd_h > 0 for node in nodes if (record := self._pool_of.get(node)) is not None)

    def _drop(self, node: NodeId) -> None:
        if (record := self._pool_of.get(node)) is None:
            return
        record.starts.pop(node, None)
        for nodes in (record.there, record.starting, record.released):
            if node in nodes:
                nodes.remove(node)

    def _count(self, record: _Record, at: float, obtainable: int) -> None:
        record.obtainable = obtainable
        if not record.counts or record.counts[-1][1] != obtainable:
            record.counts.append((at, obtainable))
        while len(record.counts) > 1 and record.counts[1][0] < at - SEEN_S:
            del record.counts[0]

    def potential(self, capacity: Resources) -> Resources:
        """Return `capacity` with all machines that pools may ever have beyond those that are there."""
        for record in self._pools.values():
            capacity = capacity + record.spec.capacity * max(0, record.spec.most - len(record.there))
        return capacity

    def fault_of(self, plan: Plan) -> str:
        """Return why a plan cannot be used: its numbers of machines, or a node that is taken away; empty if it can."""
        for node in self.ends_at:
            if any(node in grant for grant in plan.grants.values()):
                return f"it gives something on node '{node}', which is taken away"
        for name, n in plan.machines.items():
            record = self._pools.get(name)
            if record is None:
                return f"it wants machines of pool '{name}', which there is not"
            if not 0 <= n <= record.spec.most:
                return f"it wants {n} machines of pool '{name}', which has at most {record.spec.most}"
        return ""

    def want(self, machines: Mapping[str, int]) -> None:
        """Make these numbers of machines the wanted ones; a pool that is not named keeps its number."""
        for name, n in machines.items():
            self._pools[name].n_wanted = n

    def want_least(self) -> None:
        """Want no more than the least of each pool: there is no job."""
        for record in self._pools.values():
            record.n_wanted = record.spec.least

    def changes(self, at: float, is_used: Callable[[NodeId], bool]) -> list[tuple[str, int, tuple[NodeId, ...]]]:
        """Return for each pool the number of machines to ask for, and the unused ones to release, and note both.

        A machine that is still there a while after the end of its notice is released, too: nobody uses it any more.
        """
        changes = list[tuple[str, int, tuple[NodeId, ...]]]()
        over = [node for node, ends_at in self.ends_at.items() if ends_at + STOP_GRACE_S <= at and not is_used(node)]
        for name, record in self._pools.items():
            left = tuple(node for node in over if self._pool_of.get(node) is record and node not in record.released)
            if left:
                record.released += left
                changes.append((name, 0, left))
            n_wanted = max(record.spec.least, min(record.n_wanted, record.spec.most))
            # An order without an answer counts as lost after so many seconds.
            n_under_way = record.n_asked if at < record.asked_at + 600.0 else 0
            n_more = min(n_wanted, record.obtainable) - record.n_held - n_under_way
            if n_more > 0:
                record.n_asked, record.asked_at = n_under_way + n_more, at
                record.lack = record.lack or Lack(record.spec, 0, 0, at)
                changes.append((name, n_more, ()))
                continue
            if not record.n_starting and record.obtainable > record.n_held:
                record.lack = None  # nobody wants what can be had
            n_less = record.n_held - n_wanted
            machines = (*reversed(record.starting), *reversed(record.there)) if n_less > 0 else ()
            idle = [node for node in machines if node not in record.released and not is_used(node)][: max(0, n_less)]
            if idle:
                record.released += idle
                changes.append((name, 0, tuple(idle)))
        return changes

    def next_over_at(self, at: float) -> float:
        """Return the next instant after `at` at which a machine with notice is given back once it is unused; infinite: none."""
        over_at = (ends_at + STOP_GRACE_S for node, ends_at in self.ends_at.items() if node in self._pool_of)
        return min((each for each in over_at if each > at), default=inf)

    def lacks(self) -> tuple[Lack, ...]:
        """Return for each pool whose machines start or cannot be had how it stands; safe to call from any thread."""
        lacks = list[Lack]()
        for record in list(self._pools.values()):
            n_starting = record.n_starting
            if not n_starting and record.obtainable > record.n_held:
                continue
            lack = record.lack or Lack(record.spec, 0, 0, record.counts[-1][0])
            lacks.append(lack._replace(pool=record.spec, n_starting=n_starting))
        return tuple(lacks)

    def views(self) -> tuple[Pool, ...]:
        """Return the pools as a policy sees them."""
        return tuple(
            Pool(
                spec=record.seen_spec,
                price_usd_h=record.price_usd_h,
                obtainable=min(record.obtainable, record.spec.most),
                there=tuple(node for node in record.there if node not in record.released),
                leaving=tuple(record.released),
                n_starting=record.n_starting,
                counts=tuple(record.counts),
            )
            for record in self._pools.values()
        )
