"""Cache of jobs' encoded answers: of hundreds of jobs few change between two requests."""

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Generic, TypeVar

from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.daemon.host import Host
from punctual.history.judge import NO_WAIT, Wait
from punctual.request.deadlines import Now

T = TypeVar("T")

#: Texts of jobs that the host has forgotten, at most.
_N_FORGOTTEN_MAX = 1000


class StatusJsonCache(Generic[T]):
    """Results of `make` for jobs, made again once something that they depend on has changed.

    May be used by any thread.

    `make`: takes a job, the present, and what the job waits for. Its result may depend on the job's status, verdict,
    promise and demand, on the wall clock, and, of a job with a forecast, on the present.
    """

    def __init__(self, host: Host, make: Callable[[JobStatus, Now, Wait], T]) -> None:
        self._host, self._make = host, make
        self._kept: dict[JobId, tuple[JobStatus, Hashable, T]] = {}
        self._n_kept_max = _N_FORGOTTEN_MAX
        #: Wall time less monotonic time.
        self._clocks_apart_s = inf

    def of_all(self, jobs: Sequence[JobStatus], now: Now) -> list[T]:
        """Return the result of each job, in their order."""
        apart_s = now.wall.timestamp() - now.at
        # Seconds that the wall clock may move against the monotonic one before cached times are wrong.
        if abs(apart_s - self._clocks_apart_s) > 0.01:
            self._kept, self._clocks_apart_s = {}, apart_s
        promises, waits = self._host.promises(), self._host.waits(now.at)
        return [self._of(status, now, promises.get(status.id), waits.get(status.id, NO_WAIT)) for status in jobs]

    def _of(self, status: JobStatus, now: Now, promised_until_at: float | None, wait: Wait) -> T:
        if status.forecast is not None and not (status.landed or status.ended):
            return self._make(status, now, wait)  # the time that is left is another one at every instant
        job, deadline_at = status.id, status.deadline_at
        # Without a forecast, all that time alone changes of a verdict is whether the deadline has passed.
        is_past_deadline = deadline_at is not None and now.at > deadline_at
        demand_cores = None if status.ended else self._host.demand_cores(job)
        # Seconds by which the ends that jobs wait for may move before their texts are made again.
        depends_on = (is_past_deadline, promised_until_at, demand_cores, wait.roughly(10.0))
        kept = self._kept.get(job)
        if kept is not None and kept[0] is status and kept[1] == depends_on:
            return kept[2]
        made = self._make(status, now, wait)
        self._kept[job] = (status, depends_on, made)
        if len(self._kept) > self._n_kept_max:
            self._forget()
        return made

    def _forget(self) -> None:
        """Drop the jobs that the host has forgotten."""
        self._kept = {job: kept for job, kept in list(self._kept.items()) if self._host.knows(job)}
        self._n_kept_max = len(self._kept) + _N_FORGOTTEN_MAX
