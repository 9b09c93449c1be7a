"""A clock that is moved by hand, or by waiting."""

from collections import deque

from punctual.core.events import Event
from punctual.core.timer import Timer
from punctual.runtime.engine import Due
from punctual.runtime.timers import Timers


class FakeClock:
    """A time source that jumps to the next timer when no event waits, so that a minute of a run takes no time.

    Only for engines whose events come from the engine's own thread: an event from another one may find the clock ahead.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._events: deque[Event] = deque()
        self._timers = Timers()

    def now(self) -> float:
        return self._now

    def advance(self, by_s: float) -> None:
        self._now += by_s

    def post(self, event: Event) -> None:
        self._events.append(event)

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        self._timers.set(timer, fire_at)

    def next(self) -> Event | Due:
        """The timers that are due, else the next event, else the jump to the next timer.

        Raises
        ------
        RuntimeError
            There is none of these: a real clock would wait for ever.
        """
        next_at = self._timers.next_at()
        if next_at is not None and (next_at <= self._now or not self._events):
            self._now = max(self._now, next_at)
            return Due(self._now, self._timers.pop_due(self._now))
        if not self._events:
            raise RuntimeError("the engine waits, and no timer is set and no event under way")
        return self._events.popleft()
