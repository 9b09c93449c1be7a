"""What a policy is told of a live job: steps declared while it runs, what is left of it, and when that is news."""

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.commands import LaunchJob, RequestPlan, ResizeJob
from punctual.core.control import CoreWork
from punctual.core.events import JobFailed, ProgressReported, TimerFired
from punctual.core.ids import Timer


def work(core_s: float, due_s: float = 99.0) -> CoreWork:
    return CoreWork(core_s=core_s, std_core_s=0.1, usable_cores=2.0, due_s=due_s)


@pytest.fixture
def desk() -> Desk:
    """A job that holds one core."""
    desk = Desk()
    desk.run(A, 1.0)
    return desk


def test_steps_that_are_declared_while_the_job_runs_are_left_of_it(desk: Desk) -> None:
    assert desk.scheduler.job(A).remaining_steps(0.0) is None
    desk.progress(A, at=1.0, steps=30)
    view = desk.scheduler.job(A)
    assert (view.steps_total, view.steps_total_std) == (100, 0.0)
    assert view.remaining_steps(1.0) == 70


def test_what_a_process_had_done_is_shown_until_the_next_one_reports_how_far_it_is(desk: Desk) -> None:
    desk.progress(A, at=1.0, steps=30)
    assert desk.scheduler.job(A).steps_before == 0
    desk.tell(JobFailed(at=2.0, job=A, cause="a signal", retryable=True))
    assert (desk.scheduler.job(A).done_steps, desk.scheduler.job(A).steps_before) == (0, 30)
    desk.progress(A, at=5.0, steps=20)
    assert (desk.scheduler.job(A).done_steps, desk.scheduler.job(A).steps_before) == (20, 0)


def test_what_is_left_grows_less_with_what_the_job_holds(desk: Desk) -> None:
    desk.controller.work = work(50.0)
    desk.tick(A, at=1.0)
    assert desk.scheduler.job(A).core_s_left(11.0) == 40.0
    resize = only(desk.plan({A: cores(2.0)}, at=11.0), ResizeJob)
    desk.applied(resize, at=11.0)
    view = desk.scheduler.job(A)
    assert view.work == work(40.0)
    assert view.core_s_left(16.0) == 30.0
    assert view.core_s_left(1e6) == 0.0


def test_a_job_of_which_nothing_is_known_has_no_work_left(desk: Desk) -> None:
    desk.tick(A, at=1.0)
    assert desk.scheduler.job(A).core_s_left(1.0) is None


def test_the_mean_cost_is_what_is_known_where_the_controller_does_not_say(desk: Desk) -> None:
    """Of the steps: what the process used before it reported one was its start."""
    desk.progress(A, at=10.0, steps=5)
    desk.tick(A, at=10.0)
    assert desk.scheduler.job(A).core_s_left(10.0) is None
    desk.progress(A, at=20.0, steps=25)
    desk.tick(A, at=20.0)
    assert desk.scheduler.job(A).core_s_left(20.0) == pytest.approx(10.0 / 20 * 75)


def test_what_an_earlier_process_cost_is_no_part_of_what_this_one_costs(desk: Desk) -> None:
    """Its CPU time is counted from its start, and it goes on from a checkpoint."""
    desk.progress(A, at=10.0, steps=5)
    desk.progress(A, at=20.0, steps=25)
    desk.tell(JobFailed(at=20.0, job=A, cause="a signal", retryable=True))
    desk.started(only(desk.tell(TimerFired(at=22.0, timer=Timer("retry", A))), LaunchJob), at=22.0)
    for at, steps, used_core_s in ((24.0, 20, 2.0), (34.0, 30, 12.0)):
        report = ProgressReported(
            at=at, job=A, steps_done=steps, steps_total=100, unit_at=at, used_core_s=used_core_s, landed=False
        )
        desk.tell(report)
    desk.tick(A, at=34.0)
    assert desk.scheduler.job(A).core_s_left(34.0) == pytest.approx(70.0)


def test_another_plan_is_asked_for_when_the_work_left_departs_from_what_policies_know(desk: Desk) -> None:
    """The demand stays the same all the time."""
    desk.controller.work = work(50.0)
    only(desk.tick(A, at=1.0), RequestPlan)
    desk.plan({A: cores(1.0)}, at=1.0)
    desk.controller.work = work(40.5)
    assert none(desk.tick(A, at=11.0), RequestPlan), "as was to be expected"
    desk.controller.work = work(40.5, due_s=90.0)
    only(desk.tick(A, at=11.0), RequestPlan)
    desk.plan({A: cores(1.0)}, at=11.0)
    desk.controller.work = work(45.0, due_s=90.0)
    only(desk.tick(A, at=11.5), RequestPlan)


def test_a_job_that_holds_less_than_was_planned_departs_too(desk: Desk) -> None:
    """It did not get on as was shown to the policy, because it was granted nothing of it."""
    desk.run(B, 0.1)
    desk.controller.work = work(50.0)
    desk.tick(B, at=1.0)
    desk.plan({A: cores(1.0), B: cores(0.1)}, at=1.0)
    assert desk.scheduler.job(B).core_s_left(11.0) == pytest.approx(49.0)
