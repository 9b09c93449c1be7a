"""The event loop: passes events to the scheduler, and its commands to executor, planner and listeners."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from punctual.core.commands import (
    Command,
    RejectJob,
    RequestPlan,
    SetTimer,
    UsePolicy,
    WarnUser,
)
from punctual.core.events import Event, Message, TimerFired
from punctual.core.ids import Timer
from punctual.core.protocols import Executor, Journal, Listener
from punctual.core.scheduler import Scheduler
from punctual.daemon.planner import Planner

_LOG = logging.getLogger(__name__)


class Due(NamedTuple):
    """Timers that have come due, each with its instant; `at` is the present."""

    at: float
    timers: Mapping[Timer, float]


class Query(NamedTuple):
    """A query that the engine's thread runs between two events; it changes nothing and is in no journal."""

    ask: Callable[[], None]


class TimeSource(Protocol):
    """Source of time and events; with the executor, the only difference between live and simulated runs."""

    def now(self) -> float:
        """Present instant in seconds; never decreases."""
        ...

    def post(self, event: Event) -> None:
        """Enter an event, which `next` returns in the order of entering."""
        ...

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        """Make `timer` due at `fire_at`, in place of the instant set for it before."""
        ...

    def next(self) -> Event | list[Event] | Due | Query | None:
        """Wait for the next item and return it; None: nothing can come any more.

        A list: events that were queued one behind the other and are written together, because a write may wait for the disk.
        """
        ...


class Timers:
    """Instants by timer; setting a timer again replaces its instant.

    `fire_at`: the instant of each timer that is set.
    """

    def __init__(self) -> None:
        self.fire_at: dict[Timer, float] = {}
        #: Holds replaced entries too; they are dropped when they come to the top.
        self._heap: list[tuple[float, Timer]] = []

    def set(self, timer: Timer, fire_at: float) -> None:
        self.fire_at[timer] = fire_at
        heappush(self._heap, (fire_at, timer))

    def next_at(self) -> float | None:
        """Instant of the next timer; None: none is set."""
        while self._heap and self.fire_at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> dict[Timer, float]:
        """Remove the timers that are due at instant `now`, and return their instants, the earliest first."""
        due = {}
        while (fire_at := self.next_at()) is not None and fire_at <= now:
            _, timer = heappop(self._heap)
            due[timer] = self.fire_at.pop(timer)
        return due


class Engine:
    """Handles events one at a time, in the same order whatever their source.

    For each event: the scheduler handles it; it is written into the journal together with the commands that follow
    from it; those about a job, which alone have an effect outside of this process, are performed after that; the listeners get
    the event and the commands. Whoever performs a command answers by `post`, never by a return value. Timers that are set are
    neither written nor told: the next process sets its own.

    All jobs whose ticks are due at one instant are observed before the first of these ticks is handled, so that each
    tick decides on fresh readings.

    * `time`: source of events and time.
    * `journal`: None: nothing is kept.
    * `listeners`: called in the thread of `run` with each journalled message. Their exceptions end `run`; see `logged`.
    * `afterwards`: called with all that was written together, once all listeners have it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        planner: Planner,
        time: TimeSource,
        *,
        journal: Journal | None = None,
        listeners: Sequence[Listener] = (),
        afterwards: Callable[[Sequence[Message]], None] = lambda _: None,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._time = time
        self._journal = journal
        self._listeners, self._afterwards = tuple(listeners), afterwards
        #: Events of the time during which no process steered.
        self._missed: deque[Event] = deque()
        #: Passes an event to the engine; the time source defines from which threads.
        self.post = time.post
        self._performs: dict[type[Command], Callable[[Any], None]] = {
            RequestPlan: lambda command: planner.request(scheduler.snapshot(command.at), time.post),
            UsePolicy: lambda command: planner.use(command.policy, command.parameters),
            SetTimer: lambda command: time.set_timer(command.timer, command.fire_at),
            RejectJob: lambda _: None,  # it is for listeners only, as the next one
            WarnUser: lambda _: None,
        }

    def take_in(self, events: Iterable[Event]) -> None:
        """Queue events of the time during which no process steered, for `run` to handle first.

        What follows from it is not performed: a job whose launch was not answered would be started again before its end
        is known. The `SteeringResumed` that is posted next asks for all of it anew.
        """
        self._missed.extend(events)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Handle events until `until`, asked before each event, holds or nothing can come any more.

        Raises `InvariantBroken`: the scheduler broke an invariant; the event that led to it is not in the journal.
        """
        time = self._time
        while self._missed:
            self._deliver([self._missed.popleft()], performs=False)
        while until is None or not until():
            coming = time.next()
            if coming is None:
                return
            if isinstance(coming, Due):
                for timer in coming.timers:
                    if timer.kind in ("tick", "deadline"):
                        self._executor.observe(timer.job, coming.at, self.post)
                for timer, fire_at in coming.timers.items():
                    self.post(TimerFired(at=coming.at, timer=timer, late_s=coming.at - fire_at))
            elif isinstance(coming, Query):
                coming.ask()
            else:
                self._deliver(coming if isinstance(coming, list) else [coming])

    def _deliver(self, events: Sequence[Event], *, performs: bool = True) -> None:
        messages: list[Message] = []
        effects: list[Any] = []
        for event in events:
            messages.append(event)
            for command in self._scheduler.handle(event):
                if not isinstance(command, SetTimer):
                    messages.append(command)
                if performs:  # what is about a job waits until it is written
                    self._performs.get(type(command), effects.append)(command)
        if self._journal is not None:
            self._journal.append(messages)
        for effect in effects:
            self._executor.perform(effect, self.post)
        for listener in self._listeners:
            for message in messages:
                listener(message)
        self._afterwards(messages)
