"""Clock that is moved by hand, or by waiting."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from punctual.core.events import Event
from punctual.core.ids import Timer
from punctual.daemon.engine import Due, Timers


class FakeClock:
    """A time source that jumps to the next timer or call when no event waits: a minute of a run takes no time.

    Only for engines whose events come from the engine's own thread: an event from another one may find the clock ahead.

    Parameters
    ----------
    work
        Called before each jump with the instant it leads to: what goes on meanwhile. It returns that instant, or an
        earlier one at which something happened that it has posted. None: nothing goes on.
    """

    def __init__(self, now: float = 0.0, work: Callable[[float], float] | None = None) -> None:
        self._now = now
        self._work = work
        self._events: deque[Event] = deque()
        self._timers = Timers()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def now(self) -> float:
        return self._now

    def advance(self, by_s: float) -> None:
        self._now += by_s

    def post(self, event: Event) -> None:
        self._events.append(event)

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        self._timers.set(timer, fire_at)

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Call `call` when the clock comes to `at`, before the timers of that instant; it may post events."""
        heappush(self._calls, (at, next(self._numbers), call))

    def next(self) -> Event | Due:
        """Return the timers that are due, else the next event, else the first of calls and timers.

        Raises
        ------
        RuntimeError
            None of these is set: a real clock would wait for ever.
        """
        while True:
            timer_at = self._timers.next_at()
            if timer_at is not None and timer_at <= self._now:
                return Due(self._now, self._timers.pop_due(self._now))
            if self._events:
                return self._events.popleft()
            self._jump(timer_at)

    def _jump(self, timer_at: float | None) -> None:
        instants = [at for at in (timer_at, self._calls[0][0] if self._calls else None) if at is not None]
        if not instants:
            raise RuntimeError("the engine waits, and no timer is set and no event under way")
        until_at = max(self._now, min(instants))
        self._now = until_at if self._work is None else self._work(until_at)
        if self._now == until_at and self._calls and self._calls[0][0] <= until_at:
            heappop(self._calls)[2]()
