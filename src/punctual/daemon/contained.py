"""An executor that turns each of its exceptions into the failure of one job's command."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from punctual.core.commands import JobCommand
from punctual.core.events import JobWarned
from punctual.core.ids import JobId
from punctual.core.protocols import Executor, Sink
from punctual.core.recent_messages import Reason
from punctual.executors.job_facts import JobFacts

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


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

    A command that fails so is not answered, and is said again.
    """

    def __init__(self, executor: HostExecutor) -> None:
        self._executor = executor
        #: Failures reported already, by job.
        self._told: set[tuple[JobId | None, str]] = set()

    @property
    def actuator(self) -> str:
        return self._executor.actuator

    @property
    def actuator_reason(self) -> str:
        return self._executor.actuator_reason

    def perform(self, command: JobCommand, sink: Sink) -> None:
        job: JobId | None = getattr(command, "job", None)  # commands about machines concern none
        self._call(lambda: self._executor.perform(command, sink), None, job, "commanded", command.at, sink)

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        self._call(lambda: self._executor.observe(job, at, sink), None, job, "observed", at, sink)

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        self._call(lambda: self._executor.renew(is_paused_by_user), None, None, "renewed")

    def facts(self, job: JobId) -> JobFacts:
        return self._call(lambda: self._executor.facts(job), JobFacts(), job, "asked")

    def release(self) -> None:
        self._executor.release()

    def close(self) -> None:
        self._executor.close()

    def _call(
        self,
        call: Callable[[], T],
        otherwise: T,
        job: JobId | None,
        doing: str,
        at: float = 0.0,
        sink: Sink | None = None,
    ) -> T:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 -- see above
            if (job, doing) not in self._told:
                self._told.add((job, doing))
                _LOG.warning("%s could not be %s", "the jobs" if job is None else f"job '{job}'", doing, exc_info=error)
                if sink is not None and job is not None:
                    text = f"it could not be {doing} ({type(error).__name__}: {error}); it goes on, and that is tried again"
                    sink(JobWarned(at=at, job=job, reason=Reason(f"not-{doing}", text)))
            return otherwise
