"""When a job that failed is launched again, how long it waits, and what is said about it."""

import pytest
from tests.core.desk import A, Desk, cores, none, only

from punctual.core.answers import unknown_job
from punctual.core.commands import Command, LaunchJob, RejectJob, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantFailed, JobFailed, JobSubmitted, StopRequested, TimerFired
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.story import Reason
from punctual.core.timer import Timer


def crash(desk: Desk, at: float, *, code: int | None = None, cause: str = "a signal") -> list[Command]:
    return desk.tell(JobFailed(at=at, job=A, cause=cause, exit_code=code, retryable=True))


def again(desk: Desk, at: float, steps: float = 0.0) -> None:
    """Its retry is due; it starts and reports so many steps."""
    desk.started(only(desk.tell(TimerFired(at=at, timer=Timer("retry", A))), LaunchJob), at=at)
    desk.progress(A, at=at, steps=steps)


def wait_s(commands: list[Command]) -> float:
    timer = only([command for command in commands if isinstance(command, SetTimer)], SetTimer)
    assert timer.timer == Timer("retry", A)
    return timer.fire_at - timer.at


def running(n_retries: int | None = None) -> Desk:
    desk = Desk()
    spec = JobSpec(id=A, ceiling=Resources(cores=2), deadline_s=100.0, controller="scripted", n_retries=n_retries)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))
    return desk


def rejection(commands: list[Command]) -> Reason:
    return only(commands, RejectJob).reason


def test_a_retry_is_told_and_waits_twice_as_long_each_time() -> None:
    desk, waits = running(n_retries=9), []
    for n in range(4):
        commands = crash(desk, at=10.0 * n + 1.0)
        assert only(commands, WarnUser).reason.text == (
            f"a signal; retry {n + 1} of 9 in {2**n} s, from its last checkpoint if it made one"
        )
        waits.append(wait_s(commands))
        assert none(desk.tell(TimerFired(at=10.0 * n + 1.5, timer=Timer("plan"))), LaunchJob), "it waits"
        again(desk, at=10.0 * n + 9.5)
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_an_end_is_not_counted_again_when_a_command_did_not_find_the_process_any_more() -> None:
    """The host was resumed: a resize was asked for before the end that was waiting to be told."""
    desk = running(n_retries=1)
    resize = only(desk.plan({A: cores(0.5)}), ResizeJob)
    crash(desk, at=1.0)
    assert desk.tell(unknown_job(resize)) == []
    again(desk, at=3.0)
    assert desk.scheduler.job(A).status == "running"


def test_no_wait_is_longer_than_the_longest() -> None:
    periods = Periods(retry_s=1.0, retry_max_s=5.0)
    assert [periods.retry_after_s(n) for n in (0, 1, 3, 4, 5000)] == [1.0, 1.0, 4.0, 5.0, 5.0]
    assert Periods(retry_s=9.0, retry_max_s=5.0).retry_after_s(3) == 9.0


def test_who_fails_again_and_again_is_given_up() -> None:
    desk = running(n_retries=1)
    crash(desk, at=1.0)
    again(desk, at=3.0)
    reason = rejection(crash(desk, at=4.0, cause="another signal"))
    assert (reason.code, str(reason)) == (
        "no-retries-left", "another signal; it has failed 2 times in a row, and 1 retry is allowed",
    )  # fmt: skip
    assert desk.scheduler.job(A).status == "failed"


def test_a_job_may_have_no_retries() -> None:
    """Who asked for none is told what happened, and nothing of retries."""
    reason = rejection(crash(running(n_retries=0), at=1.0, cause="a signal"))
    assert (reason.code, reason.text) == ("no-retries-left", "a signal")


def test_a_process_that_is_lost_through_no_fault_of_its_program_is_no_failure() -> None:
    desk = running(n_retries=0)
    for at in (1.0, 2.0):
        lost = JobFailed(at=at, job=A, cause="its node was cut off", retryable=True, is_lost=True)
        desk.started(only(desk.tell(lost), LaunchJob), at=at)
    assert rejection(crash(desk, at=3.0)).code == "no-retries-left"


def test_the_number_of_retries_is_that_of_the_scheduler_if_the_job_says_none() -> None:
    desk = Desk()
    desk.scheduler = Scheduler({"scripted": desk.controller}, n_retries=0)
    desk.tell(JobSubmitted(at=0.0, spec=JobSpec(id=A, ceiling=Resources(cores=2), controller="scripted")))
    assert rejection(crash(desk, at=1.0)).code == "no-retries-left"


def test_new_steps_begin_the_count_anew() -> None:
    desk = running(n_retries=1)
    for n in range(1, 4):
        desk.progress(A, at=10.0 * n, steps=10 * n)
        commands = crash(desk, at=10.0 * n, code=1)
        assert (wait_s(commands), none(commands, RejectJob)) == (1.0, True)
        again(desk, at=10.0 * n + 2.0, steps=10 * n - 5)  # from a checkpoint


def test_new_steps_begin_the_count_of_launches_that_failed_anew_too() -> None:
    desk = Desk()
    desk.tell(JobSubmitted(at=0.0, spec=JobSpec(id=A, ceiling=Resources(cores=2), controller="scripted", n_retries=2)))
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    for n in range(1, 3):
        desk.tell(GrantFailed(at=10.0 * n, job=A, request=launch.request, granted={}, cause="no memory"))
        launch = only(desk.tell(TimerFired(at=10.0 * n + 5.0, timer=Timer("retry", A))), LaunchJob)
    desk.started(launch, at=30.0)
    desk.progress(A, at=40.0, steps=50)
    assert none(crash(desk, at=50.0), RejectJob)


def test_a_program_that_fails_in_the_same_way_without_a_new_step_is_not_retried() -> None:
    desk = running()
    desk.progress(A, at=1.0, steps=10)
    assert none(crash(desk, at=2.0, code=1), RejectJob)
    again(desk, at=4.0, steps=8)
    desk.progress(A, at=5.0, steps=10)
    reason = rejection(crash(desk, at=6.0, code=1))
    assert (reason.code, "in the same way" in str(reason)) == ("failed-again", True)


@pytest.mark.parametrize(
    ("code", "cause"), [(2, "a signal"), (1, "another signal"), (None, "a signal")]
)  # fmt: skip
def test_another_failure_is_retried(code: int | None, cause: str) -> None:
    desk = running()
    crash(desk, at=1.0, code=1 if code is not None else None)
    again(desk, at=3.0)
    assert none(crash(desk, at=4.0, code=code, cause=cause), RejectJob)


def test_a_job_that_is_to_stop_is_not_retried() -> None:
    desk = running()
    only(desk.tell(StopRequested(at=1.0, job=A, cause="enough")), StopJob)
    assert rejection(crash(desk, at=2.0)).code == "stopped"


def test_a_waiting_job_that_is_stopped_is_rejected(desk: Desk) -> None:
    desk.submit(A)
    reason = rejection(desk.tell(StopRequested(at=1.0, job=A, cause="enough")))
    assert (reason.code, reason.text) == ("stopped", "enough")


def test_retries_are_no_negative_number() -> None:
    with pytest.raises(InvalidSpec, match="`n_retries` must be 0 or more"):
        JobSpec(id=A, ceiling=Resources(cores=1), n_retries=-1)


def test_a_job_that_the_executor_does_not_know_is_launched_again() -> None:
    desk = running()
    desk.tell(unknown_job(only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob)))
    assert desk.scheduler.job(A).status == "queued"
    again(desk, at=3.0)
    desk.tell(unknown_job(StopJob(at=5.0, job=A, cause="enough")))
    assert desk.scheduler.job(A).status == "stopped"
