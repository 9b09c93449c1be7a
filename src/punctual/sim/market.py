"""Providers of machines in the simulated world: machines come after their start-up, and spot machines go with notice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle

from punctual.core.cluster import Node
from punctual.core.commands import AskMachines, MachineCommand
from punctual.core.events import Event, MachinesAsked, MachinesRefused, NodeLost, NodeNoticed, PoolOffered
from punctual.core.ids import NodeId
from punctual.core.pools import SEEN_S, PoolSpec
from punctual.core.protocols import Sink
from punctual.sim.event_queue import FACT, EventQueue

#: What comes to be: (instant, price of a machine-hour, machines that can be had), ascending in time.
Course = Sequence[tuple[float, float, int]]

#: Cause of a refusal.
NOT_THERE = "so many are not to be had"


@dataclass(frozen=True, slots=True)
class PoolCourse:
    """A pool, and its price and count over time; the last ones stay.

    `startups_s`: seconds that machines really take to start, in the order in which they are asked for, and from the beginning again
    after the last one; empty: as the pool says.
    """

    spec: PoolSpec
    course: Course
    startups_s: Sequence[float] = ()


class _Provider:
    """One pool as it really is."""

    def __init__(self, pool: PoolCourse) -> None:
        self.spec, self.course = pool.spec, pool.course
        self.i_next = 0
        self.obtainable = 0
        #: Machines that start or are there, without those that have had notice, oldest first.
        self.machines: dict[NodeId, None] = {}
        self.numbers = count()
        self.startups_s = cycle(pool.startups_s or (pool.spec.startup_s,))


class Market:
    """Performs the commands about machines, and makes their pools' courses happen.

    Each entry that it makes in the queue is a function, which gets the entry's instant and returns the events then.

    Parameters
    ----------
    join, lose
        Make a node join the world, or leave it; what the scheduler hears of that.
    """

    def __init__(
        self,
        pools: Iterable[PoolCourse],
        queue: EventQueue,
        join: Callable[[float, Node], list[Event]],
        lose: Callable[[float, NodeId], list[Event]],
    ) -> None:
        self._providers = {pool.spec.name: _Provider(pool) for pool in pools}
        self._queue, self._join, self._lose = queue, join, lose
        self._up: set[NodeId] = set()

    def open(self, at: float) -> list[Event]:
        """Offer all pools as they were seen to be in the last days up to instant `at`."""
        before = [
            PoolOffered(at=seen_at, pool=provider.spec, price_usd_h=price_usd_h, obtainable=n)
            for provider in self._providers.values()
            for seen_at, price_usd_h, n in provider.course
            if at - SEEN_S <= seen_at < at
        ]
        return [*before, *[event for provider in self._providers.values() for event in self._go_on(provider, at)]]

    def perform(self, command: MachineCommand, sink: Sink) -> None:
        """Start or end machines; each answer is an event."""
        provider = self._providers.get(command.pool)
        if isinstance(command, AskMachines):
            events = self._start(provider, command)
        elif provider is None:
            events = []
        else:
            ended = [node for node in command.nodes if provider.machines.pop(node, provider) is None]
            events = [event for node in ended for event in self._end(node, command.at)]
        for event in events:
            sink(event)

    def _start(self, provider: _Provider | None, command: AskMachines) -> list[Event]:
        at, events = command.at, list[Event]()
        n_free = 0 if provider is None else max(0, provider.obtainable - len(provider.machines))
        n_started = min(command.n_machines, n_free)
        if provider is not None and n_started:
            spec = provider.spec
            nodes = tuple(NodeId(f"{spec.name}-{next(provider.numbers)}") for _ in range(n_started))
            provider.machines |= dict.fromkeys(nodes)
            for node in nodes:
                self._queue.enter(at + next(provider.startups_s), FACT, partial(self._started, provider, node))
            events.append(MachinesAsked(at=at, pool=spec.name, nodes=nodes))
        if n_started < command.n_machines:
            n_refused = command.n_machines - n_started
            events.append(MachinesRefused(at=at, pool=command.pool, n_machines=n_refused, cause=NOT_THERE))
        return events

    def _end(self, node: NodeId, at: float) -> list[Event]:
        if node in self._up:
            self._up.discard(node)
            return self._lose(at, node)
        return [NodeLost(at=at, node=node)]

    def _started(self, provider: _Provider, node: NodeId, at: float) -> list[Event]:
        if node not in provider.machines:  # it was released, or taken away, while it started
            return []
        self._up.add(node)
        return self._join(at, Node(node, provider.spec.capacity, provider.spec.device))

    def _go_on(self, provider: _Provider, at: float) -> list[Event]:
        """Reach the present point of the course: take away what is no longer there, and enter the next point."""
        course, spec = provider.course, provider.spec
        while provider.i_next < len(course) and course[provider.i_next][0] <= at:
            provider.i_next += 1
        if provider.i_next < len(course):
            self._queue.enter(course[provider.i_next][0], FACT, partial(self._go_on, provider))
        if provider.i_next == 0:  # it begins later
            return []
        _, price_usd_h, provider.obtainable = course[provider.i_next - 1]
        n_over = len(provider.machines) - provider.obtainable
        taken = list(reversed(provider.machines))[: max(0, n_over)]
        events: list[Event] = []
        for node in taken:
            del provider.machines[node]
            if node not in self._up or spec.notice_s <= 0:
                events += self._end(node, at)
                continue
            events.append(NodeNoticed(at=at, node=node, ends_at=at + spec.notice_s))
            self._queue.enter(at + spec.notice_s, FACT, partial(self._end, node))
        offered = PoolOffered(at=at, pool=spec, price_usd_h=price_usd_h, obtainable=provider.obtainable)
        return [*events, offered]
