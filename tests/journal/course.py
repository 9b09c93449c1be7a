"""What a run writes into its journal, made up."""

from collections.abc import Iterator

from punctual.core.commands import LaunchJob, RequestPlan, ResizeJob
from punctual.core.events import (
    GrantApplied,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    PlanProposed,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources

JOB = JobId("train-3f2a")
NODE = NodeId("local")
TICK_S = 0.75
TEXT = "0.25 cores bring the job to its deadline (59.3 core-s of work in 238.3 s)"


def holding(cores: float) -> Allocation:
    return {NODE: Resources(cores)}


def submitted(at: float = 1000.0, deadline_s: float = 86_400.0) -> list[Message]:
    return [
        JobSubmitted(at=at, spec=JobSpec(id=JOB, ceiling=Resources(4.0), deadline_s=deadline_s)),
        LaunchJob(
            at=at, job=JOB, request=1, spec=JobSpec(id=JOB, ceiling=Resources(4.0)), grant=holding(1.0),
            reason=Reason("started", TEXT, {"finish_s": 80_000.0}),
        ),
        JobStarted(at=at + 0.1, job=JOB, request=1, granted=holding(1.0)),
    ]  # fmt: skip


def report(at: float, steps_done: float, *, landed: bool = False) -> ProgressReported:
    used_core_s = steps_done * 0.61234567
    return ProgressReported(
        at=at, job=JOB, steps_done=steps_done, steps_total=400_000.0, unit_at=at - 0.0312345, used_core_s=used_core_s,
        in_flight_core_s=0.0178123, landed=landed,
    )  # fmt: skip


def tick(at: float, steps_done: float) -> list[Message]:
    timer = Timer("tick", JOB)
    return [report(at, steps_done), TimerFired(at=at, timer=timer)]


def resize(at: float, request: int, cores: float, *, bound: float | None = None) -> list[Message]:
    reason = Reason("scaled", TEXT, {"finish_s": 80_000.0 + request, "work_core_s": 59.3123})
    plan = Plan(
        revision=request, grants={JOB: holding(cores)}, reasons={JOB: reason}, bound=bound,
        objective=None if bound is None else bound - 1.0,
    )  # fmt: skip
    return [
        RequestPlan(at=at, revision=request),
        PlanProposed(at=at, revision=request, plan=plan),
        ResizeJob(at=at, job=JOB, request=request, grant=holding(cores), reason=reason),
        GrantApplied(at=at + 0.001, job=JOB, request=request, granted=holding(cores)),
    ]


def finished(at: float, steps_done: float) -> list[Message]:
    return [report(at, steps_done, landed=True), JobFinished(at=at, job=JOB, landed_at=at - 0.1)]


def just_running(n_ticks: int, n_ticks_a_resize: int = 80, **job: float) -> Iterator[list[Message]]:
    """A job that just runs, and gets another grant now and then: the messages of each instant."""
    yield submitted(**job)
    for i_tick in range(1, n_ticks + 1):
        at = 1000.0 + i_tick * TICK_S * 1.0000137
        yield tick(at, 3.0 * i_tick)
        if i_tick % n_ticks_a_resize == 0:
            i_resize = i_tick // n_ticks_a_resize
            yield resize(at, 1 + i_resize, 1.0 + i_resize % 5 / 7)
