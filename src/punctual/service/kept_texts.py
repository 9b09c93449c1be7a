"""What is told of each job, kept from request to request: of hundreds of jobs few change between two of them."""

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Generic, NamedTuple, TypeVar

from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.core.verdict import verdict
from punctual.runtime.local_host import LocalHost
from punctual.runtime.when import Now

T = TypeVar("T")

#: By so much the wall clock may move against the monotonic one before the times that are kept are wrong, in seconds.
_CLOCK_S = 0.01
#: So many texts may be of jobs that the host has forgotten.
_N_FORGOTTEN_MAX = 1000


class _Kept(NamedTuple, Generic[T]):
    """What was made, of which status, until when it is right, and what else it depends on."""

    status: JobStatus
    until_at: float
    depends_on: Hashable
    made: T


class KeptTexts(Generic[T]):
    """What `make` gives for a job, made again once something that it depends on has changed.

    May be used by any thread.

    Parameters
    ----------
    make
        Takes a job and the present. What it gives may depend on the job's status, verdict, promise and demand, on the
        wall clock, and, of a job with a forecast, on the present.
    """

    def __init__(self, host: LocalHost, make: Callable[[JobStatus, Now], T]) -> None:
        self._host, self._make = host, make
        self._kept: dict[JobId, _Kept[T]] = {}
        self._n_kept_max = _N_FORGOTTEN_MAX
        #: Wall time less monotonic time.
        self._clocks_apart_s = inf

    def of_all(self, jobs: Sequence[JobStatus], now: Now) -> list[T]:
        """That of each job, in their order."""
        self._drop_if_clocks_moved(now)
        promises = self._host.promises()
        return [self._of(status, now, promises.get(status.id)) for status in jobs]

    def of(self, status: JobStatus, now: Now) -> T:
        """That of one job."""
        self._drop_if_clocks_moved(now)
        return self._of(status, now, self._host.promised_until_at(status.id))

    def _drop_if_clocks_moved(self, now: Now) -> None:
        apart_s = now.wall.timestamp() - now.at
        if abs(apart_s - self._clocks_apart_s) > _CLOCK_S:
            self._kept, self._clocks_apart_s = {}, apart_s

    def _of(self, status: JobStatus, now: Now, promised_until_at: float | None) -> T:
        job, is_over = status.id, status.ended
        if status.forecast is not None and not is_over and not status.landed:
            return self._make(status, now)  # the time that is left is another one at every instant
        depends_on = (promised_until_at, None if is_over else self._host.demand_cores(job))
        kept = self._kept.get(job)
        if kept is not None and kept.status is status and now.at <= kept.until_at and kept.depends_on == depends_on:
            return kept.made
        # Without a forecast a verdict changes by itself once: when the deadline passes.
        until_at = inf if is_over or verdict(status, now.at) is not None else status.deadline_at
        made = self._make(status, now)
        self._kept[job] = _Kept(status, inf if until_at is None else until_at, depends_on, made)
        if len(self._kept) > self._n_kept_max:
            self._forget()
        return made

    def _forget(self) -> None:
        """Leave out the jobs that the host has forgotten."""
        self._kept = {job: kept for job, kept in list(self._kept.items()) if self._host.knows(job)}
        self._n_kept_max = len(self._kept) + _N_FORGOTTEN_MAX
