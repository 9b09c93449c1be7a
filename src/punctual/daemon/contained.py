"""An executor whose failures cost one job what failed, and no other job anything."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from punctual.channel import DeviceUse, WorkerStatus
from punctual.core.commands import JobCommand
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobWarned
from punctual.core.ids import JobId
from punctual.core.protocols import Executor, Sink
from punctual.core.story import Reason

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class HostExecutor(Executor, Protocol):
    """An executor, and what a host asks it beside. What enforces grants, and in a sentence why."""

    @property
    def actuator(self) -> str: ...

    @property
    def actuator_reason(self) -> str: ...

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = ...) -> None:
        """Say that the jobs are still steered, and which stay paused when they are not."""
        ...

    def worker_status(self, job: JobId) -> WorkerStatus | None: ...

    def device_use(self, job: JobId) -> DeviceUse | None: ...

    def faults(self, job: JobId) -> list[InvalidSpec]: ...

    def release(self) -> None:
        """Leave what runs to whoever comes next; nothing is answered any more."""
        ...

    def close(self) -> None:
        """End what still runs; returns when nothing is left of it."""
        ...


class Contained:
    """`executor`, from whose calls no exception comes: it is logged, and told once of each job.

    A command that fails so is not answered, and is said again.
    """

    def __init__(self, executor: HostExecutor) -> None:
        self._executor = executor
        #: What has failed already, by job.
        self._told: set[tuple[JobId | None, str]] = set()

    @property
    def actuator(self) -> str:
        return self._executor.actuator

    @property
    def actuator_reason(self) -> str:
        return self._executor.actuator_reason

    def perform(self, command: JobCommand, sink: Sink) -> None:
        job = command.job
        self._call(lambda: self._executor.perform(command, sink), None, job, "commanded", command.at, sink)

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        self._call(lambda: self._executor.observe(job, at, sink), None, job, "observed", at, sink)

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        self._call(lambda: self._executor.renew(is_paused_by_user), None, None, "renewed")

    def worker_status(self, job: JobId) -> WorkerStatus | None:
        return self._call(lambda: self._executor.worker_status(job), None, job, "asked")

    def device_use(self, job: JobId) -> DeviceUse | None:
        return self._call(lambda: self._executor.device_use(job), None, job, "asked")

    def faults(self, job: JobId) -> list[InvalidSpec]:
        return self._call(lambda: self._executor.faults(job), [], job, "asked")

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
