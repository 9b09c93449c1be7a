"""How a job stands, told by its messages alone."""

import pickle
from dataclasses import replace

import pytest
from tests.core.desk import B, cores

from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob, WarnUser
from punctual.core.control import Forecast, PacingLine, PhaseProgress
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeLost,
    PhaseReported,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.lifecycle import ended_by
from punctual.core.plan import Plan
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import JobStatus, StatusBoard

HERE, A = NodeId("here"), JobId("a")
WHY = Reason("test", "the test says so")
SPEC = JobSpec(id=A, ceiling=Resources(cores=2), deadline_s=100.0)
JOINED = NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2))
SUBMITTED = JobSubmitted(at=1.0, spec=SPEC, program=Program(argv=("train",)))


def launched(at: float = 2.0, request: int = 1, grant: Allocation | None = None) -> Message:
    return LaunchJob(at=at, job=A, request=request, spec=SPEC, grant=grant or cores(1.0), reason=WHY)


def started(at: float = 3.0, request: int = 1, grant: Allocation | None = None) -> Message:
    return JobStarted(at=at, job=A, request=request, granted=grant or cores(1.0))


def resized(at: float, request: int, grant: Allocation) -> list[Message]:
    return [
        ResizeJob(at=at, job=A, request=request, grant=grant, reason=WHY),
        GrantApplied(at=at, job=A, request=request, granted=grant),
    ]


def progress(at: float, steps: float, *, landed: bool = False, used_core_s: float = 0.0) -> Message:
    return ProgressReported(
        at=at, job=A, steps_done=steps, steps_total=50.0, unit_at=at, used_core_s=used_core_s, landed=landed
    )


def warned(code: str, job: JobId | None = A) -> Message:
    return WarnUser(at=5.0, job=job, reason=Reason(code, f"beware of {code}"))


RUNNING: list[Message] = [JOINED, SUBMITTED, launched(), started()]


def board_of(*messages: Message) -> StatusBoard:
    board = StatusBoard()
    for message in messages:
        board.fold(message)
    return board


def after(*messages: Message) -> JobStatus:
    return board_of(*messages).job(A)


def test_a_job_is_queued_then_starting_then_running() -> None:
    assert after(JOINED, SUBMITTED).state == "queued"
    assert after(JOINED, SUBMITTED, launched()).state == "starting"
    status = after(*RUNNING)
    assert (status.state, status.started_at, status.n_attempts) == ("running", 3.0, 1)
    assert (status.granted, status.reason, status.program) == (cores(1.0), WHY, Program(argv=("train",)))


def test_what_it_holds_is_what_was_answered_last() -> None:
    late = GrantApplied(at=9.0, job=A, request=1, granted=cores(1.0))
    assert after(*RUNNING, *resized(5.0, 2, cores(0.5)), late).granted == cores(0.5)


def test_a_job_that_holds_nothing_is_paused_until_it_holds_something() -> None:
    paused = [*RUNNING, *resized(5.0, 2, {})]
    assert after(*paused).state == "paused"
    assert after(*paused, *resized(6.0, 3, cores(1.0))).state == "running"


def test_a_launch_that_is_said_again_is_no_other_attempt() -> None:
    assert after(*RUNNING, launched(5.0, 2), started(5.0, 2)).n_attempts == 1


def test_a_launch_that_fails_leaves_the_job_queued() -> None:
    failed = GrantFailed(at=3.0, job=A, request=1, granted={}, cause="no room")
    assert after(JOINED, SUBMITTED, launched(), failed).state == "queued"
    assert after(JOINED, SUBMITTED, launched(), failed, launched(4.0, 2)).n_attempts == 2


def test_a_failure_that_may_be_retried_ends_nothing() -> None:
    crash = JobFailed(at=5.0, job=A, cause="a signal", exit_code=9, retryable=True)
    waits = after(*RUNNING, progress(4.0, 10), crash)
    assert (waits.state, waits.granted, waits.steps_done, waits.exit_code) == ("queued", {}, 10, 9)
    assert ended_by(crash) is None
    late = GrantApplied(at=5.5, job=A, request=1, granted=cores(1.0))
    assert after(*RUNNING, crash, late).granted == {}
    again = after(*RUNNING, crash, warned("retried"), launched(6.0, 3), started(7.0, 3))
    assert (again.state, again.n_attempts, again.started_at, again.warnings) == ("running", 2, 3.0, {})


def test_a_failure_that_answers_a_command_of_an_earlier_process_is_none() -> None:
    crash = JobFailed(at=5.0, job=A, cause="a signal", exit_code=9, retryable=True)
    stale = JobFailed(at=5.0, job=A, cause="no process", retryable=True, request=1)
    assert after(*RUNNING, crash, stale).exit_code == 9
    assert after(*RUNNING, crash, launched(6.0, 3), started(7.0, 3), stale).state == "running"


def test_a_job_that_is_given_up_has_failed_and_says_why() -> None:
    crash = JobFailed(at=5.0, job=A, cause="a signal", exit_code=9, retryable=True)
    reject = RejectJob(at=5.0, job=A, reason=Reason("failed-again", "it failed in the same way"))
    status = after(*RUNNING, crash, reject)
    assert (status.state, status.cause, status.ended_at) == ("failed", "it failed in the same way", 5.0)
    assert ended_by(reject) == A


def test_a_job_that_was_stopped_says_who_stopped_it() -> None:
    stop, gone = StopJob(at=5.0, job=A, cause="the user"), JobFailed(at=6.0, job=A, cause="a signal")
    assert after(*RUNNING, stop).state == "stopping"
    status = after(*RUNNING, stop, gone)
    assert (status.state, status.cause, status.granted) == ("failed", "the user", {})


def test_a_job_that_finished_has_landed() -> None:
    finished = JobFinished(at=9.0, job=A, landed_at=8.0)
    status = after(*RUNNING, finished, progress(10.0, 3))
    assert (status.state, status.landed_at, status.ended_at, status.exit_code) == ("finished", 8.0, 9.0, 0)
    assert status.steps_done == 0.0  # nothing counts after the end
    assert ended_by(finished) == A


def test_a_job_that_goes_on_has_not_landed() -> None:
    landed = [*RUNNING, progress(4.0, 50, landed=True), progress(5.0, 50, landed=True)]
    assert after(*landed).landed_at == 4.0
    assert after(*landed, progress(6.0, 51)).landed_at is None


def test_speed_and_usage_are_averages_over_a_second_or_more() -> None:
    reports = [progress(4.0, 10, used_core_s=1.0), progress(4.5, 11, used_core_s=9.0)]
    assert after(*RUNNING, *reports).rate_sps == 0.0
    status = after(*RUNNING, *reports, progress(6.0, 20, used_core_s=2.0))
    assert (status.rate_sps, status.usage_cores, status.done_frac) == (5.0, 0.5, 0.4)


def paced(at: float, request: int, end_s: float, s_per_step: float) -> Message:
    line = PacingLine(end_s=end_s, end_work=50.0, s_per_step=s_per_step)
    return ResizeJob(at=at, job=A, request=request, grant=cores(1), reason=WHY, pacing=line)


#: A line on which 50 steps are done 100 seconds after the submission at 1.
LINE = paced(4.0, 2, 100.0, 2.0)


@pytest.mark.parametrize(
    ("messages", "is_held_back"),
    [
        ([progress(5.0, 2), progress(7.0, 3), progress(9.0, 4)], False),  # no line
        ([LINE, progress(5.0, 2), progress(7.0, 3), progress(9.0, 4)], True),
        # It falls behind, though each tick has a line from where it stands: it waits for something else.
        ([LINE, progress(5.0, 2), progress(10.0, 3)], False),
        ([LINE, progress(5.0, 2), progress(10.0, 3), paced(10.0, 3, 100.0, 90.0 / 47.0), progress(15.0, 4)], False),
        # Its deadline is moved: until its next steps its speed is that of the line before.
        ([LINE, progress(5.0, 2), progress(7.0, 3), paced(7.5, 3, 50.0, 0.9)], True),
        # Far ahead of a later deadline it waits for long, and then for each step.
        ([LINE, progress(5.0, 2), progress(7.0, 3), paced(7.5, 3, 300.0, 5.0), progress(71.0, 4)], True),
        # Another process, and one that was paused, are measured for themselves.
        ([LINE, progress(5.0, 2), progress(7.0, 3), launched(8.0, 3), progress(9.0, 4), progress(11.0, 5), progress(13.0, 6)], False),
        ([LINE, progress(5.0, 2), progress(7.0, 3), *resized(8.0, 3, {})], False),
    ],
)  # fmt: skip
def test_a_job_that_keeps_to_its_pacing_line_is_held_back_by_it(messages: list[Message], is_held_back: bool) -> None:
    assert after(*RUNNING, *messages).is_held_back == is_held_back


def test_an_evaluation_of_a_paced_job_is_work_on_its_line() -> None:
    line = PacingLine(end_s=100.0, end_work=60.0, s_per_step=2.0, phase_cost_steps={"eval": 5.0})
    on_it = ResizeJob(at=4.0, job=A, request=2, grant=cores(1), reason=WHY, pacing=line)
    phases = PhaseReported(at=29.0, job=A, phases=(PhaseProgress(name="eval", units_planned=2, units_done=1),))
    reports = [on_it, progress(11.0, 15), progress(13.0, 16), phases, progress(25.0, 17)]
    assert after(*RUNNING, *reports).is_held_back


def test_a_pause_counts_for_no_speed() -> None:
    paused = [*RUNNING, progress(4.0, 10), progress(6.0, 20), *resized(6.0, 2, {})]
    assert after(*paused).rate_sps == 0.0
    resumed = [*paused, *resized(100.0, 3, cores(1.0)), progress(100.0, 20), progress(102.0, 30)]
    assert after(*resumed).rate_sps == 5.0


def test_a_lost_node_takes_what_lay_there() -> None:
    other = NodeJoined(at=0.0, node=NodeId("other"), capacity=Resources(cores=2))
    spread = {**cores(1.0), NodeId("other"): Resources(cores=1)}
    both: list[Message] = [JOINED, other, SUBMITTED, launched(grant=spread), started(grant=spread)]
    one_lost = [*both, NodeLost(at=5.0, node=HERE)]
    assert (after(*one_lost).state, after(*one_lost).granted) == ("running", {NodeId("other"): Resources(cores=1)})
    assert after(*one_lost, NodeLost(at=6.0, node=NodeId("other"))).state == "queued"


def test_a_job_that_is_not_found_again_holds_nothing_and_waits() -> None:
    gone = after(*RUNNING, SteeringResumed(at=9.0, lost_at=8.0, granted={}))
    assert (gone.state, gone.granted) == ("queued", {})
    there = after(*RUNNING, SteeringResumed(at=9.0, lost_at=8.0, granted={A: cores(2.0)}))
    assert (there.state, there.granted) == ("running", cores(2.0))
    assert after(*RUNNING, SteeringResumed(at=9.0, lost_at=8.0, granted={A: {}})).state == "paused"


def test_a_second_submission_of_a_name_changes_nothing() -> None:
    again = JobSubmitted(at=5.0, spec=JobSpec(id=A, ceiling=Resources(cores=9)))
    status = after(*RUNNING, again, warned("duplicate-id"))
    assert (status.state, status.spec, status.warnings) == ("running", SPEC, {})


def test_warnings_are_there_until_they_are_over() -> None:
    assert set(after(*RUNNING, warned("infeasible"), warned("no-progress")).warnings) == {"infeasible", "no-progress"}
    assert after(*RUNNING, warned("infeasible"), warned("feasible")).warnings == {}
    assert after(*RUNNING, warned("no-progress"), progress(5.0, 1)).warnings == {}
    assert after(*RUNNING, warned("no-total"), progress(5.0, 1)).warnings == {}
    assert after(*RUNNING, warned("progress-read")).warnings == {}, "it needs no attention"
    measured = PhaseProgress(name="eval", units_planned=3, units_done=1, units_measured=1)
    phases = PhaseReported(at=6.0, job=A, phases=(measured,))
    status = after(*RUNNING, warned("unmeasured-phase"), phases)
    assert (status.warnings, status.phases) == ({}, (measured,))


@pytest.mark.parametrize("code", ["deadline-passed", "not-promised", "promise-lost", "promise-in-danger"])
def test_warnings_about_a_deadline_are_over_when_it_moves(code: str) -> None:
    moved = SpecChanged(at=6.0, spec=replace(SPEC, deadline_s=500.0))
    assert after(*RUNNING, warned(code), moved).warnings == {}
    assert after(*RUNNING, warned(code), replace(moved, spec=replace(SPEC, weight=2.0))).warnings.keys() == {code}


def test_a_promise_ends_the_warnings_that_there_is_none_and_not_that_it_is_in_danger() -> None:
    told = [warned("not-promised"), warned("promise-lost"), warned("promise-in-danger")]
    plan = PlanProposed(at=6.0, plan=Plan(revision=2, grants={}, promises={A: 101.0}), revision=2)
    assert after(*RUNNING, *told, plan).warnings.keys() == {"promise-in-danger"}


def test_warnings_of_all_jobs_are_over_with_the_next_plan() -> None:
    board = board_of(*RUNNING, warned("plan-refused", None))
    assert board.warnings == {"plan-refused": "beware of plan-refused"}
    board.fold(PlanProposed(at=6.0, plan=Plan(revision=2, grants={}), revision=2))
    assert board.warnings == {}


def test_the_line_to_the_deadline_starts_anew_when_the_deadline_moves() -> None:
    moved = SpecChanged(at=21.0, spec=JobSpec(id=A, ceiling=Resources(cores=2), deadline_s=220.0))
    status = after(*RUNNING, progress(11.0, 5))
    assert status.line_frac(56.0) == pytest.approx(0.1 + 0.9 * 0.5)
    assert after(*RUNNING, progress(11.0, 5), moved).line_frac(121.0) == pytest.approx(0.1 + 0.9 * 0.5)
    reweighted = SpecChanged(at=21.0, spec=replace(status.spec, weight=2.0))
    assert after(*RUNNING, progress(11.0, 5), reweighted).line_from == status.line_from, "nothing else moves it"


def test_the_forecast_is_asked_for_at_a_tick() -> None:
    forecast = Forecast(finish_s=90.0, std_s=1.0, earliest_finish_s=50.0, feasible=True)
    board = StatusBoard(lambda _: (forecast, 50.0))
    for message in (*RUNNING, TimerFired(at=4.0, timer=Timer("tick", A)), TimerFired(at=4.0, timer=Timer("tick", B))):
        board.fold(message)
    assert (board.job(A).forecast, board.job(A).forecast_at, board.job(A).steps_expected) == (forecast, 4.0, None)


def test_messages_about_unknown_jobs_are_harmless() -> None:
    board = board_of(JOINED, launched(), started(), progress(4.0, 1), warned("infeasible"))
    assert board.jobs() == ()
    assert board.nodes() == (Node(HERE, Resources(cores=2)),)
    with pytest.raises(KeyError):
        board.job(A)


def test_the_last_jobs_to_end_are_remembered() -> None:
    board = StatusBoard(n_ended=1)
    for message in (*RUNNING, JobSubmitted(at=4.0, spec=JobSpec(id=B, ceiling=Resources(cores=1)))):
        board.fold(message)
    board.fold(JobFinished(at=5.0, job=A, landed_at=5.0))
    assert [status.id for status in board.jobs()] == [A, B]
    board.fold(RejectJob(at=6.0, job=B, reason=WHY))
    assert [status.id for status in board.jobs()] == [B]


def test_a_board_goes_on_from_what_another_one_kept() -> None:
    board, again = board_of(*RUNNING, progress(4.0, 10), progress(6.0, 20)), StatusBoard()
    again.load(pickle.loads(pickle.dumps(board.dump())))
    for message in (*resized(7.0, 2, cores(0.5)), progress(8.0, 40)):
        board.fold(message)
        again.fold(message)
    assert again.jobs() == board.jobs()
