"""Demands that change soon after one another get one plan."""

from dataclasses import replace

from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.commands import Command, RequestPlan, SetTimer
from punctual.core.events import PlanProposed, SpecChanged, TimerFired
from punctual.core.ids import Timer
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler

GATHERED = Timer("demands")


def desk_with_two_jobs() -> Desk:
    """Return one whose last plan was requested at 1.0 s and has come."""
    desk = Desk()
    desk.scheduler = Scheduler({"scripted": desk.controller}, strict=True, periods=Periods(gather_s=0.1))
    desk.tell(desk.joined)
    desk.run(A, 1.0)
    desk.run(B, 0.5)
    demand(desk, 0.7, of=A, at=1.0)
    answer(desk, at=1.0)
    return desk


def demand(desk: Desk, amount: float, *, of: str, at: float) -> list[Command]:
    desk.controller.wanted = amount
    return desk.tick(of, at=at)  # type: ignore[arg-type]


def answer(desk: Desk, *, at: float) -> list[Command]:
    revision = desk.scheduler.snapshot(at).revision
    plan = Plan(revision=revision, grants={A: cores(1.0)}, keeps_others=True)
    return desk.tell(PlanProposed(at=at, plan=plan, revision=revision))


def test_demands_that_change_soon_after_a_plan_get_one_more() -> None:
    desk = desk_with_two_jobs()
    commands = demand(desk, 0.6, of=B, at=1.02)
    timer = [each for each in commands if isinstance(each, SetTimer) and each.timer == GATHERED]
    assert [round(each.fire_at, 9) for each in timer] == [1.1]
    assert none(commands, RequestPlan)
    later = demand(desk, 0.8, of=A, at=1.05)
    assert none(later, RequestPlan)
    assert GATHERED not in [each.timer for each in later if isinstance(each, SetTimer)], "it is set already"
    only(desk.tell(TimerFired(at=1.1, timer=GATHERED)), RequestPlan)
    answer(desk, at=1.1)
    assert none(desk.tell(TimerFired(at=1.1, timer=GATHERED)), RequestPlan), "all is known"


def test_a_demand_that_changes_later_gets_its_plan_at_once() -> None:
    desk = desk_with_two_jobs()
    only(demand(desk, 0.6, of=B, at=1.1), RequestPlan)


def test_other_news_waits_for_nothing_and_takes_the_demands_along() -> None:
    desk = desk_with_two_jobs()
    demand(desk, 0.6, of=B, at=1.02)
    only(desk.submit("c", at=1.03), RequestPlan)  # type: ignore[arg-type]
    answer(desk, at=1.04)
    assert none(desk.tell(TimerFired(at=1.1, timer=GATHERED)), RequestPlan)


def test_what_a_user_has_changed_waits_for_nothing() -> None:
    desk = desk_with_two_jobs()
    spec = desk.scheduler.job(A).spec
    desk.tell(SpecChanged(at=1.02, spec=replace(spec, floor=Resources(cores=0.3))))
    only(demand(desk, 0.7, of=A, at=1.02), RequestPlan)


def test_a_demand_that_waits_for_its_plan_gets_it_after_a_restart() -> None:
    desk = desk_with_two_jobs()
    demand(desk, 0.6, of=B, at=1.02)
    restored = Scheduler({"scripted": desk.controller}, strict=True, periods=Periods(gather_s=0.1))
    restored.load(desk.scheduler.dump())
    only(restored.handle(TimerFired(at=1.1, timer=GATHERED)), RequestPlan)
