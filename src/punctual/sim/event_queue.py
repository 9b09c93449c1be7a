"""Queue of future events, in a total order."""

from heapq import heappop, heappush
from typing import Any

from punctual.daemon.engine import Timers

#: Order of entries at one instant. Facts of the world precede reactions to them, and plans come last, so that
#: their snapshot contains all events of the instant.
FACT, ARRIVAL, TIMER, PLAN = range(4)

#: Instant, priority, number in the order of entering, the subject, and the subject's version when it was entered.
Entry = tuple[float, int, int, Any, int]


class EventQueue:
    """Entries ordered by instant and priority, equals in the order of entering; and timers.

    Nothing is ever taken out of the middle. Whoever enters a subject again gives it another version and drops the
    entries of older ones when they come up.
    """

    __slots__ = ("_entries", "_n_entered", "timers")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._n_entered = 0
        self.timers = Timers()

    def enter(self, at: float, priority: int, subject: object, version: int = 0) -> None:
        self._n_entered += 1
        heappush(self._entries, (at, priority, self._n_entered, subject, version))

    def pop(self) -> Entry | None:
        """Return the next entry, or None. All timers of one instant are one entry, whose subject lists them."""
        entries, timers = self._entries, self.timers
        timers_at = timers.next_at() if timers.fire_at else None
        if timers_at is None:
            return heappop(entries) if entries else None
        if entries and (entries[0][0] < timers_at or (entries[0][0] == timers_at and entries[0][1] < TIMER)):
            return heappop(entries)
        return timers_at, TIMER, 0, timers.pop_due(timers_at), 0

    def has_only(self, priority: int) -> bool:
        """Whether no entry has another priority."""
        no_timer = priority == TIMER or self.timers.next_at() is None
        return no_timer and all(entry[1] == priority for entry in self._entries)
