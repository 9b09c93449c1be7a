"""The jobs that a scheduler knows: all that have not ended, and the last ones that have."""

from typing import Any

from punctual.core.errors import InvariantBroken
from punctual.core.ids import JobId
from punctual.core.job import JobState
from punctual.core.scheduled_job import ScheduledJob


class JobTable:
    """Records of jobs by name.

    Parameters
    ----------
    n_ended
        How many ended jobs are remembered, the last ones.

    Attributes
    ----------
    active
        The jobs that have not ended, in order of submission.
    """

    def __init__(self, n_ended: int) -> None:
        self.active: dict[JobId, ScheduledJob] = {}
        self._n_ended = n_ended
        self._jobs: dict[JobId, ScheduledJob] = {}
        #: Ended jobs that are remembered, in the order in which they ended.
        self._ended: dict[JobId, None] = {}

    def __getitem__(self, job: JobId) -> ScheduledJob:
        """Also after its end; raises `KeyError` for one that is not known any more."""
        return self._jobs[job]

    def get(self, job: JobId) -> ScheduledJob | None:
        """The same; None for one that is not known."""
        return self._jobs.get(job)

    def add(self, job: ScheduledJob) -> None:
        """The job was submitted."""
        self._jobs[job.spec.id] = job
        self.active[job.spec.id] = job

    def end(self, job: ScheduledJob, status: JobState) -> None:
        """The job has ended; only so many of those are remembered."""
        name = job.spec.id
        del self.active[name]
        job.status = status
        job.forget_all_but_numbers()
        self._ended[name] = None
        if len(self._ended) > self._n_ended:
            forgotten = next(iter(self._ended))
            del self._ended[forgotten], self._jobs[forgotten]

    def validate(self) -> None:
        """Raise `InvariantBroken` if the state contradicts itself."""
        for name, job in self._jobs.items():
            if job.ended != (name not in self.active):
                raise InvariantBroken(f"job '{name}' is {job.status} and listed as the opposite", job.so_far())

    def dump(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "jobs": [job.as_plain() for job in self._jobs.values()],
            "active": list(self.active),
            "ended": list(self._ended),
        }

    def load(self, jobs: list[ScheduledJob], state: dict[str, Any]) -> None:
        """Continue from what `dump` gave, with the records that were made of its `jobs`."""
        self._jobs = {job.spec.id: job for job in jobs}
        self.active.update((name, self._jobs[name]) for name in state["active"])
        self._ended = dict.fromkeys(state["ended"])
