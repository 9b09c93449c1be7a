"""One job as it stands, folded from the messages about it: what every display and the control socket show."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob, WarnUser
from punctual.core.control import Forecast
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.job import Allocation, JobSpec, JobState, shape_of
from punctual.core.protocols import Message
from punctual.core.resources import total
from punctual.core.story import Reason

#: Usage is CPU time over at least this long: over one tick of 0.1 s a single step of 20 ms makes it jump.
USAGE_WINDOW_S = 1.0


@dataclass(slots=True)
class Picture:
    """The state of one job for people; all instants in monotonic seconds.

    Attributes
    ----------
    n_workers
        Workers that the job holds; 0: it is not made of workers.
    usage_cores
        CPU time used over the last second or more of it, per second.
    forecast
        The controller's, in seconds since submission; set by whoever has the scheduler at hand.
    steps_expected
        Steps until the goal, where they are not those declared; set like the forecast.
    warnings
        What needs attention now, by code; a warning that is over is no longer here.
    """

    spec: JobSpec
    submitted_at: float
    status: JobState = "queued"
    landed: bool = False
    steps_done: float = 0.0
    steps_total: float | None = None
    unit_at: float | None = None
    granted_cores: float = 0.0
    n_workers: int = 0
    used_core_s: float = 0.0
    usage_cores: float = 0.0
    reason: Reason | None = None
    forecast: Forecast | None = None
    steps_expected: float | None = None
    cause: str = ""
    warnings: dict[str, str] = field(default_factory=dict)
    #: Where the straight line to the deadline begins: (instant, share done).
    anchor: tuple[float, float] | None = None
    #: Where the measurement of usage began: (instant, CPU seconds).
    window: tuple[float, float] | None = None

    def fold(self, message: Message) -> None:
        """Take in one message; those about other jobs must not be given."""
        change = _CHANGES.get(type(message))
        if change is not None:
            change(self, message)

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "failed")

    @property
    def done_frac(self) -> float | None:
        """Share of the steps that is done, of those declared or expected; None before any were declared."""
        total_steps = self.steps_expected or self.steps_total or self.spec.work_steps
        return min(1.0, self.steps_done / total_steps) if total_steps else None

    @property
    def deadline_at(self) -> float | None:
        return None if self.spec.deadline_s is None else self.submitted_at + self.spec.deadline_s

    def line_frac(self, at: float) -> float | None:
        """Where the straight line from the first step, or from the last change of deadline, is at `at`."""
        if self.anchor is None or self.deadline_at is None:
            return None
        from_at, from_frac = self.anchor
        if self.deadline_at <= from_at:
            return 1.0
        passed_frac = min(1.0, max(0.0, (at - from_at) / (self.deadline_at - from_at)))
        return from_frac + (1.0 - from_frac) * passed_frac

    def reset_line(self, at: float) -> None:
        self.anchor = (at, self.done_frac or 0.0) if self.anchor is not None else None


def picture_of(event: JobSubmitted) -> Picture:
    """The picture of a job that was just submitted."""
    return Picture(spec=event.spec, submitted_at=event.at, steps_total=event.spec.work_steps)


def _started(picture: Picture, event: JobStarted) -> None:
    picture.status = "running"
    _hold(picture, event.granted)


def _progressed(picture: Picture, event: ProgressReported) -> None:
    picture.steps_done = event.steps_done
    picture.steps_total = event.steps_total or picture.steps_total
    picture.unit_at = event.unit_at
    picture.landed = event.landed
    if event.steps_total is not None or event.steps_done > 0:
        picture.warnings.pop("no-progress", None)
    _measure_usage(picture, event)
    if picture.anchor is None and event.steps_done > 0 and picture.done_frac is not None:
        picture.anchor = (event.unit_at, picture.done_frac)


def _measure_usage(picture: Picture, event: ProgressReported) -> None:
    picture.used_core_s = event.used_core_s
    if picture.window is None:
        picture.window = (event.at, event.used_core_s)
        return
    from_at, from_core_s = picture.window
    if event.at - from_at >= USAGE_WINDOW_S:
        picture.usage_cores = max(0.0, event.used_core_s - from_core_s) / (event.at - from_at)
        picture.window = (event.at, event.used_core_s)


def _granted(picture: Picture, event: GrantApplied | GrantFailed) -> None:
    _hold(picture, event.granted)


def _spec_changed(picture: Picture, event: SpecChanged) -> None:
    picture.spec = event.spec
    picture.reset_line(event.at)


def _resumed(picture: Picture, event: SteeringResumed) -> None:
    picture.window = None  # what was used meanwhile is not the usage of any second
    _hold(picture, event.granted.get(picture.spec.id, {}))


def _asked(picture: Picture, command: LaunchJob | ResizeJob) -> None:
    picture.reason = command.reason


def _stopping(picture: Picture, command: StopJob) -> None:
    picture.status = "stopping"
    picture.cause = command.cause


def _warned(picture: Picture, command: WarnUser) -> None:
    if command.reason.code == "feasible":
        picture.warnings.pop("infeasible", None)
    else:
        picture.warnings[command.reason.code] = command.reason.text


def _rejected(picture: Picture, command: RejectJob) -> None:
    picture.status, picture.cause = "failed", command.reason.text


def _finished(picture: Picture, _: JobFinished) -> None:
    picture.status = "finished"
    picture.granted_cores = 0.0


def _failed(picture: Picture, event: JobFailed) -> None:
    picture.status = "failed"
    picture.cause = picture.cause or event.cause
    picture.granted_cores = 0.0


def _hold(picture: Picture, grant: Allocation) -> None:
    picture.granted_cores = total(grant.values()).cores
    picture.n_workers = n_workers_of(picture.spec, grant)


def n_workers_of(spec: JobSpec, grant: Allocation) -> int:
    """How many workers `grant` is; 0 for a job that is not made of them."""
    return shape_of(spec, grant, {}).n_workers if spec.worker is not None and grant else 0


_CHANGES: dict[type, Callable[[Picture, Any], None]] = {
    JobStarted: _started,
    ProgressReported: _progressed,
    GrantApplied: _granted,
    GrantFailed: _granted,
    SpecChanged: _spec_changed,
    SteeringResumed: _resumed,
    LaunchJob: _asked,
    ResizeJob: _asked,
    StopJob: _stopping,
    WarnUser: _warned,
    RejectJob: _rejected,
    JobFinished: _finished,
    JobFailed: _failed,
}
