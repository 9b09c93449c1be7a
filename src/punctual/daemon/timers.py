"""Due times of timers."""

from heapq import heappop, heappush

from punctual.core.ids import Timer


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
