"""Jobs that train to a loss: what is expected of their steps, and how sure it is said to be."""

from math import hypot, inf

import pytest
from tests.core.desk import HERE, A, Desk, Scripted, cores, only

from punctual.core.commands import LaunchJob, WarnUser
from punctual.core.control import Demand, Forecast, Reading
from punctual.core.events import JobSubmitted, LossReported, NodeJoined, ProgressReported
from punctual.core.job import JobSpec
from punctual.core.loss import LossCurve, LossGoal, SeenLoss, StepsLeft
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.estimators.convergence.inverse_power import InversePower


class Certain:
    """A convergence model that expects what the test says."""

    def __init__(self, left: StepsLeft) -> None:
        self.left = left

    def init(self) -> tuple[SeenLoss, ...]:
        return ()

    def update(self, state: tuple[SeenLoss, ...], seen: SeenLoss) -> tuple[SeenLoss, ...]:
        return (*state, seen)

    def steps_left(self, state: tuple[SeenLoss, ...], goal: LossGoal) -> StepsLeft:
        return self.left


class Forecasting(Scripted):
    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        demand, _ = super().step(spec, state, reading)
        forecast = Forecast(finish_s=reading.elapsed_s + 40.0, std_s=3.0, earliest_finish_s=20.0, feasible=True)
        return Demand(resources=demand.resources, next_tick_s=0.5, reason=demand.reason, forecast=forecast), None


class GoalDesk(Desk):
    """A desk whose job `a` trains to a loss."""

    def __init__(self, left: StepsLeft) -> None:
        super().__init__()
        self.controller = Forecasting()
        models = {"certain": Certain(left)}
        self.scheduler = Scheduler({"scripted": self.controller}, convergences=models, strict=True, periods=Periods())
        self.tell(NodeJoined(at=0.0, node=HERE, capacity=Resources(2)))
        goal = LossGoal(target=0.1)
        self.tell(JobSubmitted(at=0.0, spec=JobSpec(
            id=A, ceiling=Resources(2), deadline_s=100.0, controller="scripted", goal=goal, convergence="certain",
        )))  # fmt: skip
        self.started(only(self.plan({A: cores(2)}), LaunchJob))

    def done(self, steps: float, *, at: float = 10.0) -> None:
        self.tell(ProgressReported(at=at, job=A, steps_done=steps, steps_total=1000.0, unit_at=at, used_core_s=at))

    def losses(self, *seen: tuple[float, float]) -> None:
        self.tell(LossReported(at=10.0, job=A, losses=tuple(SeenLoss(*one) for one in seen)))

    def reading(self) -> Reading:
        self.tick(A, at=10.0)
        return self.controller.readings[-1]


def test_the_steps_until_the_goal_are_the_total() -> None:
    desk = GoalDesk(StepsLeft(300.0, 200.0, 500.0, "ok"))
    desk.done(105)
    desk.losses((90, 2.0), (100, 1.9))
    reading = desk.reading()
    assert reading.steps_total == 400.0
    assert reading.steps_total_std == pytest.approx(300 / 2.5632)


@pytest.mark.parametrize(
    "left",
    [
        StepsLeft(inf, 0.0, inf, "too-few-points"),
        StepsLeft(inf, 900.0, inf, "never"),
        StepsLeft(inf, 0.0, inf, "failed"),
        StepsLeft(9e9, 8e8, inf, "ok"),
    ],
)
def test_where_nothing_can_be_told_all_declared_steps_are_planned_for(left: StepsLeft) -> None:
    desk = GoalDesk(left)
    desk.done(105)
    desk.losses((100, 1.9))
    reading = desk.reading()
    assert (reading.steps_total, reading.steps_total_std) == (1000.0, 0.0)


def test_the_interval_ends_at_the_declared_steps() -> None:
    curve = LossCurve(Certain(StepsLeft(500.0, 100.0, inf, "ok")), LossGoal(target=0.1), ())
    after = curve.after([SeenLoss(600.0, 1.0)])
    assert after.steps_total(1000.0) == (1000.0, pytest.approx(300 / 2.5632))
    assert after.steps_total(None) == (1100.0, pytest.approx(900 / 2.5632))


def test_until_the_job_says_that_it_is_there_a_step_is_left() -> None:
    desk = GoalDesk(StepsLeft(0.0, 0.0, 0.0, "ok"))
    desk.losses((100, 0.05))
    desk.done(120)
    assert desk.reading().steps_total == 121.0


def test_without_a_report_there_is_nothing_to_tell() -> None:
    desk = GoalDesk(StepsLeft(300.0, 200.0, 500.0, "ok"))
    assert desk.reading().steps_total is None


def test_the_forecast_widens_with_what_is_not_known_of_the_steps() -> None:
    desk = GoalDesk(StepsLeft(300.0, 200.0, 500.0, "ok"))
    desk.done(100)
    desk.losses((100, 1.9))
    desk.reading()
    demand = desk.scheduler.demand(A)
    assert demand is not None
    assert demand.forecast is not None
    assert demand.forecast.std_s == pytest.approx(hypot(3.0, 40 / 300 * 300 / 2.5632))


def test_a_job_that_reports_no_loss_is_pointed_out_once() -> None:
    desk = GoalDesk(StepsLeft(inf, 0.0, inf, "too-few-points"))
    desk.done(5, at=70.0)
    commands = [*desk.tick(A, at=70.0), *desk.tick(A, at=71.0)]
    assert [one.reason.code for one in commands if isinstance(one, WarnUser)] == ["no-loss"]


def test_a_goal_comes_nearer_as_losses_fall() -> None:
    """With the real model: the loss is 1 / (1 + k/50), and reaches 0.1 after 450 steps."""
    curve = LossCurve(InversePower(), LossGoal(target=0.1), InversePower().init())
    stds = []
    for n in (100, 200, 400):
        curve = curve.after([SeenLoss(float(k), 1 / (1 + k / 50)) for k in range(n - 80, n, 5)])
        expected, std = curve.steps_total(5000.0)
        assert expected == pytest.approx(450, rel=0.3)
        stds.append(std)
    assert stds[0] > stds[-1] > 0
