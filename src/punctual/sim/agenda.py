"""What is still to happen, in a total order."""

from heapq import heappop, heappush
from typing import Any

from punctual.core.timer import Timer

#: What goes first at one instant. Facts of the world come before what reacts to them, and plans come last, so that
#: whatever happens at the same instant is in the picture they are made of.
FACT, ARRIVAL, TIMER, PLAN = range(4)

#: Instant, priority, what orders equals, the subject, and the subject's version when it was entered.
Entry = tuple[float, int, int | Timer, Any, int]


class Agenda:
    """Entries ordered by instant and priority; equals in the order of entering, timers in that of their names.

    Nothing is ever taken out of the middle. Whoever enters a subject again gives it another version and drops the
    entries of older ones when they come up.
    """

    __slots__ = ("_entries", "_n_entered")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._n_entered = 0

    def enter(self, at: float, priority: int, subject: object, version: int = 0) -> None:
        self._n_entered += 1
        order = subject if isinstance(subject, Timer) else self._n_entered
        heappush(self._entries, (at, priority, order, subject, version))

    def pop(self) -> Entry:
        """The next entry; raises `IndexError` if there is none."""
        return heappop(self._entries)

    def next_is(self, at: float, priority: int) -> bool:
        """Whether there is another entry of this instant and priority."""
        return bool(self._entries) and self._entries[0][:2] == (at, priority)

    def next_at(self) -> float | None:
        """Instant of the next entry; None: there is none."""
        return self._entries[0][0] if self._entries else None

    def __len__(self) -> int:
        return len(self._entries)
