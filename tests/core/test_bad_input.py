"""Nothing that users or plug-ins do makes the scheduler raise, or costs another job anything."""

from math import inf, nan
from typing import Any

import pytest
from tests.core.desk import HERE, A, B, Desk, Scripted, cores, none, only

from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, WarnUser
from punctual.core.control import CoreWork, Demand, Reading
from punctual.core.errors import InvalidSpec, InvariantBroken
from punctual.core.events import JobSubmitted, LossReported, NodeJoined, PlanProposed, SpecChanged
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal, SeenLoss, StepsLeft
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.speed import SeenRate, Shape


class Faulty(Scripted):
    """A controller that begins to answer `answer` once that is set; an exception is raised."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Any = None

    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        if self.answer is None:
            return super().step(spec, state, reading)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: tuple[Demand, None] = self.answer
        return answer


class Refusing(Scripted):
    def init(self, spec: JobSpec) -> None:
        raise InvalidSpec("`worker` must be given", "none", f"job '{spec.id}'", "Say what a worker holds.")


class Broken:
    """A performance model and a convergence model that fail with the first thing they see."""

    def __init__(self, rate_sps: float | None = None) -> None:
        self.rate = rate_sps

    def init(self, spec: JobSpec | None = None) -> int:
        return 0

    def update(self, state: int, seen: SeenRate | SeenLoss) -> int:
        if self.rate is None:
            raise ArithmeticError("no fit")
        return 1

    def rate_sps(self, state: int, shape: Shape) -> float:
        return self.rate or 0.0 if state else 0.0

    def std_sps(self, state: int, shape: Shape) -> float:
        return 0.0

    def steps_left(self, state: int, goal: LossGoal) -> StepsLeft:
        return StepsLeft(1.0, 1.0, 1.0, "ok")


def desk_of(**plug_ins: Any) -> Desk:
    desk = Desk()
    desk.controller = Faulty()
    controllers = {"scripted": desk.controller, "refusing": Refusing()}
    desk.scheduler = Scheduler(controllers, **plug_ins)
    desk.tell(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
    return desk


def spec(**fields: Any) -> JobSpec:
    given = {"id": A, "ceiling": Resources(cores=2), "deadline_s": 100.0, "controller": "scripted", **fields}
    return JobSpec(**given)


def warning(commands: list[Command]) -> Reason:
    return only(commands, WarnUser).reason


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"controller": "scirpted"}, "'scirpted' for job 'a'. Known are: refusing, scripted."),
        ({"model": "amdhal"}, "one of the models there are: got 'amdhal'"),
        ({"goal": LossGoal(target=0.1), "convergence": "none-such"}, "'none-such' for job 'a'"),
        ({"controller": "refusing"}, "`worker` must be given: got none for job 'a'. Say what a worker holds."),
    ],
)
def test_a_job_that_names_what_is_not_there_is_rejected(fields: dict[str, Any], words: str) -> None:
    desk = desk_of()
    desk.run(B, 1.0)
    commands = desk.tell(JobSubmitted(at=1.0, spec=spec(**fields)))
    assert words in only(commands, RejectJob).reason.text
    assert desk.scheduler.job(A).status == "turned away"
    assert [view.id for view in desk.scheduler.snapshot(1.0).jobs] == [B]


def test_plug_ins_are_made_when_a_job_needs_them() -> None:
    made: list[str] = []

    def make(name: str) -> Scripted:
        made.append(name)
        if name == "unheard-of":
            raise ImportError("no such file")
        return Scripted()

    desk = Desk()
    desk.scheduler = Scheduler(make)
    assert made == []
    desk.submit(A)
    desk.submit(B)
    assert made == ["scripted"]
    commands = desk.tell(
        JobSubmitted(at=0.0, spec=JobSpec(id=JobId("c"), ceiling=Resources(1), controller="unheard-of"))
    )
    assert "no such file" in only(commands, RejectJob).reason.text


@pytest.mark.parametrize(
    "answer",
    [
        ZeroDivisionError("by nothing"),
        None,
        "more",
        (None, None),
        *(
            (Demand(resources=Resources(1), next_tick_s=next_tick_s, reason=Reason("r", "r")), None)
            for next_tick_s in (nan, inf, 0.0, -1.0)
        ),
        (
            Demand(
                resources=Resources(1),
                next_tick_s=1.0,
                reason=Reason("r", "r"),
                work=CoreWork(core_s=nan, std_core_s=0.0, usable_cores=1.0, due_s=1.0),
            ),
            None,
        ),
        (Demand(resources=1, next_tick_s=1.0, reason=Reason("r", "r")), None),  # type: ignore[arg-type]
    ],
)
def test_a_controller_that_fails_costs_its_job_the_steering_and_no_more(answer: Any) -> None:
    desk = desk_of()
    desk.run(A, 1.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    desk.controller.answer = answer if answer is not None else ()  # type: ignore[attr-defined]
    reason = warning(desk.tick(A, at=2.0))
    assert (reason.code, desk.scheduler.demand(A).resources) == ("controller-failed", Resources(cores=2))
    commands = desk.tick(A, at=3.0)
    assert none(commands, WarnUser), "it is told once"
    assert desk.scheduler.demand(A).next_tick_s == 1.0, "its progress is still looked at"


def test_no_job_gets_more_than_its_ceiling_for_what_its_controller_wants() -> None:
    desk = desk_of()
    desk.run(A, 1.0)
    desk.controller.wanted = 50.0
    assert none(desk.tick(A, at=1.0), WarnUser)
    assert desk.scheduler.demand(A).resources == Resources(cores=2)


@pytest.mark.parametrize("model", [Broken(), Broken(nan), Broken(-1.0)])
def test_a_model_that_fails_is_dropped(model: Broken) -> None:
    desk = desk_of(models={"broken": model})
    desk.tell(JobSubmitted(at=0.0, spec=spec(model="broken")))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))
    desk.progress(A, at=1.0, steps=1)
    desk.progress(A, at=3.0, steps=2)
    assert desk.scheduler.job(A).curve is None
    assert none(desk.tick(A, at=4.0), WarnUser)


def test_a_model_that_fails_is_told_once() -> None:
    desk = desk_of(convergences={"broken": Broken()})
    desk.tell(JobSubmitted(at=0.0, spec=spec(goal=LossGoal(target=0.1), convergence="broken")))
    losses = LossReported(at=1.0, job=A, losses=(SeenLoss(1.0, 2.0),))
    assert warning(desk.tell(losses)).code == "model-failed"
    assert desk.tell(losses) == []


def test_a_plug_in_that_fails_breaks_tests(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.step = lambda *_: None  # type: ignore[assignment, method-assign]
    with pytest.raises(InvariantBroken, match="controller 'scripted' failed"):
        desk.tick(A, at=1.0)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(revision=7, grants={A: cores(1.0)}),
        Plan(revision=1, grants={A: {HERE: 1.0}}),  # type: ignore[dict-item]
        Plan(revision=1, grants=None),  # type: ignore[arg-type]
    ],
)
def test_a_plan_that_is_none_is_refused(plan: Plan) -> None:
    desk = desk_of()
    desk.submit(A)
    reason = warning(desk.tell(PlanProposed(at=1.0, plan=plan, revision=1)))
    assert reason.code == "plan-refused"
    assert only(desk.tick_plan(at=2.0), RequestPlan).revision == 2


def test_plug_ins_stay_those_of_the_submission() -> None:
    desk = desk_of()
    desk.run(A, 1.0)
    desk.tell(SpecChanged(at=1.0, spec=spec(controller="unheard-of", deadline_s=50.0)))
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    assert desk.scheduler.job(A).spec == spec(deadline_s=50.0)
    assert only(desk.plan({A: cores(0.5)}, at=2.0), ResizeJob).grant == cores(0.5)
