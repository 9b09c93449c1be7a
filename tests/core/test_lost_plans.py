"""Plans that do not come, or come late."""

from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.commands import Command, LaunchJob, RequestPlan, SetTimer, WarnUser
from punctual.core.events import PlanProposed, TimerFired
from punctual.core.ids import Timer
from punctual.core.plan import Plan
from punctual.core.scheduler import Periods, Scheduler

LOST = Timer("plan-answer")


def desk() -> Desk:
    desk = Desk()
    node = desk.joined
    desk.scheduler = Scheduler({"scripted": desk.controller}, periods=Periods(plan_s=5.0))
    desk.tell(node)
    return desk


def proposed(desk: Desk, revision: int, *, at: float, plan: Plan | None) -> list[Command]:
    return desk.tell(PlanProposed(at=at, plan=plan, revision=revision, cause="" if plan else "it crashed"))


def give(revision: int, amount: float) -> Plan:
    return Plan(revision=revision, grants={A: cores(amount)})


def test_a_plan_that_does_not_come_is_asked_for_again_and_told_once() -> None:
    here = desk()
    timers = [command for command in here.submit(A, at=1.0) if isinstance(command, SetTimer)]
    assert [timer.fire_at for timer in timers if timer.timer == LOST] == [6.0]
    commands = here.tell(TimerFired(at=6.0, timer=LOST))
    assert only(commands, WarnUser).reason.code == "plan-lost"
    assert only(commands, RequestPlan).revision == 2
    commands = here.tell(TimerFired(at=11.0, timer=LOST))
    assert none(commands, WarnUser)
    assert only(commands, RequestPlan).revision == 3
    assert only(proposed(here, 3, at=12.0, plan=give(3, 1.0)), LaunchJob).grant == cores(1.0)


def test_a_timer_of_an_answered_request_means_nothing() -> None:
    here = desk()
    here.submit(A, at=1.0)
    proposed(here, 1, at=2.0, plan=give(1, 1.0))
    assert none(here.tell(TimerFired(at=6.0, timer=LOST)), WarnUser)
    here.submit(B, at=6.0)
    assert here.tell(TimerFired(at=7.0, timer=LOST)) == [], "the plan in flight has its own time"


def test_a_late_plan_is_used_and_does_not_end_the_wait_for_a_newer_one() -> None:
    here = desk()
    here.submit(A)
    here.tell(TimerFired(at=5.0, timer=LOST))
    commands = proposed(here, 1, at=6.0, plan=give(1, 1.0))
    assert only(commands, LaunchJob).grant == cores(1.0)
    assert none(commands, RequestPlan), "number 2 is in flight"
    assert only(proposed(here, 2, at=7.0, plan=give(2, 0.5)), RequestPlan).revision == 3


def test_what_a_late_plan_leaves_no_room_for_is_dropped_without_a_word() -> None:
    here = desk()
    here.submit(A)
    here.tell(TimerFired(at=5.0, timer=LOST))
    here.submit(B, at=5.5)
    proposed(here, 1, at=6.0, plan=give(1, 2.0))
    only_b = Plan(revision=2, grants={B: cores(2.0)}, keeps_others=True)
    commands = proposed(here, 2, at=7.0, plan=only_b)
    assert none(commands, WarnUser)
    assert only(commands, RequestPlan).revision == 3


def test_a_plan_older_than_the_one_in_force_is_dropped() -> None:
    here = desk()
    here.submit(A)
    here.tell(TimerFired(at=5.0, timer=LOST))
    proposed(here, 2, at=6.0, plan=give(2, 1.0))
    assert proposed(here, 1, at=7.0, plan=give(1, 0.5)) == []
    assert here.scheduler.job(A).planned == cores(1.0)


def test_a_late_failure_means_nothing() -> None:
    here = desk()
    here.submit(A)
    here.tell(TimerFired(at=5.0, timer=LOST))
    assert proposed(here, 1, at=6.0, plan=None) == []
    assert only(proposed(here, 2, at=7.0, plan=None), WarnUser).reason.code == "plan-refused"
