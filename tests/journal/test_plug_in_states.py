"""What every controller and model remembers can be kept in a snapshot."""

from collections import deque
from itertools import count

from punctual import registry
from punctual.core.commands import LaunchJob, RequestPlan, ResizeJob
from punctual.core.events import (
    Event,
    GrantApplied,
    JobStarted,
    JobSubmitted,
    LossReported,
    NodeJoined,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal, SeenLoss
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.daemon.planner import InlinePlanner
from punctual.journal.state import dumps, loads

PLANNER = InlinePlanner(registry.load("policies", "proportional")())
N_TICKS = 30


def new_scheduler() -> Scheduler:
    return Scheduler(
        lambda name: registry.load("controllers", name)(),
        models=lambda name: registry.load("models", name)(),
        convergences=lambda name: registry.load("convergence", name)(),
    )


def specs() -> list[JobSpec]:
    """One job for each pair of a controller and a model; every third trains to a loss."""
    number = count()
    return [
        JobSpec(
            id=JobId(f"job-{i_job}"), ceiling=Resources(4.0), worker=None if model is None else Resources(1.0),
            deadline_s=1000.0, controller=controller, model=model, work_steps=1000,
            goal=None if i_job % 3 else LossGoal(target=0.01),
        )
        for controller in registry.names("controllers")
        for model in [None, *registry.names("models")]
        for i_job in [next(number)]
    ]  # fmt: skip


def tell(scheduler: Scheduler, *events: Event) -> None:
    """Tells `events` and the answers to all that follows from them; every command is obeyed at once."""
    coming = deque(events)
    while coming:
        for command in scheduler.handle(coming.popleft()):
            match command:
                case LaunchJob(at=at, job=job, request=request, grant=grant):
                    coming.append(JobStarted(at=at, job=job, request=request, granted=grant, can_pace=True))
                case ResizeJob(at=at, job=job, request=request, grant=grant):
                    coming.append(GrantApplied(at=at, job=job, request=request, granted=grant))
                case RequestPlan(at=at):
                    PLANNER.request(scheduler.snapshot(at), coming.append)


def tick(scheduler: Scheduler, spec: JobSpec, i_tick: int) -> None:
    at = float(i_tick)
    if spec.goal is not None:
        tell(scheduler, LossReported(at=at, job=spec.id, losses=(SeenLoss(2.0 * i_tick, 1.0 / i_tick),)))
    report = ProgressReported(
        at=at, job=spec.id, steps_done=2.0 * i_tick, steps_total=1000.0, unit_at=at - 0.1, used_core_s=0.9 * i_tick
    )
    tell(scheduler, report, TimerFired(at=at, timer=Timer("tick", spec.id)))


def test_a_scheduler_with_every_plug_in_goes_on_from_a_snapshot_as_it_would_have() -> None:
    scheduler, jobs = new_scheduler(), specs()
    tell(scheduler, NodeJoined(at=0.0, node=NodeId("n"), capacity=Resources(1000.0)))
    tell(scheduler, *(JobSubmitted(at=0.0, spec=spec) for spec in jobs))
    for i_tick in range(1, N_TICKS):
        for spec in jobs:
            tick(scheduler, spec, i_tick)
    assert {scheduler.job(spec.id).status for spec in jobs} == {"running"}
    restored = new_scheduler()
    restored.load(loads(dumps(scheduler.dump())))
    for spec in jobs:
        for each in (scheduler, restored):
            tick(each, spec, N_TICKS)
    for spec in jobs:
        assert restored.demand(spec.id) == scheduler.demand(spec.id)
    assert restored.snapshot(N_TICKS).jobs == scheduler.snapshot(N_TICKS).jobs
