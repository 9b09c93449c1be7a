"""The scheduler's jobs: all that have not ended, the last ones that have, and the dependencies among them."""

from collections.abc import Callable, Iterator
from typing import Any

from punctual.core.errors import InvariantBroken
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.lifecycle import end_state
from punctual.core.protocols import Message
from punctual.core.recent_messages import Reason
from punctual.core.scheduled_job import ScheduledJob


class JobTable:
    """Records of jobs by name.

    Parameters
    ----------
    n_ended
        Number of ended jobs that are remembered, the last ones.

    Attributes
    ----------
    active
        The jobs that have not ended, in order of submission.
    just_ended
        Jobs that have just ended and for which others wait: see `followers_of_ended`.
    """

    def __init__(self, n_ended: int) -> None:
        self.active: dict[JobId, ScheduledJob] = {}
        self._n_ended = n_ended
        self._jobs: dict[JobId, ScheduledJob] = {}
        #: Ended jobs that are remembered, in the order in which they ended.
        self._ended: dict[JobId, None] = {}
        self.just_ended: list[ScheduledJob] = []
        #: Jobs that wait for each job.
        self._followers: dict[JobId, list[JobId]] = {}

    def __getitem__(self, job: JobId) -> ScheduledJob:
        """Return the record of a job, also after its end; raise `KeyError` if it is not remembered."""
        return self._jobs[job]

    def get(self, job: JobId) -> ScheduledJob | None:
        """Return the record of a job, also after its end; None if it is not remembered."""
        return self._jobs.get(job)

    def add(self, job: ScheduledJob) -> None:
        """Add a job that was submitted."""
        self._jobs[job.spec.id] = job
        self.active[job.spec.id] = job

    def queue_behind(self, job: ScheduledJob) -> Reason | None:
        """Make a new job wait for those it runs after. Returns why it can never run; None: it can."""
        if not job.spec.after:
            return None
        for name in job.spec.after:
            before = self.get(name)
            if before is None:
                return Reason("after-unknown", f"it is to run after '{name}', and there is no such job")
            if before.ended and before.status != "finished":
                return _left_behind(before)
        job.waits_for = tuple(name for name in job.spec.after if not self[name].ended)
        self._follow(job)
        return None

    def _follow(self, job: ScheduledJob) -> None:
        for name in job.waits_for:
            self._followers.setdefault(name, []).append(job.spec.id)

    def followers_of_ended(self) -> Iterator[tuple[ScheduledJob, Reason | None]]:
        """Yield the jobs that waited for one that has just ended, with the reason why they can never run, or None.

        Includes those of jobs that end meanwhile.
        """
        while self.just_ended:
            before = self.just_ended.pop(0)
            for name in self._followers.pop(before.spec.id, ()):
                job = self.active.get(name)
                if job is None:
                    continue
                job.waits_for = tuple(other for other in job.waits_for if other != before.spec.id)
                yield job, None if before.status == "finished" else _left_behind(before)

    def end(self, job: ScheduledJob, end: Message) -> None:
        """Record the end of a job with the message `end`, and forget the oldest of many ended jobs."""
        if job.spec.id in self._followers:
            self.just_ended.append(job)
        name = job.spec.id
        del self.active[name]
        job.status = end_state(end) or job.status
        job.forget_all_but_numbers()
        self._ended[name] = None
        if len(self._ended) > self._n_ended:
            forgotten = next(iter(self._ended))
            del self._ended[forgotten], self._jobs[forgotten]

    def validate(self, granted: Callable[[JobId], Allocation]) -> None:
        """Raise `InvariantBroken` if the state contradicts itself, or what is `granted` to jobs that have not ended."""
        for name, job in self._jobs.items():
            if job.ended != (name not in self.active):
                raise InvariantBroken(f"job '{name}' is {job.status} and listed as the opposite", job.so_far())
            if not job.ended and job.status == "queued" and granted(name):
                raise InvariantBroken(f"job '{name}' is queued and holds something", job.so_far())
            if not job.ended and job.is_withheld and job.target:
                raise InvariantBroken(f"job '{name}' may have nothing and is to have something", job.so_far())

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "jobs": [job.as_plain() for job in self._jobs.values()],
            "active": list(self.active),
            "ended": list(self._ended),
        }

    def load(self, jobs: list[ScheduledJob], state: dict[str, Any]) -> None:
        """Continue from a state of `dump`, with the records that were made of its `jobs`."""
        self._jobs = {job.spec.id: job for job in jobs}
        self.active.update((name, self._jobs[name]) for name in state["active"])
        self._ended = dict.fromkeys(state["ended"])
        for job in self.active.values():
            self._follow(job)


def duplicate(job: JobId) -> Reason:
    """Return the reason for turning away a second job of this name."""
    return Reason("duplicate-id", f"a second job '{job}' was submitted and turned away; choose another name for it")


def _left_behind(before: ScheduledJob) -> Reason:
    """Return the reason why a job that runs after `before` can never run."""
    how = before.status if before.status == "failed" else f"was {before.status}"
    return Reason("after-failed", f"it is to run after '{before.spec.id}', which {how}")
