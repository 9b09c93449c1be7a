"""When a job that failed is launched again, how long it waits, and what is said about it."""

from dataclasses import replace

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, none, only

from punctual.core.answers import unknown_job
from punctual.core.commands import Command, LaunchJob, RejectJob, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.status import StatusBoard


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


def test_a_job_of_which_its_executor_has_no_process_has_not_failed() -> None:
    desk = running(n_retries=0)
    for at in (1.0, 2.0):
        resize = ResizeJob(at=at, job=A, request=99, grant={}, reason=Reason("test", "it changes"))
        desk.started(only(desk.tell(unknown_job(resize)), LaunchJob), at=at)


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


def short(desk: Desk, launch: LaunchJob, at: float) -> list[Command]:
    """Its node has too few descriptors to start it."""
    failed = GrantFailed(
        at=at,
        job=launch.job,
        request=launch.request,
        granted={},
        cause="100 of 128 are in use",
        short_of="a descriptor",
    )
    return desk.tell(failed)


def test_what_a_node_is_short_of_is_waited_for_however_often_and_told_once() -> None:
    desk, at, waits = Desk(), 0.0, []
    board = StatusBoard()
    spec = JobSpec(id=A, ceiling=Resources(cores=2), deadline_s=100.0, controller="scripted", n_retries=0)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    for message in (desk.joined, JobSubmitted(at=0.0, spec=spec)):
        board.fold(message)
    launch, warned = only(desk.plan({A: cores(1.0)}), LaunchJob), []
    for _ in range(9):
        board.fold(launch)
        commands = short(desk, launch, at)
        board.fold(GrantFailed(at=at, job=A, request=launch.request, granted={}, cause="", short_of="a descriptor"))
        warned += [command for command in commands if isinstance(command, WarnUser)]
        waits.append(wait_s(commands))
        assert desk.scheduler.job(A).status == board.job(A).state == "queued"
        at += waits[-1]
        launch = only(desk.tell(TimerFired(at=at, timer=Timer("retry", A))), LaunchJob)
    assert (waits[:4], max(waits)) == ([1.0, 2.0, 4.0, 8.0], 60.0)
    assert [warning.reason.text for warning in warned] == ["it waits for a descriptor: 100 of 128 are in use"]
    desk.tell(started := JobStarted(at=at, job=A, request=launch.request, granted=launch.grant))
    told: list[Message] = [*warned, launch, started]
    for each in told:
        board.fold(each)
    assert (board.job(A).n_attempts, dict(board.job(A).warnings)) == (1, {})


def test_the_end_of_a_job_lets_one_of_those_try_that_wait_for_room() -> None:
    desk, names = Desk(), [JobId(name) for name in ("a", "b", "c")]
    for name in names:
        desk.submit(name)
    desk.plan({})  # it was asked for when only the first was there
    commands = desk.plan(dict.fromkeys(names, cores(0.5)))
    launches = {command.job: command for command in commands if isinstance(command, LaunchJob)}
    desk.started(launches[A], at=1.0)
    for name in names[1:]:
        short(desk, launches[name], at=1.0)
    assert none(desk.tick(A, at=1.5), LaunchJob)
    assert only(desk.tell(JobFinished(at=1.6, job=A, landed_at=1.6)), LaunchJob).job == "b"


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
    unknown = unknown_job(only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob))
    desk.started(only(desk.tell(unknown), LaunchJob), at=3.0)
    desk.tell(unknown_job(StopJob(at=5.0, job=A, cause="enough")))
    assert desk.scheduler.job(A).status == "stopped"


GIB = 1 << 30


def asking(memory_bytes: int, most_bytes: int, n_retries: int = 0) -> Desk:
    """A job that runs and has asked for memory, on a node that has 16 GiB."""
    desk = Desk()
    desk.tell(replace(desk.joined, capacity=Resources(cores=2, memory_bytes=16 * GIB)))
    spec = JobSpec(
        id=A, ceiling=Resources(cores=2), controller="scripted", n_retries=n_retries, memory_most_bytes=most_bytes
    )
    desk.tell(JobSubmitted(at=0.0, spec=spec.with_memory(memory_bytes)))
    desk.started(only(desk.plan({A: with_memory(memory_bytes)}), LaunchJob))
    return desk


def with_memory(memory_bytes: int) -> Allocation:
    return {HERE: Resources(1.0, memory_bytes=memory_bytes)}


def run_out(desk: Desk, at: float) -> list[Command]:
    return desk.tell(JobFailed(at=at, job=A, cause="no memory", exit_code=137, retryable=True, out_of_memory=True))


def retried(desk: Desk, at: float) -> list[Command]:
    return desk.tell(TimerFired(at=at, timer=Timer("retry", A)))


def test_a_job_that_has_run_out_of_memory_is_started_with_more_as_long_as_it_may_have_more() -> None:
    """Each time with the same cause and without a step, and without any retries: it is no failure of the program."""
    desk = asking(3 * GIB, 8 * GIB)
    for asked, at in ((6, 1.0), (8, 11.0)):
        commands = run_out(desk, at)
        assert only(commands, WarnUser).reason.text == (
            f"no memory; started again with {asked} GiB in 1 s, from its last checkpoint if it made one"
        )
        launch = only(retried(desk, at + 2.0), LaunchJob)
        assert launch.spec.asked_memory_bytes == asked * GIB == launch.grant[HERE].memory_bytes
        desk.started(launch, at=at + 3.0)
    reason = rejection(run_out(desk, 21.0))
    assert reason.code == "out-of-memory"
    assert "Ask for more (`--memory 16GiB`), or have it started again with more (`--memory 8GiB..16GiB`)" in str(reason)


def test_a_job_that_may_not_have_more_is_not_started_again_whatever_retries_it_has() -> None:
    assert rejection(run_out(asking(4 * GIB, 4 * GIB, n_retries=5), 1.0)).code == "out-of-memory"


def test_with_more_memory_a_job_waits_until_so_much_is_free() -> None:
    desk = asking(4 * GIB, 16 * GIB)
    other = JobSpec(id=B, ceiling=Resources(cores=1), controller="scripted").with_memory(10 * GIB)
    desk.tell(JobSubmitted(at=0.5, spec=other))
    grants = {A: with_memory(4 * GIB), B: with_memory(10 * GIB)}
    desk.started(only(desk.plan(grants, at=0.5), LaunchJob), at=0.6)
    run_out(desk, 1.0)
    assert none(retried(desk, 3.0), LaunchJob), "8 GiB are not free beside 10"
    ended = desk.tell(JobFinished(at=4.0, job=B, landed_at=4.0))
    launch = only(ended + desk.plan({A: with_memory(8 * GIB)}, at=4.0), LaunchJob)
    assert launch.spec.asked_memory_bytes == 8 * GIB
