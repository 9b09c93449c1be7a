"""The parts of a snapshot, kept up to date from event to event instead of being made anew for each plan."""

from bisect import bisect_left
from itertools import count

from punctual.core.ids import JobId
from punctual.core.job import JobView


class Picture:
    """The views of all jobs that have not ended: who holds, and who waits, those in order of submission."""

    def __init__(self) -> None:
        self._holding: dict[JobId, JobView] = {}
        #: Numbers of the waiting jobs, ascending, and their views in the same order.
        self._numbers: list[int] = []
        self._waiting: list[JobView] = []
        self._number_of: dict[JobId, int] = {}
        self._next_number = count()

    def admit(self, job: JobId) -> None:
        """`job` was submitted after all others; it is seen from its first `show` on."""
        self._number_of[job] = next(self._next_number)

    def show(self, view: JobView) -> None:
        """Replace what is shown of the job."""
        holds = bool(view.planned or view.granted)
        if not (holds and view.spec.id in self._holding):  # else it keeps its place
            self._hide(view.spec.id)
        if holds:
            self._holding[view.spec.id] = view
            return
        number = self._number_of[view.spec.id]
        i = bisect_left(self._numbers, number)
        self._numbers.insert(i, number)
        self._waiting.insert(i, view)

    def drop(self, job: JobId) -> None:
        """The job has ended."""
        self._hide(job)
        self._number_of.pop(job, None)

    def holding(self) -> tuple[JobView, ...]:
        return tuple(self._holding.values())

    def waiting(self) -> tuple[JobView, ...]:
        return tuple(self._waiting)

    def _hide(self, job: JobId) -> None:
        if self._holding.pop(job, None) is not None:
            return
        i = bisect_left(self._numbers, self._number_of.get(job, -1))
        if i < len(self._numbers) and self._waiting[i].spec.id == job:
            del self._numbers[i], self._waiting[i]
