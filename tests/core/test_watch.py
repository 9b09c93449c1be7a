"""What is noticed of a job between its events: that its deadline passes, that no step comes; and what is done about it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.commands import Command, LaunchJob, RejectJob, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.control import Forecast, PacingLine, PhaseProgress
from punctual.core.events import (
    GrantApplied,
    JobFailed,
    JobStarted,
    JobSubmitted,
    PauseRequested,
    PhaseReported,
    ProgressReported,
    ResumeRequested,
    SpecChanged,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import Timer
from punctual.core.job import EndRules, JobSpec
from punctual.core.resources import Resources
from punctual.core.status import StatusBoard


@pytest.fixture
def desk() -> Desk:
    return Desk()


def deadline_timers(commands: list[Command]) -> list[float]:
    return [c.fire_at for c in commands if isinstance(c, SetTimer) and c.timer.kind == "deadline"]


def deadline(desk: Desk, at: float = 100.0) -> list[Command]:
    return desk.tell(TimerFired(at=at, timer=Timer("deadline", A)))


def told(commands: list[Command], code: str) -> list[str]:
    return [c.reason.text for c in commands if isinstance(c, WarnUser) and c.reason.code == code]


def report(
    desk: Desk,
    *,
    at: float,
    steps: float,
    unit_at: float,
    total: float | None = 200,
    busy: bool = False,
    is_read: bool = False,
) -> None:
    """A report at instant `at` of a job that uses nothing, or all of a core, while it makes no step."""
    flight = (at - unit_at) if busy else 0.0
    desk.tell(
        ProgressReported(
            at=at, job=A, steps_done=steps, steps_total=total, unit_at=unit_at, used_core_s=unit_at + flight,
            in_flight_core_s=flight, is_read=is_read,
        )
    )  # fmt: skip


def train(desk: Desk, until: float, step_s: float = 0.1, start: float = 0.0) -> None:
    """Steps of `step_s` until then, looked at each second."""
    at = start
    while at < until:
        at += 1.0
        report(desk, at=at, steps=int((at + 1e-9) / step_s), unit_at=at)
        desk.tick(A, at=at)


def silence(desk: Desk, at: float, since: float, steps: float, **options: Any) -> list[Command]:
    """The commands of a tick of a job whose last step was at `since`."""
    report(desk, at=at, steps=steps, unit_at=since, **options)
    return desk.tick(A, at=at)


# The deadline.


def test_a_timer_fires_at_the_deadline_of_each_job_that_is_looked_at(desk: Desk) -> None:
    assert deadline_timers(desk.submit(A, at=1.0)) == [101.0]
    spec = JobSpec(id=B, ceiling=Resources(cores=1), deadline_s=50.0, controller=None)
    assert deadline_timers(desk.tell(JobSubmitted(at=2.0, spec=spec))) == []


def test_a_deadline_that_passes_is_told_at_that_moment_and_once(desk: Desk) -> None:
    desk.run(A, 2.0)
    report(desk, at=99.9, steps=20, unit_at=99.0)
    assert told(deadline(desk), "deadline-passed") == ["the deadline has passed at step 20 of 200"]
    assert none(deadline(desk, 100.5), WarnUser)


def test_a_deadline_that_passes_is_told_with_the_lateness_by_now(desk: Desk) -> None:
    desk.run(A, 2.0)
    report(desk, at=50.0, steps=20, unit_at=49.0)
    desk.controller.forecast = forecast(102.0)
    desk.tick(A, at=50.0)
    desk.controller.forecast = forecast(130.0)
    desk.tick(A, at=90.0)
    [text] = told(deadline(desk), "deadline-passed")
    assert text == "the deadline has passed at step 20 of 200: at full speed the job lands 30 s after it"


def test_a_job_that_has_landed_is_not_told_that_its_deadline_passes(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.progress(A, at=99.0, steps=100, landed=True)
    assert none(deadline(desk), WarnUser)


def test_a_program_that_works_on_after_its_last_step_and_its_deadline_is_told_so() -> None:
    """A moment later: it may only be leaving. One that has run to its end says so by another stamp."""
    for leaves in (False, True):
        desk = Desk()
        desk.run(A, 2.0)
        desk.progress(A, at=99.9, steps=100, landed=True)
        (again,) = deadline_timers(deadline(desk))
        assert again > 100.0
        stamp = 100.1 if leaves else 99.9
        desk.tell(
            ProgressReported(
                at=again, job=A, steps_done=100, steps_total=100, unit_at=stamp, used_core_s=again, landed=True
            )
        )
        texts = told(deadline(desk, again), "deadline-passed")
        assert bool(texts) == (not leaves)
        assert all("the program works on after it" in text for text in texts)


def test_a_program_that_counted_all_its_steps_has_time_to_leave_before_it_is_told_that_its_deadline_passed(
    desk: Desk,
) -> None:
    desk.run(A, 2.0)
    report(desk, at=99.9, steps=200, unit_at=99.8, is_read=True)
    desk.controller.forecast = Forecast(finish_s=100.1, std_s=1.0, earliest_finish_s=100.1, feasible=False)
    assert none(desk.tick(A, at=100.0), WarnUser), "nor that its deadline cannot be met"
    commands = deadline(desk)
    assert none(commands, WarnUser)
    (again,) = deadline_timers(commands)
    assert told(deadline(desk, again), "deadline-passed") == [
        "the deadline has passed at step 200 of 200, and the program works on; `--like a` tells the next run of that"
    ]


def test_the_deadline_of_a_job_that_has_no_process_or_holds_nothing_is_told_too(desk: Desk) -> None:
    desk.submit(A)
    assert told(deadline(desk), "deadline-passed") == ["the deadline has passed before the job was started"]
    other = Desk()
    other.run(A, 1.0)
    other.tell(PauseRequested(at=1.0, job=A))
    paused = GrantApplied(at=2.0, job=A, request=2, granted={})
    other.tell(paused)
    (text,) = told(deadline(other), "deadline-passed")
    assert text == "the deadline has passed, and the job is paused, with no step reported"


def test_a_deadline_that_is_moved_is_told_where_it_is(desk: Desk) -> None:
    desk.run(A, 2.0)
    assert told(deadline(desk), "deadline-passed")
    moved = SpecChanged(at=101.0, spec=replace(desk.scheduler.job(A).spec, deadline_s=150.0))
    assert deadline_timers(desk.tell(moved)) == [150.0]
    assert none(deadline(desk, 120.0), WarnUser), "a timer of the deadline before"
    assert len(told(deadline(desk, 150.0), "deadline-passed")) == 1


# No step comes.


def test_a_job_that_makes_no_steps_any_more_is_told_with_what_they_took(desk: Desk) -> None:
    desk.run(A, 2.0)
    train(desk, 10.0)
    assert none(silence(desk, 29.0, 10.0, 100), WarnUser), "a fifth of the deadline is not over"
    (text,) = told(silence(desk, 31.0, 10.0, 100), "stalled")
    assert text == "no step for 21 s; they took 100 ms"
    assert none(silence(desk, 50.0, 10.0, 100), WarnUser), "it is told once"
    assert told(silence(desk, 52.0, 51.9, 101), "steps-go-on") == ["steps go on, at step 101 of 200"]


def test_a_program_that_works_on_after_its_last_step_does_not_stand_still(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="stop"))
    train(desk, 10.0)
    commands = silence(desk, 90.0, 10.0, 100, total=100)
    assert none(commands, StopJob)
    assert told(commands, "stalled") == []
    assert only(silence(desk, 91.0, 10.0, 100, total=101), StopJob)


def test_with_a_far_deadline_half_a_minute_is_enough(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=36_000.0)
    train(desk, 10.0)
    assert none(silence(desk, 39.0, 10.0, 100), WarnUser)
    assert told(silence(desk, 41.0, 10.0, 100), "stalled")


def test_without_a_deadline_it_is_told_too(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=None)
    train(desk, 10.0)
    assert told(silence(desk, 41.0, 10.0, 100), "stalled")


def test_long_steps_have_ten_times_what_they_take(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=36_000.0)
    train(desk, 100.0, step_s=10.0)
    assert none(silence(desk, 190.0, 100.0, 10), WarnUser)
    assert told(silence(desk, 205.0, 100.0, 10), "stalled") == ["no step for 1 min 45 s; they took 10 s"]


def test_a_step_may_take_what_it_costs_on_a_smaller_grant(desk: Desk) -> None:
    """As where others come: what took 0.1 s on two cores takes 4 s on a twentieth of one."""
    desk.run(A, 2.0, deadline_s=36_000.0, floor=0.05)
    for i in range(1, 11):
        desk.tell(
            ProgressReported(
                at=float(i), job=A, steps_done=10.0 * i, steps_total=1e6, unit_at=float(i), used_core_s=2.0 * i
            )
        )
    desk.controller.wanted = 0.05
    resize = only([*desk.tick(A, at=10.0), *desk.plan({A: cores(0.05)}, at=10.0)], ResizeJob)
    desk.applied(resize, at=10.0)
    last = ProgressReported(at=49.0, job=A, steps_done=100.0, steps_total=1e6, unit_at=10.0, used_core_s=20.0)
    desk.tell(last)
    assert none(desk.tick(A, at=49.0), WarnUser)
    desk.tell(replace(last, at=51.0))
    assert told(desk.tick(A, at=51.0), "stalled")


def test_a_paced_step_may_take_what_its_line_says(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=36_000.0)
    desk.controller.pacing = PacingLine(end_s=810.0, end_work=200.0, s_per_step=8.0)
    train(desk, 10.0)
    assert none(silence(desk, 97.0, 10.0, 100), WarnUser), "ten times 8 s after the line allows the next step"
    assert told(silence(desk, 99.0, 10.0, 100), "stalled") == ["no step for 1 min 29 s; they took 8 s"]


def test_a_job_far_ahead_of_its_line_waits_for_it(desk: Desk) -> None:
    """As after its deadline was moved to a later one."""
    desk.run(A, 2.0, deadline_s=36_000.0, ends=EndRules(on_stall="stop"))
    desk.controller.pacing = PacingLine(end_s=35_000.0, end_work=200.0, s_per_step=10.0)
    train(desk, 10.0)
    for at in (100.0, 5000.0, 34_000.0):
        commands = silence(desk, at, 10.0, 100)
        assert none(commands, WarnUser)
        assert none(commands, StopJob)
    assert told(silence(desk, 34_200.0, 10.0, 100), "stalled")


def test_a_part_of_an_evaluation_may_take_what_its_line_says(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=36_000.0)
    line = PacingLine(end_s=410.0, end_work=140.0, s_per_step=10.0, phase_cost_steps={"eval": 20.0})
    desk.controller.pacing = line
    phase = PhaseProgress(name="eval", units_planned=1, units_done=0, units_measured=1, wall_s=2.0)
    desk.tell(PhaseReported(at=0.5, job=A, phases=(phase,)))
    train(desk, 10.0)
    assert none(silence(desk, 200.0, 10.0, 100), WarnUser)
    assert told(silence(desk, 320.0, 10.0, 100), "stalled")


def evaluates(desk: Desk, at: float, since: float, core_s: float) -> list[Command]:
    """A tick of a job that has computed for so long since its last step, the hundredth."""
    desk.tell(
        ProgressReported(
            at=at, job=A, steps_done=100.0, steps_total=200.0, unit_at=since, used_core_s=since + core_s,
            in_flight_core_s=core_s,
        )
    )  # fmt: skip
    return desk.tick(A, at=at)


def given(desk: Desk, amount: float, at: float) -> None:
    desk.controller.wanted = amount
    resize = only([*desk.tick(A, at=at), *desk.plan({A: cores(amount)}, at=at)], ResizeJob)
    desk.applied(resize, at=at)


def test_an_evaluation_under_a_small_grant_may_take_as_many_times_as_long(desk: Desk) -> None:
    """What 30 s are for at its two cores takes five minutes on a fifth of one; but one that waits has 30 s."""
    for is_busy in (True, False):
        desk = Desk()
        desk.run(A, 2.0, deadline_s=36_000.0)
        train(desk, 10.0)
        given(desk, 0.2, 10.0)
        commands = evaluates(desk, 60.0, 10.0, 0.2 * 50.0 * is_busy)
        assert bool(told(commands, "stalled")) != is_busy
        if is_busy:
            assert none(evaluates(desk, 290.0, 10.0, 0.2 * 280.0), WarnUser)
            assert told(evaluates(desk, 320.0, 10.0, 0.2 * 310.0), "stalled")


def test_a_job_that_takes_its_ceiling_whatever_it_is_granted_has_no_longer(desk: Desk) -> None:
    """As where nothing enforces a grant."""
    desk.run(A, 2.0, deadline_s=36_000.0)
    train(desk, 10.0)
    given(desk, 0.2, 10.0)
    assert told(evaluates(desk, 45.0, 10.0, 2.0 * 35.0), "stalled")


def test_an_evaluation_may_cost_again_what_one_has_cost_before(desk: Desk) -> None:
    """It took 50 s on two cores, and takes 500 s on a fifth of one, whatever is seen of its use."""
    desk.run(A, 2.0, deadline_s=36_000.0)
    train(desk, 10.0)
    evaluates(desk, 60.0, 10.0, 100.0)
    last = ProgressReported(at=61.0, job=A, steps_done=101.0, steps_total=200.0, unit_at=61.0, used_core_s=111.0)
    desk.tell(last)
    given(desk, 0.2, 61.0)
    desk.tell(replace(last, at=900.0))
    assert none(desk.tick(A, at=900.0), WarnUser)
    desk.tell(replace(last, at=1100.0))
    assert told(desk.tick(A, at=1100.0), "stalled")


def test_an_evaluation_that_nobody_declared_is_told_once_and_then_expected(desk: Desk) -> None:
    desk.run(A, 2.0)
    train(desk, 5.0)
    warned, at, steps = [], 5.0, 50
    for _ in range(3):
        for part in range(1, 22):
            warned += told(silence(desk, at + part, at, steps, busy=True), "stalled")
        at, steps = at + 22.0, steps + 1
        report(desk, at=at, steps=steps, unit_at=at)
        desk.tick(A, at=at)
    assert warned == ["no step for 21 s; they took 100 ms"]


def test_a_first_step_that_does_not_end_is_told_after_a_fifth_of_the_deadline(desk: Desk) -> None:
    desk.run(A, 2.0)
    assert none(silence(desk, 20.0, 3.0, 0), WarnUser)
    assert told(silence(desk, 24.0, 3.0, 0), "stalled") == ["the first step has not ended after 21 s"]


def test_a_second_step_may_take_as_long_as_the_first(desk: Desk) -> None:
    desk.run(A, 2.0)
    report(desk, at=3.0, steps=0, unit_at=3.0, total=2)
    silence(desk, 26.0, 3.0, 0, total=2)
    report(desk, at=30.0, steps=1, unit_at=30.0, total=2)
    desk.tick(A, at=30.0)
    assert none(silence(desk, 83.0, 30.0, 1, total=2), WarnUser)
    assert told(silence(desk, 85.0, 30.0, 1, total=2), "stalled") == ["no step for 55 s"]


def test_what_has_landed_or_is_paused_or_was_paused_does_not_stand_still(desk: Desk) -> None:
    desk.run(A, 2.0)
    train(desk, 10.0)
    desk.tell(PauseRequested(at=10.0, job=A))
    paused = GrantApplied(at=10.0, job=A, request=2, granted={})
    desk.tell(paused)
    desk.tell(ResumeRequested(at=90.0, job=A))
    resumed = only(desk.plan({A: cores(1.0)}, at=90.0), ResizeJob)
    desk.applied(resumed, at=90.0)
    assert none(silence(desk, 95.0, 10.0, 100), WarnUser)
    desk.progress(A, at=96.0, steps=200, landed=True)
    assert told(desk.tick(A, at=199.0), "stalled") == []


def test_a_job_that_stands_still_is_told_as_stalled(desk: Desk) -> None:
    board = StatusBoard()
    board.fold(desk.joined)

    def tell(commands: list[Command]) -> None:
        for command in commands:
            board.fold(command)

    submitted = JobSubmitted(
        at=0.0, spec=JobSpec(id=A, ceiling=Resources(2.0), deadline_s=100.0, controller="scripted")
    )
    board.fold(submitted)
    desk.tell(submitted)
    launch = only(desk.plan({A: cores(2.0)}), LaunchJob)
    board.fold(launch)
    desk.started(launch)
    board.fold(JobStarted(at=0.0, job=A, request=launch.request, granted=launch.grant))
    train(desk, 10.0)
    assert board.job(A).display_state == "running"
    tell(silence(desk, 31.0, 10.0, 100))
    assert (board.job(A).state, board.job(A).display_state) == ("running", "stalled")
    tell(silence(desk, 32.0, 31.9, 101))
    assert board.job(A).display_state == "running"
    assert "stalled" not in board.job(A).warnings


# What is done about it.


@pytest.mark.parametrize(("busy", "acts_at"), [(False, 51.0), (True, 51.0)])
def test_a_job_that_stands_still_is_stopped_if_its_user_wants_it(desk: Desk, busy: bool, acts_at: float) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="stop"))
    train(desk, 10.0)
    assert none(silence(desk, 31.0, 10.0, 100, busy=busy), StopJob), "it is told first"
    stop = only(silence(desk, acts_at, 10.0, 100, busy=busy), StopJob)
    assert (stop.cause, stop.restarts) == ("no step for 41 s; they took 100 ms", False)


def test_a_job_that_computes_while_it_makes_no_step_has_a_fifth_of_its_deadline(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=3600.0, ends=EndRules(on_stall="stop"))
    train(desk, 10.0)
    assert none(silence(desk, 600.0, 10.0, 100, busy=True), StopJob)
    assert only(silence(desk, 1460.0, 10.0, 100, busy=True), StopJob)
    other = Desk()
    other.run(A, 2.0, deadline_s=3600.0, ends=EndRules(on_stall="stop"))
    train(other, 10.0)
    assert only(silence(other, 75.0, 10.0, 100), StopJob)


def test_a_job_that_stands_still_is_started_again_if_its_user_wants_it(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="retry"), n_retries=2)
    train(desk, 10.0)
    stop = only(silence(desk, 51.0, 10.0, 100), StopJob)
    assert stop.restarts
    assert desk.scheduler.job(A).status == "stopping"
    commands = desk.tell(JobFailed(at=55.0, job=A, cause=stop.cause, exit_code=143, retryable=True))
    assert "retry 1 of 2" in only(commands, WarnUser).reason.text
    assert none(commands, RejectJob)
    launch = only(desk.plan({A: cores(2.0)}, at=57.0), LaunchJob)
    desk.started(launch, at=61.0)
    assert none(silence(desk, 62.0, 61.5, 1), StopJob), "what was told of the process before does not count"


def test_a_job_that_stands_still_again_and_again_has_failed(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="retry"), n_retries=0)
    train(desk, 10.0)
    stop = only(silence(desk, 51.0, 10.0, 100), StopJob)
    rejected = only(desk.tell(JobFailed(at=55.0, job=A, cause=stop.cause, retryable=True)), RejectJob)
    assert rejected.reason.code == "no-retries-left"


def test_a_stop_that_is_asked_for_meanwhile_is_one(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="retry"))
    train(desk, 10.0)
    assert only(silence(desk, 51.0, 10.0, 100), StopJob).restarts
    desk.tell(StopRequested(at=52.0, job=A, cause="enough"))
    rejected = only(desk.tell(JobFailed(at=55.0, job=A, cause="enough", retryable=True)), RejectJob)
    assert rejected.reason.code == "stopped"


def test_a_job_of_which_nobody_knows_whether_it_trains_is_never_ended_for_that(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(on_stall="stop"))
    assert none(silence(desk, 99.0, 0.0, 0, total=None), StopJob)


# Done at the deadline.


def forecast(earliest_s: float) -> Forecast:
    return Forecast(finish_s=earliest_s, std_s=0.1, earliest_finish_s=earliest_s, feasible=earliest_s <= 100.0)


def test_a_job_that_will_not_be_done_is_asked_to_stop_in_time_for_a_checkpoint(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(at_deadline="stop"))
    desk.controller.forecast = forecast(300.0)
    train(desk, 88.0, step_s=1.0)
    assert desk.scheduler.job(A).status == "running"
    stop = only(desk.tick(A, at=89.1), StopJob)
    assert (stop.cause, stop.is_due) == ("it would not be done by its deadline", True)


def test_a_job_that_will_be_done_is_left_to_it_and_asked_at_the_deadline(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(at_deadline="stop"))
    desk.controller.forecast = forecast(99.9)
    train(desk, 99.0, step_s=1.0)
    assert none(desk.tick(A, at=99.9), StopJob)
    commands = deadline(desk)
    assert told(commands, "deadline-passed")
    stop = only(commands, StopJob)
    assert (stop.cause, stop.is_due) == ("its deadline has come", True)


def test_what_a_checkpoint_was_seen_to_take_is_kept_for_it(desk: Desk) -> None:
    desk.run(A, 2.0, ends=EndRules(at_deadline="stop"))
    desk.controller.forecast = forecast(300.0)
    seen = PhaseProgress(name="checkpoint", units_planned=4, units_done=2, units_measured=2, wall_s=3.0)
    desk.tell(PhaseReported(at=50.0, job=A, phases=(seen,)))
    for at in (10.0, 90.0, 96.5):
        desk.progress(A, at=at, steps=at)
        commands = desk.tick(A, at=at)
        assert none(commands, StopJob) == (at < 96.0)


def test_a_job_that_waits_is_given_up_at_the_deadline(desk: Desk) -> None:
    desk.submit(A, ends=EndRules(at_deadline="stop"))
    assert only(deadline(desk), RejectJob).reason.code == "due"


def test_a_job_that_may_train_on_does(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.forecast = forecast(300.0)
    train(desk, 99.0, step_s=1.0)
    assert none(deadline(desk), StopJob)
