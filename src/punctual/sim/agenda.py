"""What is still to happen, in a total order."""

from heapq import heappop, heappush
from typing import Any

#: What goes first at one instant. Facts of the world come before what reacts to them, and plans come last, so that
#: whatever happens at the same instant is in the picture they are made of.
FACT, ARRIVAL, TIMER, PLAN = range(4)

#: Instant, priority, number of the entry, its subject, and the subject's version when it was entered.
Entry = tuple[float, int, int, Any, int]


class Agenda:
    """Entries ordered by (instant, priority, order of entering).

    Nothing is ever taken out of the middle. Whoever enters a subject again gives it another version and drops the
    entries of older ones when they come up.
    """

    __slots__ = ("_entries", "_n_entered")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._n_entered = 0

    def enter(self, at: float, priority: int, subject: object, version: int = 0) -> None:
        self._n_entered += 1
        heappush(self._entries, (at, priority, self._n_entered, subject, version))

    def pop(self) -> Entry:
        """The next entry; raises `IndexError` if there is none."""
        return heappop(self._entries)

    def next_at(self) -> float | None:
        """Instant of the next entry; None: there is none."""
        return self._entries[0][0] if self._entries else None

    def __len__(self) -> int:
        return len(self._entries)
