"""An executor that turns each of its exceptions into the failure of one job's command."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from punctual.core.commands import JobCommand
from punctual.core.events import JobWarned
from punctual.core.ids import JobId
from punctual.core.instants import moved
from punctual.core.protocols import Executor, Sink
from punctual.core.reason import Reason
from punctual.executors.job_facts import JobFacts

_LOG = logging.getLogger(__name__)


class HostExecutor(Executor, Protocol):
    """An executor with the methods that a host calls beside commands, and the reason for its actuator."""

    @property
    def actuator(self) -> str: ...

    @property
    def actuator_reason(self) -> str: ...

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = ...) -> None:
        """Renew the jobs' lease, and name the jobs that stay paused when it ends."""
        ...

    def facts(self, job: JobId) -> JobFacts:
        """Return the facts about a job that only its executor has."""
        ...

    def release(self) -> None:
        """Leave running jobs to the next owner; no further events are sent."""
        ...

    def close(self) -> None:
        """End the jobs that still run; returns when none of their processes is left."""
        ...


class Contained:
    """Wrap `executor` so that no exception leaves it: each is logged, and reported once for each job.

    A command that fails so is not answered, and is said again. `release` and `close` are the executor's own, and may raise.

    `shift_s`: seconds from the time of commands and answers here to that of `executor`: from a journal's to the machine's.
    """

    def __init__(self, executor: HostExecutor, shift_s: float = 0.0) -> None:
        self._executor, self._shift_s = executor, shift_s
        self.release, self.close = executor.release, executor.close
        #: Failures reported already, by job.
        self._told: set[tuple[JobId | None, str]] = set()

    def perform(self, command: JobCommand, sink: Sink) -> None:
        job: JobId | None = getattr(command, "job", None)  # commands about machines concern none
        with self._caught("commanded", job, command.at, sink):
            if self._shift_s:
                command = moved(command, self._shift_s)
            self._executor.perform(command, self._moving(sink))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        with self._caught("observed", job, at, sink):
            self._executor.observe(job, at + self._shift_s, self._moving(sink))

    def _moving(self, sink: Sink) -> Sink:
        shift_s = self._shift_s
        return (lambda event: sink(moved(event, -shift_s))) if shift_s else sink

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        with self._caught("renewed", None):
            self._executor.renew(is_paused_by_user)

    def facts(self, job: JobId) -> JobFacts:
        """Return what only the executor knows of the job."""
        facts = JobFacts()
        with self._caught("asked", job):
            facts = self._executor.facts(job)
        return facts  # noqa: RET504 -- also after what is caught

    @contextmanager
    def _caught(self, doing: str, job: JobId | None, at: float = 0.0, sink: Sink | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- see above
            if (job, doing) in self._told:
                return
            self._told.add((job, doing))
            _LOG.warning("%s could not be %s", "the jobs" if job is None else f"job '{job}'", doing, exc_info=error)
            if sink is not None and job is not None:
                text = f"it could not be {doing} ({type(error).__name__}: {error}); it goes on, and that is tried again"
                sink(JobWarned(at=at, job=job, reason=Reason(f"not-{doing}", text)))
