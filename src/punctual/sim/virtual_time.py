"""The time source of a simulation."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from punctual.core.events import Event
from punctual.core.ids import Timer
from punctual.daemon.engine import Due
from punctual.sim.event_queue import TIMER, EventQueue

#: Makes an entry of the queue happen, given its instant, subject and version; what the scheduler hears of it.
Happening = Callable[[float, Any, int], Iterable[Event]]
FiresAt = Callable[[Timer, float, float], float]


class VirtualTime:
    """Jumps from one entry of an event queue to the next.

    All that an entry leads to is handled before the next entry is taken.

    Parameters
    ----------
    happenings
        Handlers by priority of the entry, without timers.
    goes_on
        Asked before each entry; the simulation ends when it does not hold.
    end_at
        The simulation ends before the first entry after this instant.
    fires_at
        Instant at which a timer fires, given the timer, the instant that it is set for and the present; None: then.
    """

    def __init__(
        self,
        queue: EventQueue,
        happenings: Mapping[int, Happening],
        goes_on: Callable[[], bool],
        end_at: float = inf,
        fires_at: FiresAt | None = None,
    ) -> None:
        self._queue = queue
        self._happenings = happenings
        self._goes_on = goes_on
        self._end_at = end_at
        self._fires_at = fires_at
        self._now = -inf
        #: Events caused by the last entry.
        self._events: deque[Event] = deque()
        self.post = self._events.append

    def now(self) -> float:
        return self._now

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        at = fire_at if self._fires_at is None else self._fires_at(timer, fire_at, self._now)
        self._queue.timers.set(timer, at)

    def next(self) -> Event | Due | None:
        events = self._events
        while not events:
            entry = self._queue.pop() if self._goes_on() else None
            if entry is None or entry[0] > self._end_at:
                return None
            self._now, priority, _, subject, version = entry
            if priority == TIMER:
                return Due(self._now, subject)
            events.extend(self._happenings[priority](self._now, subject, version))
        return events.popleft()
