"""What the scheduler shows a performance model, and what it shows a controller of a job made of workers."""

from math import inf
from typing import Any

import pytest
from tests.core.desk import only

from punctual.core.commands import Command, LaunchJob, ResizeJob
from punctual.core.control import Demand, PacingLine, PhaseProgress, Reading
from punctual.core.events import (
    GrantApplied,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    PhaseReported,
    PlanProposed,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.speed import SeenRate, Shape

A, HERE, THERE = JobId("a"), NodeId("here"), NodeId("there")
WORKER = Resources(cores=0.5)


class Noting:
    """A model whose state is what it saw."""

    def init(self, spec: JobSpec) -> tuple[SeenRate, ...]:
        return ()

    def update(self, state: tuple[SeenRate, ...], seen: SeenRate) -> tuple[SeenRate, ...]:
        return (*state, seen)

    def rate_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return state[-1].rate_sps if state else 0.0

    def std_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return 0.0 if state else inf


class Wanting:
    """A controller that demands so many workers, on a line or not, and keeps its readings."""

    def __init__(self) -> None:
        self.n_workers = 2
        self.pacing: PacingLine | None = None
        self.readings: list[Reading] = []

    def init(self, spec: JobSpec) -> None:
        return None

    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        self.readings.append(reading)
        reason = Reason("wanted", "so many")
        return Demand(resources=WORKER * self.n_workers, next_tick_s=1.0, reason=reason, pacing=self.pacing), None


class Office:
    """One job of workers that runs with two of them, and the answers that a kind world gives."""

    def __init__(self) -> None:
        self.controller = Wanting()
        self.scheduler = Scheduler({"wanting": self.controller}, models={"noting": Noting()}, strict=True)
        self.scheduler.handle(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
        spec = JobSpec(
            id=A,
            worker=WORKER,
            ceiling=WORKER * 4,
            floor=WORKER,
            deadline_s=100.0,
            controller="wanting",
            model="noting",
        )
        self.scheduler.handle(JobSubmitted(at=0.0, spec=spec))
        launch = only(self.plan(2, at=0.0), LaunchJob)
        self.scheduler.handle(JobStarted(at=0.0, job=A, request=launch.request, granted=launch.grant, can_pace=True))

    def plan(self, n_workers: int, *, at: float) -> list[Command]:
        revision = self.scheduler.snapshot(at).revision
        plan = Plan(revision=revision, grants={A: {HERE: WORKER * n_workers}})
        return self.scheduler.handle(PlanProposed(at=at, plan=plan, revision=plan.revision))

    def tick(self, *, at: float) -> list[Command]:
        return self.scheduler.handle(TimerFired(at=at, timer=Timer("tick", JobId("a"))))

    def applied(self, resize: Command, *, at: float) -> None:
        assert isinstance(resize, ResizeJob)
        self.scheduler.handle(GrantApplied(at=at, job=A, request=resize.request, granted=resize.grant))

    def report(self, at: float, steps: float, *, unit_at: float | None = None, **changes: Any) -> None:
        unit_at = at if unit_at is None else unit_at
        self.scheduler.handle(
            ProgressReported(
                at=at, job=A, steps_done=steps, steps_total=100, unit_at=unit_at, used_core_s=0.0, **changes
            )
        )

    def seen(self) -> tuple[SeenRate, ...]:
        curve = self.scheduler.job(A).curve
        assert curve is not None
        seen: tuple[SeenRate, ...] = curve.state
        return seen


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_speed_is_that_between_two_units(office: Office) -> None:
    """Ten seconds a step, reported each second: what is under way counts when it is done."""
    for at in range(1, 42):
        office.report(at, at // 10, unit_at=at // 10 * 10)
    seen = office.seen()
    assert [one.rate_sps for one in seen] == pytest.approx([0.1] * len(seen))
    assert len(seen) >= 3
    assert seen[0].shape == Shape(n_workers=2, cores=1.0)


def test_short_times_are_put_together(office: Office) -> None:
    for i in range(1, 32):
        office.report(0.1 * i, i)
    assert [one.over_s for one in office.seen()] == pytest.approx([1.0] * 3)


def test_a_phase_is_not_slow_training(office: Office) -> None:
    office.report(10.0, 10)
    phase = PhaseProgress(name="evaluate", units_planned=4, units_done=1, units_measured=1, wall_s=5.0)
    office.scheduler.handle(PhaseReported(at=16.0, job=A, phases=(phase,)))
    office.report(16.0, 11)
    assert not office.seen()
    office.report(26.0, 21)
    assert [one.rate_sps for one in office.seen()] == [1.0]


def test_a_paced_job_shows_nothing_of_its_speed(office: Office) -> None:
    office.controller.pacing = PacingLine(end_s=90.0, end_work=100, s_per_step=2.0)
    office.report(10.0, 10)
    resize = only(office.tick(at=10.0), ResizeJob)
    office.applied(resize, at=10.0)
    for at in (12.0, 14.0, 16.0):
        office.report(at, at / 2)
    assert not office.seen()


def test_steps_done_before_and_after_pacing_begins_are_no_speed(office: Office) -> None:
    office.report(10.0, 10)
    office.controller.pacing = PacingLine(end_s=90.0, end_work=100, s_per_step=2.0)
    office.applied(only(office.tick(at=10.5), ResizeJob), at=10.5)
    office.report(14.0, 12)
    assert not office.seen()


def test_a_new_pacing_line_is_no_new_grant(office: Office) -> None:
    """Policies let a job rest that was changed a moment ago; a line comes every few seconds."""
    office.report(10.0, 10)
    office.controller.pacing = PacingLine(end_s=90.0, end_work=100, s_per_step=2.0)
    office.applied(only(office.tick(at=10.5), ResizeJob), at=10.5)
    assert office.scheduler.snapshot(11.0).holding[0].granted_at == 0.0
    office.applied(only(office.plan(4, at=12.0), ResizeJob), at=12.5)
    assert office.scheduler.snapshot(13.0).holding[0].granted_at == 12.5


def test_a_change_in_flight_hides_whose_steps_they_are(office: Office) -> None:
    office.report(10.0, 10)
    office.controller.n_workers = 4
    office.tick(at=10.0)
    resize = only(office.plan(4, at=10.0), ResizeJob)
    office.report(12.0, 13)
    office.report(14.0, 14)
    assert not office.seen()
    office.applied(resize, at=15.0)
    for at in (15.5, 16.5, 17.5):
        office.report(at, 2 * at)
    assert office.seen() == (SeenRate(shape=Shape(n_workers=4, cores=2.0), rate_sps=2.0, over_s=1.0),) * 2


def test_a_controller_sees_the_shape_and_the_curve(office: Office) -> None:
    for at in (1.0, 11.0):
        office.report(at, at)
    office.tick(at=11.0)
    reading = office.controller.readings[-1]
    assert reading.shape == Shape(n_workers=2, cores=1.0)
    assert reading.curve is not None
    assert reading.curve.rate_sps(Shape(n_workers=2, cores=1.0)) == 1.0


def test_the_ceiling_of_a_job_of_workers_counts_those_of_all_nodes(office: Office) -> None:
    office.tick(at=1.0)
    assert office.controller.readings[-1].ceiling == WORKER * 4
    spec = JobSpec(
        id=JobId("b"), worker=Resources(cores=1.5), ceiling=Resources(cores=6), controller="wanting", deadline_s=9.0
    )
    office.scheduler.handle(NodeJoined(at=2.0, node=THERE, capacity=Resources(cores=3.5)))
    office.scheduler.handle(JobSubmitted(at=2.0, spec=spec))
    office.plan(2, at=2.0)  # the one that was in flight
    revision = office.scheduler.snapshot(2.0).revision
    grants = {A: {HERE: WORKER}, spec.id: {THERE: Resources(cores=1.5)}}
    launch = office.scheduler.handle(
        PlanProposed(at=2.0, plan=Plan(revision=revision, grants=grants), revision=revision)
    )
    request = only(launch, LaunchJob).request
    office.scheduler.handle(JobStarted(at=2.0, job=spec.id, request=request, granted=grants[spec.id]))
    office.scheduler.handle(TimerFired(at=3.0, timer=Timer("tick", JobId("b"))))
    assert office.controller.readings[-1].ceiling == Resources(cores=4.5), "one worker here and two there"


def test_a_landed_job_of_workers_keeps_what_it_has(office: Office) -> None:
    office.controller.pacing = PacingLine(end_s=90.0, end_work=100, s_per_step=2.0)
    office.tick(at=1.0)
    office.report(50.0, 100, landed=True)
    office.tick(at=50.0)
    demand = office.scheduler.demand(A)
    assert demand is not None
    assert (demand.resources, demand.pacing, demand.reason.code) == (WORKER * 2, None, "landed")


@pytest.mark.parametrize(
    ("amount", "part", "n"),
    [
        (Resources(cores=0.9), Resources(cores=0.3), 3),
        (Resources(cores=8, gpus=3), Resources(cores=2, gpus=1), 3),
        (Resources(cores=4, gpus=3), Resources(cores=2, gpus=1), 2),
        (Resources(gpus=3), Resources(cores=1, gpus=1), 0),
    ],
)
def test_how_often_an_amount_fits(amount: Resources, part: Resources, n: int) -> None:
    assert amount.n_times(part) == n


def test_the_time_that_a_change_takes_is_no_part_of_a_speed(office: Office) -> None:
    """Reports come while the job is held up after the grant was applied, and when it goes on."""
    office.report(0.0, 0.0)
    office.report(4.0, 8.0)
    office.applied(only(office.plan(4, at=4.0), ResizeJob), at=4.0)
    office.report(4.3, 8.0, unit_at=4.0)
    office.report(4.6, 8.0)
    office.report(8.6, 24.0)
    assert office.seen()[-1].rate_sps == pytest.approx(4.0)
