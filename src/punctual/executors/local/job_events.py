"""Events about one job of a local executor."""

from dataclasses import dataclass, replace
from time import monotonic

from punctual.channel import EXIT_PREEMPTED
from punctual.core.commands import StopJob
from punctual.core.control import PhaseProgress
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    LossReported,
    PhaseReported,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.loss import SeenLoss
from punctual.core.recent_messages import Reason
from punctual.core.resources import Resources
from punctual.executors.local.progress import ProgressSample


@dataclass(frozen=True, slots=True)
class JobEvents:
    """Makes the events about `job`, whose resources are on `node`."""

    job: JobId
    node: NodeId

    def started(self, request: int, held: Resources, *, can_pace: bool, can_cap: bool) -> JobStarted:
        return JobStarted(
            at=monotonic(),
            job=self.job,
            request=request,
            granted=self.allocation(held),
            can_pace=can_pace,
            can_cap=can_cap,
        )

    def applied(self, request: int, held: Resources) -> GrantApplied:
        return GrantApplied(at=monotonic(), job=self.job, request=request, granted=self.allocation(held))

    def not_applied(self, request: int, held: Resources, cause: str, short_of: str = "") -> GrantFailed:
        return GrantFailed(
            at=monotonic(),
            job=self.job,
            request=request,
            granted=self.allocation(held),
            cause=cause,
            short_of=short_of,
        )

    def finished(self, landed_at: float) -> JobFinished:
        return JobFinished(at=monotonic(), job=self.job, landed_at=landed_at)

    def failed(
        self,
        cause: str,
        exit_code: int | None = None,
        *,
        retryable: bool = False,
        out_of_memory: bool = False,
    ) -> JobFailed:
        return JobFailed(
            at=monotonic(),
            job=self.job,
            cause=cause,
            exit_code=exit_code,
            retryable=retryable,
            out_of_memory=out_of_memory,
        )

    def stopped(self, stop: StopJob, exit_code: int | None = None) -> JobFailed:
        """Return the end of a job that was asked to end by `stop`."""
        failed = self.failed(stop.cause, exit_code, retryable=stop.restarts)
        is_stopped, has_saved = stop.moves or not stop.restarts, exit_code == EXIT_PREEMPTED
        return replace(failed, is_stopped=is_stopped, is_due=stop.is_due, has_saved=has_saved)

    def phases(self, at: float, phases: tuple[PhaseProgress, ...]) -> PhaseReported:
        return PhaseReported(at=at, job=self.job, phases=phases)

    def losses(self, at: float, losses: tuple[SeenLoss, ...]) -> LossReported:
        return LossReported(at=at, job=self.job, losses=losses)

    def warned(self, at: float, reason: Reason) -> JobWarned:
        return JobWarned(at=at, job=self.job, reason=reason)

    def progress(
        self, at: float, sample: ProgressSample, started_at: float, used_core_s: float, memory_bytes: int = 0
    ) -> ProgressReported:
        return ProgressReported(
            at=at,
            job=self.job,
            steps_done=sample.steps_done,
            steps_total=sample.steps_total,
            unit_at=started_at if sample.unit_at is None else sample.unit_at,
            used_core_s=used_core_s,
            in_flight_core_s=sample.in_flight_core_s,
            landed=sample.landed,
            is_read=sample.is_read,
            busy_s=sample.busy_s,
            device_s=sample.device_s,
            active_s=sample.active_s,
            memory_bytes=memory_bytes,
        )

    def allocation(self, held: Resources) -> Allocation:
        return {self.node: held} if held else {}
