"""Another process steers from now on: what was under way is asked for again, and what was learned is still known."""

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.commands import Command, LaunchJob, RequestPlan, ResizeJob, SetTimer, StopJob
from punctual.core.events import JobFinished, JobStarted, JobSubmitted, PauseRequested, SteeringResumed, StopRequested
from punctual.core.ids import JobId, Timer
from punctual.core.job import Allocation
from punctual.core.status import StatusBoard
from punctual.history.job import JobHistory


def timers_of(commands: list[Command], job: JobId) -> list[Timer]:
    return [command.timer for command in commands if isinstance(command, SetTimer) and command.timer.job == job]


def resumed(at: float, lost_at: float, **held: Allocation) -> SteeringResumed:
    return SteeringResumed(at=at, lost_at=lost_at, granted={JobId(job): grant for job, grant in held.items()})


def test_a_job_that_runs_is_launched_again_and_brought_to_its_target(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.applied(only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob), at=1.0)
    commands = desk.tell(resumed(9.0, 5.0, a=cores(2.0)))
    only(commands, RequestPlan)
    again = only(commands, LaunchJob)
    assert again.grant == cores(0.5)
    resize = only(desk.tell(JobStarted(at=9.0, job=A, request=again.request, granted=cores(2.0))), ResizeJob)
    assert resize.grant == cores(0.5)
    assert none(desk.applied(resize, at=9.1), ResizeJob)
    assert desk.scheduler.job(A).status == "running"


def test_what_was_held_meanwhile_counts_since_nobody_steered(desk: Desk) -> None:
    desk.run(A, 0.5)
    again = only(desk.tell(resumed(9.0, 5.0, a=cores(2.0))), LaunchJob)
    desk.tell(JobStarted(at=9.0, job=A, request=again.request, granted=cores(2.0)))
    desk.tick(A, at=9.0)
    assert desk.controller.readings[-1].granted_core_s == pytest.approx(5.0 * 0.5 + 4.0 * 2.0)


@pytest.mark.parametrize("performed", [True, False])
def test_a_resize_whose_answer_was_lost_is_asked_again_at_once(desk: Desk, performed: bool) -> None:
    desk.run(A, 2.0)
    only(desk.plan({A: cores(1.0)}, at=1.0), ResizeJob)
    held = cores(1.0) if performed else cores(2.0)
    again = only(desk.tell(resumed(2.0, 1.0, a=held)), LaunchJob)
    resize = only(desk.tell(JobStarted(at=2.0, job=A, request=again.request, granted=held)), ResizeJob)
    assert resize.grant == cores(1.0)
    assert desk.scheduler.job(A).granted == held


def test_a_launch_whose_answer_was_lost_is_answered_now(desk: Desk) -> None:
    desk.submit(A)
    only(desk.plan({A: cores(1.0)}), LaunchJob)
    again = only(desk.tell(resumed(2.0, 0.0, a=cores(1.0))), LaunchJob)
    desk.tell(JobStarted(at=2.0, job=A, request=again.request, granted=cores(1.0)))
    assert desk.scheduler.job(A).status == "running"


def test_a_job_that_is_found_running_has_started_though_nobody_wrote_that_down(desk: Desk) -> None:
    desk.submit(A)
    only(desk.plan({A: cores(1.0)}), LaunchJob)
    desk.tell(PauseRequested(at=1.0, job=A))
    event = resumed(2.0, 1.0, a=cores(1.0))
    desk.tell(event)
    assert desk.scheduler.job(A).started_at == 1.0
    board, history = StatusBoard(), JobHistory(A)
    for message in (
        JobSubmitted(at=0.0, spec=desk.scheduler.job(A).spec),
        event,
        JobFinished(at=3.0, job=A, landed_at=3.0),
    ):
        board.fold(message)
        history.take(message)
    assert board.job(A).started_at == history.started_at == 1.0


def test_a_job_that_was_told_to_stop_is_told_again(desk: Desk) -> None:
    desk.run(A, 1.0)
    only(desk.tell(StopRequested(at=1.0, job=A, cause="enough")), StopJob)
    commands = desk.tell(resumed(2.0, 1.0, a=cores(1.0)))
    assert only(commands, StopJob).cause == "enough"
    assert none(commands, LaunchJob)


def test_a_plan_that_was_never_proposed_is_requested_again(desk: Desk) -> None:
    only(desk.submit(A), RequestPlan)
    only(desk.tell(resumed(1.0, 0.0)), RequestPlan)
    only(desk.plan({A: cores(1.0)}, at=1.0), LaunchJob)


def test_a_job_that_waits_and_one_that_has_ended_are_left_alone(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.submit(B, at=1.0)
    commands = desk.tell(resumed(2.0, 1.0, a=cores(2.0), gone=cores(1.0)))
    assert only(commands, LaunchJob).job == A
    assert desk.scheduler.job(B).status == "queued"
    assert {timer.kind for timer in timers_of(commands, B)} <= {"tick", "deadline"}
