"""An executor that pretends."""

from dataclasses import dataclass
from math import floor, inf

from punctual.core.answers import unknown_job
from punctual.core.commands import Command, LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantApplied, JobFinished, JobStarted, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.protocols import Sink
from punctual.core.resources import total

#: A step that is finished but for this part of it counts as done: its end was computed, with rounding.
_ROUNDING_STEPS = 1e-9


@dataclass(slots=True)
class _Pretence:
    """A job that advances by itself, in steps of fixed cost."""

    n_steps: int
    steps_per_core_s: float
    granted: Allocation
    n_requests: int
    seen_at: float
    #: With fractions: the part of the step in flight that is done.
    steps: float = 0.0
    unit_at: float = 0.0

    @property
    def steps_done(self) -> int:
        return min(self.n_steps, floor(self.steps + _ROUNDING_STEPS))

    @property
    def landed(self) -> bool:
        return self.steps_done == self.n_steps

    def advance(self, at: float) -> None:
        """Work from the last instant seen to `at`; the job stops working when it has landed."""
        rate_sps = self.steps_per_core_s * total(self.granted.values()).cores
        steps = min(float(self.n_steps), self.steps + rate_sps * (at - self.seen_at))
        if floor(steps + _ROUNDING_STEPS) > self.steps_done:
            self.unit_at = self.seen_at + (floor(steps + _ROUNDING_STEPS) - self.steps) / rate_sps
        self.steps, self.seen_at = steps, at

    def core_s(self, steps: float) -> float:
        return steps / self.steps_per_core_s


class DryRun:
    """Answers every command at once with success; jobs advance at a fixed rate per core and end when observed.

    Parameters
    ----------
    steps_per_core_s
        Steps that a job does in one second on one core.
    n_steps
        Steps of a job whose specification declares none.

    Raises
    ------
    InvalidSpec
        One of them is not above zero.
    """

    def __init__(self, *, steps_per_core_s: float = 100.0, n_steps: int = 1000) -> None:
        for name, amount in (("steps_per_core_s", steps_per_core_s), ("n_steps", n_steps)):
            if not 0 < amount < inf:
                raise InvalidSpec(
                    f"`{name}` must be finite and above zero", str(amount), "the dry run", "Give a positive number."
                )
        self._steps_per_core_s = steps_per_core_s
        self._n_steps = n_steps
        self._jobs: dict[JobId, _Pretence] = {}
        #: When jobs have ended: a launch that was made before that does not start them again.
        self._ended_at: dict[JobId, float] = {}

    def perform(self, command: Command, sink: Sink) -> None:
        match command:
            case LaunchJob():
                self._launch(command, sink)
            case ResizeJob() | StopJob() if command.job not in self._jobs:
                sink(unknown_job(command))
            case ResizeJob():
                self._resize(self._jobs[command.job], command, sink)
            case StopJob():
                self._end(command.job, command.at)
                sink(unknown_job(command))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        pretence = self._jobs.get(job)
        if pretence is None:
            return
        pretence.advance(at)
        sink(_progress(job, pretence, at))
        if pretence.landed:
            self._end(job, at)
            sink(JobFinished(at=at, job=job, landed_at=pretence.unit_at))

    def _launch(self, command: LaunchJob, sink: Sink) -> None:
        if command.at <= self._ended_at.get(command.job, -inf):
            return
        if command.job not in self._jobs:
            self._jobs[command.job] = _Pretence(
                n_steps=int(command.spec.work_steps or self._n_steps),
                steps_per_core_s=self._steps_per_core_s,
                granted=command.grant,
                n_requests=command.request,
                seen_at=command.at,
                unit_at=command.at,
            )
        granted = self._jobs[command.job].granted
        sink(JobStarted(at=command.at, job=command.job, request=command.request, granted=granted))

    def _resize(self, job: _Pretence, command: ResizeJob, sink: Sink) -> None:
        if command.request < job.n_requests:
            return
        job.advance(command.at)
        job.granted, job.n_requests = command.grant, command.request
        sink(GrantApplied(at=command.at, job=command.job, request=command.request, granted=command.grant))

    def _end(self, job: JobId, at: float) -> None:
        del self._jobs[job]
        self._ended_at[job] = at


def _progress(id: JobId, job: _Pretence, at: float) -> ProgressReported:
    return ProgressReported(
        at=at,
        job=id,
        steps_done=job.steps_done,
        steps_total=job.n_steps,
        unit_at=job.unit_at,
        used_core_s=job.core_s(job.steps),
        in_flight_core_s=job.core_s(max(0.0, job.steps - job.steps_done)),
        landed=job.landed,
    )
