"""Messages about jobs on nodes of a small cluster, in a line each."""

from collections.abc import Iterable

from punctual.core.commands import LaunchJob, RejectJob, StopJob
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeLost,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.history.cluster import ClusterHistory, JobRecord
from punctual.history.decision_trace import DecisionStep, decision_steps
from punctual.history.job import JobHistory
from punctual.history.level import LevelCourse

#: What a test says a job holds: devices by node; each device comes with two cores.
Held = dict[str, int]


def record_of(messages: Iterable[Message], *, details: bool = False, n_points: int = 1000) -> ClusterHistory:
    record = ClusterHistory(details=details, n_points=n_points)
    for message in messages:
        record.add(message)
    return record


def chain(messages: Iterable[Message], job: JobId, *, every: bool = False) -> list[DecisionStep]:
    """Return all steps of the decision trace of `job` after `messages`."""
    history = JobHistory(job)
    for message in messages:
        history.take(message)
    return decision_steps(history, every=every)


def job_of(messages: Iterable[Message], job: str = "a") -> JobRecord:
    return record_of(messages).job(JobId(job))


def area(course: LevelCourse) -> float:
    """The integral of the points."""
    ends = [*course.at, course.until_at][1:]
    return sum(mean * (end - at) for at, end, mean in zip(course.at, ends, course.mean, strict=True))


def on(held: Held) -> Allocation:
    return {NodeId(node): Resources(cores=2.0 * n, gpus=n) for node, n in held.items()}


def spec_of(
    job: str = "a", *, deadline_s: float | None = None, weight: float = 1.0, work_steps: float | None = None
) -> JobSpec:
    return JobSpec(
        id=JobId(job), ceiling=Resources(cores=16.0, gpus=8), deadline_s=deadline_s, weight=weight,
        work_steps=work_steps,
    )  # fmt: skip


def joined(at: float, node: str = "n", gpus: int = 8) -> Message:
    return NodeJoined(at=at, node=NodeId(node), capacity=Resources(cores=2.0 * gpus, gpus=gpus))


def node_lost(at: float, node: str = "n") -> Message:
    return NodeLost(at=at, node=NodeId(node))


def submitted(at: float, job: str = "a", *, deadline_s: float | None = None, weight: float = 1.0) -> Message:
    return JobSubmitted(at=at, spec=spec_of(job, deadline_s=deadline_s, weight=weight, work_steps=100))


def redeclared(at: float, job: str = "a", *, deadline_s: float | None = None, weight: float = 1.0) -> Message:
    return SpecChanged(at=at, spec=spec_of(job, deadline_s=deadline_s, weight=weight))


def launched(at: float, job: str = "a", request: int = 1) -> Message:
    return LaunchJob(at=at, job=JobId(job), request=request, spec=spec_of(job), grant={}, reason=Reason("r", "r"))


def started(at: float, held: Held, job: str = "a", request: int = 1) -> Message:
    return JobStarted(at=at, job=JobId(job), request=request, granted=on(held))


def applied(at: float, held: Held, job: str = "a", request: int = 2) -> Message:
    return GrantApplied(at=at, job=JobId(job), request=request, granted=on(held))


def grant_failed(at: float, held: Held, job: str = "a", request: int = 2) -> Message:
    return GrantFailed(at=at, job=JobId(job), request=request, granted=on(held), cause="busy")


def reported(at: float, steps: float, job: str = "a", *, landed: bool = False) -> Message:
    return ProgressReported(
        at=at, job=JobId(job), steps_done=steps, steps_total=100, unit_at=at, used_core_s=0.0, landed=landed
    )


def finished(at: float, job: str = "a", landed_at: float | None = None) -> Message:
    return JobFinished(at=at, job=JobId(job), landed_at=at if landed_at is None else landed_at)


def failed(at: float, job: str = "a", *, retryable: bool = False) -> Message:
    return JobFailed(at=at, job=JobId(job), cause="lost", retryable=retryable)


def stopped(at: float, job: str = "a") -> Message:
    return JobFailed(at=at, job=JobId(job), cause="the user", is_stopped=True)


def resumed(at: float, **held: Held) -> Message:
    return SteeringResumed(at=at, lost_at=at, granted={JobId(job): on(nodes) for job, nodes in held.items()})


def stop_requested(at: float, job: str = "a") -> Message:
    return StopRequested(at=at, job=JobId(job), cause="the user")


def stop_asked(at: float, job: str = "a") -> Message:
    return StopJob(at=at, job=JobId(job), cause="the user")


def rejected(at: float, job: str = "a", code: str = "too-large") -> Message:
    return RejectJob(at=at, job=JobId(job), reason=Reason(code, "for this reason"))
