"""What a record says of each job, worked out by hand."""

from dataclasses import replace

from tests.history.scene import (
    applied,
    chain,
    failed,
    finished,
    grant_failed,
    job_of,
    joined,
    launched,
    node_lost,
    on,
    record_of,
    redeclared,
    rejected,
    reported,
    resumed,
    started,
    stop_asked,
    stop_requested,
    stopped,
    submitted,
)

from punctual.core.commands import ResizeJob
from punctual.core.events import JobFailed, Message
from punctual.core.ids import JobId
from punctual.core.reason import Reason
from punctual.history.cluster import JobRecord, Segment

#: Waits 5 s, runs on 4 devices, on 2, is paused for 4 s, goes on with 4, lands at 40 and is gone at 41.
RUN: list[Message] = [
    joined(0.0),
    submitted(10.0, deadline_s=30.0, weight=2.0),
    launched(10.0),
    started(15.0, {"n": 4}),
    applied(20.0, {"n": 2}, request=2),
    reported(22.0, 40),
    applied(26.0, {}, request=3),
    applied(30.0, {"n": 4}, request=4),
    reported(40.0, 100, landed=True),
    finished(41.0, landed_at=40.0),
]


def test_a_whole_job() -> None:
    assert job_of(RUN) == JobRecord(
        id=JobId("a"),
        status="finished",
        submitted_at=10.0,
        started_at=15.0,
        landed_at=40.0,
        ended_at=41.0,
        deadline_s=30.0,
        weight=2.0,
        jct_s=30.0,
        on_time=True,
        tardiness_s=0.0,
        queued_s=5.0,
        waiting_s=5.0 + 4.0,
        device_s=5 * 4 + 6 * 2 + 11 * 4,
        core_s=2 * (5 * 4 + 6 * 2 + 11 * 4),
        n_resizes=1,
        n_preemptions=1,
        n_failures=0,
        n_grants_failed=0,
        steps_done=100,
        steps_total=100,
        work_lost_steps=0,
        n_present=1.0,
    )


def test_times_that_follow() -> None:
    job = job_of(RUN)
    assert job.training_s == 25.0
    assert job.done_frac == 1.0
    running = job_of(RUN[:6])
    assert running.training_s is None
    assert running.done_frac == 0.4


def test_a_job_that_goes_on_counts_up_to_the_last_message() -> None:
    job = job_of([*RUN[:6], submitted(24.0, "b")])
    assert job.status == "unfinished"
    assert job.device_s == 5 * 4 + 4 * 2
    assert (job.landed_at, job.ended_at, job.jct_s, job.tardiness_s, job.on_time) == (None,) * 5
    assert job_of([*RUN[:7], submitted(28.0, "b")]).waiting_s == 5.0 + 2.0


def test_a_job_that_never_started() -> None:
    job = job_of([submitted(10.0), submitted(17.0, "b")])
    assert (job.started_at, job.queued_s, job.training_s) == (None, None, None)
    assert (job.waiting_s, job.device_s, job.done_frac) == (7.0, 0.0, 0.0)


def test_what_was_only_asked_for_changes_nothing() -> None:
    resize = ResizeJob(at=22.0, job=JobId("a"), request=9, grant=on({"n": 8}), reason=Reason("r", "r"))
    assert job_of([*RUN[:6], resize, *RUN[6:]]) == job_of(RUN)


def test_late_by_how_much() -> None:
    late = [RUN[0], submitted(10.0, deadline_s=25.0), *RUN[2:]]
    assert (job_of(late).on_time, job_of(late).tardiness_s) == (False, 5.0)


def test_the_deadline_is_the_one_in_force_at_landing() -> None:
    tightened, too_late = redeclared(20.0, deadline_s=25.0, weight=3.0), redeclared(40.5, deadline_s=99.0)
    job = job_of([*RUN[:5], tightened, *RUN[5:9], too_late, RUN[9]])
    assert (job.deadline_s, job.weight, job.on_time, job.tardiness_s) == (25.0, 3.0, False, 5.0)


def test_a_deadline_that_is_changed_twice_and_taken_back() -> None:
    changes = [redeclared(11.0, deadline_s=20.0), redeclared(12.0, deadline_s=None), redeclared(13.0, deadline_s=50.0)]
    assert job_of([*RUN[:3], *changes, *RUN[3:]]).deadline_s == 50.0
    assert job_of([*RUN[:3], *changes[:2], *RUN[3:]]).on_time is None


def test_a_running_job_past_its_deadline_is_not_on_time() -> None:
    assert job_of([*RUN[:8], submitted(40.0, "b")]).on_time is None
    assert job_of([*RUN[:8], submitted(40.5, "b")]).on_time is False


def test_a_failed_job_has_no_completion_time() -> None:
    job = job_of([*RUN[:6], failed(23.0)])
    assert (job.status, job.on_time, job.jct_s, job.tardiness_s, job.n_failures) == ("failed", False, None, None, 1)
    assert job.device_s == 5 * 4 + 3 * 2


def test_a_job_that_fails_after_landing_keeps_its_landing() -> None:
    job = job_of([*RUN[:9], failed(41.0)])
    assert (job.status, job.on_time, job.jct_s) == ("failed", True, 30.0)


def test_a_job_that_lands_and_goes_on_has_not_landed() -> None:
    assert job_of([*RUN[:9], reported(40.5, 100)]).landed_at is None


def test_a_rejected_job() -> None:
    job = job_of([submitted(10.0, deadline_s=30.0), rejected(10.0), submitted(90.0, "b")])
    assert (job.status, job.on_time, job.waiting_s, job.ended_at) == ("turned away", False, 0.0, 10.0)


def test_a_job_that_is_given_up_after_it_has_run_failed() -> None:
    given_up = [failed(23.0, retryable=True), launched(24.0, request=4), grant_failed(25.0, {})]
    job = job_of([*RUN[:6], *given_up, rejected(25.0, code="not-started")])
    assert (job.status, job.n_failures, job.n_grants_failed, job.waiting_s) == ("failed", 1, 1, 5.0 + 2.0)


def test_a_job_that_is_started_again_waits_between_and_is_not_resized() -> None:
    again = [
        failed(22.5, retryable=True),
        launched(25.0, request=3),
        started(26.0, {"n": 8}, request=3),
    ]
    job = job_of([*RUN[:6], *again, reported(27.0, 30), finished(30.0)])
    assert (job.status, job.n_failures, job.n_resizes, job.n_preemptions) == ("finished", 1, 1, 0)
    assert (job.started_at, job.waiting_s) == (15.0, 5.0 + 3.5)
    assert job.device_s == 5 * 4 + 2.5 * 2 + 4 * 8
    assert job.work_lost_steps == 10


def test_a_failure_that_may_be_retried_is_not_the_end() -> None:
    waits = job_of([*RUN[:6], failed(22.5, retryable=True), submitted(30.0, "b")])
    assert (waits.status, waits.n_failures, waits.waiting_s) == ("unfinished", 1, 5.0 + 7.5)
    given_up = job_of([*RUN[:6], failed(22.5, retryable=True), rejected(22.5, code="failed-again")])
    assert (given_up.status, given_up.ended_at, given_up.n_failures) == ("failed", 22.5, 1)


def test_a_job_that_is_not_found_again_waits_for_another_process() -> None:
    job = job_of([*RUN[:6], resumed(23.0), applied(23.5, {"n": 2}), submitted(30.0, "b")])
    assert (job.status, job.device_s, job.waiting_s) == ("unfinished", 5 * 4 + 3 * 2, 5.0 + 7.0)
    assert job_of([*RUN[:6], resumed(23.0, a={"n": 3}), *RUN[6:]]).device_s == 5 * 4 + 3 * 2 + 3 * 3 + 11 * 4


def test_a_second_job_of_a_name_changes_nothing() -> None:
    assert job_of([*RUN[:6], submitted(23.0, deadline_s=1.0), *RUN[6:]]) == job_of(RUN)


def test_a_lost_node_ends_the_process_of_a_job_that_was_nowhere_else() -> None:
    lost = [node_lost(24.0), failed(24.5, retryable=True)]
    job = job_of([*RUN[:6], *lost, applied(25.0, {"n": 2}), submitted(30.0, "b")])
    assert (job.n_failures, job.n_preemptions, job.status) == (1, 0, "unfinished")
    assert job.device_s == 5 * 4 + 4 * 2
    assert job.waiting_s == 5.0 + 6.0


def test_a_lost_node_takes_what_lay_there() -> None:
    wide = [joined(0.0), joined(0.0, "m"), submitted(10.0), started(10.0, {"n": 4, "m": 2})]
    job = job_of([*wide, node_lost(15.0), node_lost(16.0, "elsewhere"), finished(20.0)])
    assert job.device_s == 5 * 6 + 5 * 2
    assert (job.n_failures, job.n_resizes) == (0, 1)


def test_a_move_is_a_resize_and_rounding_is_none() -> None:
    moved = [submitted(0.0), started(0.0, {"n": 2}), applied(1.0, {"m": 2}), applied(2.0, {"m": 2}, request=3)]
    assert job_of(moved).n_resizes == 1


def test_a_late_answer_changes_nothing() -> None:
    late = applied(24.0, {"n": 8}, request=1)
    assert job_of([*RUN[:6], late, *RUN[6:]]) == job_of(RUN)
    assert job_of([*RUN, applied(50.0, {"n": 8}, request=9)]).device_s == job_of(RUN).device_s


def test_a_late_answer_that_the_process_was_gone_costs_no_later_one_its_grant() -> None:
    """The scheduler passes it over, too: it had told of that end, or asked for something else, before."""
    again = [failed(22.5, retryable=True), launched(25.0, request=4), started(26.0, {"n": 8}, request=4)]
    late = JobFailed(at=27.0, job=JobId("a"), cause="unknown", retryable=True, request=3, is_lost=True)
    rest = [reported(28.0, 30), finished(30.0)]
    alike = job_of([*RUN[:6], *again, *rest])
    assert job_of([*RUN[:6], *again, late, *rest]) == alike
    assert job_of([*RUN[:6], again[0], replace(late, at=23.0), *again[1:], *rest]) == alike
    assert [step.kind for step in chain([*RUN[:6], *again, late], JobId("a"))].count("failed") == 1


def test_a_failed_resize_says_what_is_held() -> None:
    job = job_of([*RUN[:6], grant_failed(24.0, {"n": 3}), *RUN[6:]])
    assert (job.n_grants_failed, job.n_resizes) == (1, 2)
    assert job.device_s == 5 * 4 + 4 * 2 + 2 * 3 + 11 * 4


def test_a_failed_launch_is_no_failure_of_the_job() -> None:
    job = job_of([*RUN[:3], grant_failed(11.0, {}, request=1), *RUN[3:]])
    assert (job.n_grants_failed, job.n_failures, job.device_s) == (1, 0, job_of(RUN).device_s)


def test_a_waiting_job_that_is_stopped_has_ended() -> None:
    job = job_of([submitted(10.0), stop_requested(14.0), rejected(14.0, code="stopped"), submitted(20.0, "b")])
    assert (job.status, job.ended_at, job.waiting_s) == ("stopped", 14.0, 4.0)


def test_a_job_that_is_stopped_while_it_starts_ends_with_its_process() -> None:
    stopping = [*RUN[:3], stop_requested(12.0), stop_asked(12.0)]
    assert job_of(stopping).status == "unfinished"
    assert job_of([*stopping, stop_requested(13.0)]).status == "unfinished"
    assert job_of([*stopping, stopped(14.0)]).ended_at == 14.0


def test_a_running_job_that_is_stopped_ends_with_its_process() -> None:
    job = job_of([*RUN[:6], stop_requested(23.0), stop_asked(23.0), stopped(25.0)])
    assert (job.status, job.ended_at, job.device_s) == ("stopped", 25.0, 5 * 4 + 5 * 2)


def test_of_a_job_that_was_stopped_nobody_can_say_whether_it_would_have_been_in_time() -> None:
    """Nor is it told: its user has given its deadline up."""
    job = job_of([submitted(10.0, deadline_s=30.0), *RUN[1:6], stop_requested(23.0), stop_asked(23.0), stopped(25.0)])
    assert (job.status, job.on_time) == ("stopped", None)


def test_jobs_in_the_system_on_average() -> None:
    record = record_of([submitted(0.0), submitted(4.0, "b"), submitted(6.0, "c"), finished(10.0), finished(12.0, "b")])
    a, b, c = record.jobs()
    assert a.n_present == (4 * 1 + 2 * 2 + 4 * 3) / 10
    assert b.n_present == (2 * 2 + 4 * 3 + 2 * 2) / 8
    assert c.n_present == (4 * 3 + 2 * 2) / 6


def test_messages_about_unknown_jobs_are_passed_over() -> None:
    strangers = [started(1.0, {"n": 1}), applied(2.0, {}), reported(3.0, 5), finished(4.0), failed(4.0), rejected(4.0),
                 grant_failed(4.0, {}), stop_requested(4.0), stop_asked(4.0), launched(4.0), redeclared(4.0)]  # fmt: skip
    assert record_of(strangers).jobs() == []


def test_segments() -> None:
    record = record_of([*RUN, submitted(41.0, "b"), started(42.0, {"n": 2, "m": 1}, "b"), joined(50.0)], details=True)
    a, b = JobId("a"), JobId("b")
    assert record.segments() == [
        Segment(a, 1, 4, 8.0, 15.0, 20.0),
        Segment(a, 1, 2, 4.0, 20.0, 26.0),
        Segment(a, 1, 4, 8.0, 30.0, 41.0),
        Segment(b, 2, 3, 6.0, 42.0, 50.0),
    ]
