"""Time and events of a live run, in the machine's time or in that of a journal, which continues where it stopped."""

import time
from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue
from typing import TypeVar

from punctual.core.events import Event
from punctual.core.ids import Timer
from punctual.core.instants import moved
from punctual.daemon.engine import Due, Query, Timers

M = TypeVar("M")


class Mailbox:
    """Events from any thread, and timers, in the time of a journal: the monotonic clock minus `shift_s`.

    Timers that are due come before events that wait, because all that a due timer does is to post events. The shift is 0 for a
    journal that was begun since the machine was started.
    """

    def __init__(self, shift_s: float = 0.0) -> None:
        self.shift_s = shift_s
        self._timers = Timers()
        self._pulse: Callable[[], None] | None = None
        self._pulse_s = self._pulse_at = inf
        # The one queue whose `put` may also be called from a signal's code while the same thread waits in `get`.
        self._events: SimpleQueue[Event | Query] = SimpleQueue()
        #: Item that was taken out of the queue and is returned next.
        self._held: Event | Query | None = None

    def now(self) -> float:
        return time.monotonic() - self.shift_s

    def to_machine(self, message: M) -> M:
        """Convert the instants of `message` from the journal's time to the monotonic clock."""
        return moved(message, self.shift_s)

    def from_machine(self, event: Event) -> None:
        """Enter an event with instants of the monotonic clock."""
        self.post(moved(event, -self.shift_s))

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

    def next(self) -> Event | list[Event] | Due | Query:
        while True:
            now = self.now()
            if self._pulse is not None and now >= self._pulse_at:
                self._pulse_at = now + self._pulse_s
                self._pulse()
            fire_at = self._timers.next_at()
            if fire_at is not None and fire_at <= now:
                return Due(now, self._timers.pop_due(now))
            wake_at = min(self._pulse_at, inf if fire_at is None else fire_at)
            try:
                # Longest wait in one go, in seconds: the operating system refuses very long ones.
                event = self._held or self._events.get(timeout=min(max(0.0, wake_at - now), 3600.0))
            except Empty:
                continue
            self._held = None
            return event if isinstance(event, Query) else self._with_those_behind(event)

    def _with_those_behind(self, event: Event) -> Event | list[Event]:
        """Return `event` together with the events that are queued behind it."""
        events = [event]
        # Most events that are written together: what follows from the first one waits for the last.
        while len(events) < 100 and not self._events.empty():
            behind = self._events.get_nowait()
            if isinstance(behind, Query):
                self._held = behind
                break
            events.append(behind)
        return events if len(events) > 1 else event
