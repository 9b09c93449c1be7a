"""Share spare capacity step by step, each step to the job that gains most by it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, Protocol, TypeVar

from punctual.core.job import JobView
from punctual.policies._jobs import seniority


class HasView(Protocol):
    """The state of a job while something is shared."""

    @property
    def view(self) -> JobView: ...


J = TypeVar("J", bound=HasView)


@dataclass(frozen=True, slots=True)
class MarginalAllocator(Generic[J]):
    """Lets the job with the lowest rank take its next step, again and again, until no job can.

    Free capacity only shrinks, so a job that could not take a step is not asked again.

    Parameters
    ----------
    rank
        Rank of the job's next step; of equal ranks the oldest job comes first. None: it takes no more steps.
    take
        Lets the job take its next step; False if it cannot.
    """

    rank: Callable[[J], Any]
    take: Callable[[J], bool]

    def run(self, jobs: Iterable[J]) -> None:
        """Share the free capacity among `jobs`. O(steps log jobs)."""
        ranked = ((self.rank(job), job) for job in jobs)
        heap = [(rank, *seniority(job.view), job) for rank, job in ranked if rank is not None]
        heapify(heap)
        while heap:
            job = heap[0][-1]
            rank = self.rank(job) if self.take(job) else None
            if rank is None:
                heappop(heap)
            else:
                heapreplace(heap, (rank, *heap[0][1:]))
