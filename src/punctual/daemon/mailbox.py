"""Time and events of a live run."""

import time
from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue

from punctual.core.events import Event
from punctual.core.ids import Timer
from punctual.daemon.engine import Due, Query, Together
from punctual.daemon.timers import Timers


class MonotonicClock:
    """The machine's monotonic clock, which all its processes share."""

    def now(self) -> float:
        return time.monotonic()


class Mailbox(MonotonicClock):
    """Events from any thread, and timers on the monotonic clock.

    Timers that are due come before events that wait, because all that a due timer does is to post events.
    """

    def __init__(self) -> None:
        self._timers = Timers()
        self._pulse: Callable[[], None] | None = None
        self._pulse_s = self._pulse_at = inf
        # The one queue whose `put` may also be called from a signal's code while the same thread waits in `get`.
        self._events: SimpleQueue[Event | Query] = SimpleQueue()
        #: Item that was taken out of the queue and is returned next.
        self._held: Event | Query | None = None

    def pulse(self, call: Callable[[], None], every_s: float = 1.0) -> None:
        """Have `next` call `call` about every `every_s` seconds, however long it waits; a loop that hangs does not."""
        self._pulse, self._pulse_s, self._pulse_at = call, every_s, -inf

    def post(self, event: Event) -> None:
        """Enter an event; allowed in any thread and signal handler."""
        self._events.put(event)

    def ask(self, question: Query) -> None:
        """Enter a question in the order of events; allowed in any thread and signal handler."""
        self._events.put(question)

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        self._timers.set(timer, fire_at)

    def next(self) -> Event | Together | Due | Query:
        while True:
            now = self.now()
            if self._pulse is not None and now >= self._pulse_at:
                self._pulse_at = now + self._pulse_s
                self._pulse()
            if due := self._timers.pop_due(now):
                return Due(now, due)
            fire_at = self._timers.next_at()
            wake_at = min(self._pulse_at, inf if fire_at is None else fire_at)
            try:
                # Longest wait in one go, in seconds: the operating system refuses very long ones.
                event = self._taken() or self._events.get(timeout=min(max(0.0, wake_at - now), 3600.0))
            except Empty:
                continue
            return event if isinstance(event, Query) else self._with_those_behind(event)

    def _taken(self) -> Event | Query | None:
        held, self._held = self._held, None
        return held

    def _with_those_behind(self, event: Event) -> Event | Together:
        """Return `event` together with the events that are queued behind it."""
        events = [event]
        # Most events that are written together: what follows from the first one waits for the last.
        while len(events) < 100 and not self._events.empty():
            behind = self._events.get_nowait()
            if isinstance(behind, Query):
                self._held = behind
                break
            events.append(behind)
        return Together(events) if len(events) > 1 else event
