"""What a record says of the whole: each definition worked out by hand."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.scene import (
    applied,
    area,
    failed,
    finished,
    joined,
    node_lost,
    record_of,
    rejected,
    reported,
    started,
    submitted,
)

from punctual.core.commands import RequestPlan, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message, PlanProposed
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.history.cluster import ClusterHistory
from punctual.history.level import LevelCourse
from punctual.history.summary import Spread

A, B, C, D = (JobId(id) for id in "abcd")

#: On 8 devices: a waits 0 s and takes 20 s on 8; b waits 16 s, takes 10 s on 4 and is late; c is rejected; d runs on 2.
DAY: list[Message] = [
    joined(0.0),
    submitted(10.0, "a", deadline_s=20.0, weight=3.0),
    started(10.0, {"n": 8}, "a"),
    submitted(14.0, "b", deadline_s=20.0),
    submitted(15.0, "c", deadline_s=20.0, weight=2.0),
    rejected(15.0, "c"),
    finished(30.0, "a"),
    started(30.0, {"n": 4}, "b"),
    submitted(30.0, "d", deadline_s=100.0),
    started(35.0, {"n": 2}, "d"),
    reported(38.0, 25, "d"),
    finished(40.0, "b"),
    joined(50.0, "m", gpus=4),
]


def test_counts_and_deadlines() -> None:
    summary = record_of(DAY).summary()
    assert (summary.n_jobs, summary.n_finished, summary.n_failed, summary.n_rejected, summary.n_unfinished) == (
        4, 2, 0, 1, 1,
    )  # fmt: skip
    assert summary.n_never_started == 1
    assert (summary.n_deadlines, summary.n_deadlines_met, summary.n_deadlines_open) == (4, 1, 1)
    assert summary.deadlines_met_frac == 1 / 4
    assert summary.deadlines_met_weighted_frac == 3.0 / (3.0 + 1.0 + 2.0 + 1.0)


def test_times() -> None:
    summary = record_of(DAY).summary()
    assert summary.jct_s == Spread.of([20.0, 26.0])
    assert summary.tardiness_s == Spread.of([0.0, 6.0])
    assert summary.queued_s == Spread.of([0.0, 16.0, 5.0])
    assert summary.waiting_s == Spread.of([0.0, 16.0, 0.0, 5.0])
    assert summary.makespan_s == 40.0  # d is unfinished: up to the last message


def test_the_makespan_ends_with_the_last_job() -> None:
    ended = [*DAY, finished(60.0, "d"), joined(99.0, "k")]
    assert record_of(ended).summary().makespan_s == 50.0


def test_utilisation() -> None:
    summary = record_of([*DAY, finished(60.0, "d"), joined(99.0, "k")]).summary()
    device_s = 20 * 8 + 10 * 4 + 25 * 2
    assert summary.capacity_device_s == 40 * 8 + 10 * 12
    assert summary.granted_device_frac == device_s / (40 * 8 + 10 * 12)
    assert summary.granted_core_frac == summary.granted_device_frac
    assert summary.device_h == device_s / 3600
    assert summary.core_h == 2 * device_s / 3600


def test_capacity_goes_with_a_lost_node_and_changes_when_it_is_said_again() -> None:
    nodes = [joined(0.0), joined(0.0, "m"), submitted(10.0), joined(20.0, "m", gpus=2), node_lost(30.0, "m")]
    summary = record_of([*nodes, started(40.0, {"n": 1}), finished(50.0)]).summary()
    assert summary.capacity_device_s == 10 * 16 + 10 * 10 + 20 * 8


def test_what_only_the_caller_knows() -> None:
    alone_s = {A: 10.0, B: 8.0, D: 5.0}
    least_device_s = {A: 100.0, B: 30.0, D: 40.0}
    summary = record_of(DAY).summary(
        alone_s=alone_s, least_device_s=least_device_s, private_s=lambda job: job.n_present * alone_s.get(job.id, 0.0)
    )
    assert summary.efficiency == Spread.of([10 / 20, 8 / 10])  # b trains from 30 to 40
    assert summary.slowdown == Spread.of([20 / 10, 26 / 8])
    assert summary.useful_device_frac == (100.0 + 30.0 + 40.0 * 0.25) / (40 * 8)
    n_a, n_b = (4 + 16 * 2) / 20, (16 * 2 + 10 * 2) / 26
    assert summary.fairness == Spread.of([20 / (n_a * 10), 26 / (n_b * 8)])


def test_jobs_that_nothing_is_known_of_are_left_out() -> None:
    summary = record_of(DAY).summary(alone_s={B: 13.0}, private_s=lambda job: 13.0 if job.id == B else None)
    assert (summary.slowdown, summary.fairness) == (Spread.of([2.0]), Spread.of([2.0]))
    assert record_of(DAY).summary().useful_device_frac is None


def test_rounds_and_decisions() -> None:
    rounds: list[Message] = [
        PlanProposed(at=0.5, plan=Plan(revision=1, grants={}), revision=1),  # asked for before the record began
        RequestPlan(at=1.0, revision=1),
        PlanProposed(at=1.5, plan=Plan(revision=1, grants={}), revision=1),
        RequestPlan(at=2.0, revision=2),
        PlanProposed(at=4.0, plan=None, revision=1, cause="no time left"),
        WarnUser(at=4.0, job=None, reason=Reason("plan-refused", "no time left")),
        WarnUser(at=4.0, job=None, reason=Reason("infeasible", "late")),
        RequestPlan(at=5.0, revision=3),
    ]
    summary = record_of(rounds).summary()
    assert (summary.n_rounds, summary.n_plans_refused) == (3, 1)
    assert (summary.decision_mean_s, summary.decision_max_s) == (1.25, 2.0)


def test_resizes_preemptions_and_lost_work_per_job() -> None:
    messages = [
        submitted(0.0), started(0.0, {"n": 4}), reported(1.0, 30), applied(1.0, {"n": 2}), applied(2.0, {}, request=3),
        applied(3.0, {"n": 2}, request=4), reported(3.0, 20), reported(5.0, 30), finished(6.0),
        submitted(6.0, "b"), started(6.0, {"n": 1}, "b"), reported(7.0, 50, "b"),
        submitted(7.0, "c"),
    ]  # fmt: skip
    summary = record_of(messages).summary()
    assert (summary.resizes_per_job, summary.preemptions_per_job) == (1 / 2, 1 / 2)
    assert summary.work_lost_steps == 10
    assert summary.work_lost_frac == (10 / 40 + 0 / 50) / 2


def test_failures_are_added_up() -> None:
    again = [failed(2.0, retryable=True), started(3.0, {"n": 1}, request=2), failed(4.0)]
    summary = record_of([submitted(0.0), started(1.0, {"n": 1}), *again]).summary()
    assert (summary.n_failures, summary.n_failed) == (2, 1)


def test_nothing_at_all() -> None:
    summary = ClusterHistory().summary(alone_s={}, private_s=lambda _: 1.0)
    assert (summary.n_jobs, summary.makespan_s, summary.capacity_device_s) == (0, 0.0, 0.0)
    unknown = (summary.jct_s, summary.deadlines_met_frac, summary.granted_device_frac, summary.decision_mean_s)
    assert unknown == (None,) * 4


def test_a_row_is_flat_and_complete() -> None:
    row = record_of(DAY).summary().row()
    assert (row["n_jct"], row["jct_mean_s"], row["jct_max_s"]) == (2, 23.0, 26.0)
    assert (row["n_slowdown"], row["slowdown_p95"]) == (0, None)
    assert all(value is None or isinstance(value, int | float) for value in row.values())


def test_the_course() -> None:
    course = record_of(DAY).course()

    def steps(level: LevelCourse) -> list[tuple[float, float]]:
        return list(zip(level.at, level.mean, strict=True))

    assert steps(course.n_queued) == [(10.0, 0.0), (14.0, 1.0), (35.0, 0.0)]  # c comes and goes at one instant
    assert steps(course.devices) == [(10.0, 8.0), (30.0, 4.0), (35.0, 6.0), (40.0, 2.0)]
    assert steps(course.cores) == [(10.0, 16.0), (30.0, 8.0), (35.0, 12.0), (40.0, 4.0)]
    assert steps(course.n_holding) == [(10.0, 1.0), (35.0, 2.0), (40.0, 1.0)]
    assert course.devices_capacity.until_at == 50.0
    assert len(record_of(DAY).course(2).devices.at) <= 2


def test_a_record_without_segments_has_none_to_give() -> None:
    with pytest.raises(InvalidSpec, match="details=True"):
        record_of(DAY).segments()
    with pytest.raises(InvalidSpec, match="n_points"):
        ClusterHistory(n_points=0)


def test_a_message_from_the_past_counts_as_of_now() -> None:
    messages = [joined(0.0), submitted(0.0), started(0.0, {"n": 4}), reported(10.0, 1), applied(8.0, {"n": 2})]
    record = record_of([*messages, finished(20.0)])
    assert record.job(A).device_s == 10 * 4 + 10 * 2
    assert sum(record.course().devices.mean[i] * 10 for i in range(2)) == 10 * 4 + 10 * 2


# Histories of three jobs on two nodes, with everything that may happen to them.

HAPPENINGS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 4), st.sampled_from("nm")),
    max_size=80,
)


def history(happenings: list[tuple[int, int, str, int, str]]) -> list[Message]:
    messages: list[Message] = [joined(0.0), joined(0.0, "m"), *(submitted(0.0, job, deadline_s=20.0) for job in "abc")]
    at = 0.0
    for request, (after_s, kind, job, n, node) in enumerate(happenings, start=1):
        at += after_s
        held = {node: n} if n else {}
        match kind:
            case 0 | 1:
                messages.append(started(at, held or {node: 1}, job, request))
            case 2 | 3 | 4 | 5:
                messages.append(applied(at, held, job, request))
            case 6:
                messages += [failed(at, job, retryable=True)]
            case 7:
                messages += [node_lost(at, node), joined(at, node)]
            case 8:
                messages.append(reported(at, 10.0 * n, job))
            case 9:
                messages.append(finished(at, job))
    return [*messages, joined(at + 1.0)]


@given(HAPPENINGS)
def test_jobs_and_courses_add_up_to_the_same(happenings: list[tuple[int, int, str, int, str]]) -> None:
    record = record_of(history(happenings), details=True, n_points=7)
    jobs, course = record.jobs(), record.course()
    assert sum(job.device_s for job in jobs) == pytest.approx(area(course.devices))
    assert sum(job.core_s for job in jobs) == pytest.approx(area(course.cores))
    assert sum(job.waiting_s for job in jobs) == pytest.approx(area(course.n_queued))
    segments = record.segments()
    for job in jobs:
        own = [segment for segment in segments if segment.job == job.id]
        assert sum(one.n_devices * (one.until_at - one.from_at) for one in own) == pytest.approx(job.device_s)
        life_s = (job.ended_at if job.ended_at is not None else course.devices.until_at) - job.submitted_at
        assert sum(one.until_at - one.from_at for one in own) + job.waiting_s == pytest.approx(life_s)
        assert all(one.until_at <= other.from_at for one, other in pairwise(own))


def test_memory_is_a_matter_of_jobs_not_of_messages() -> None:
    """100,000 jobs must stay under 500 MB: 5,000 bytes each; and reports cost nothing that stays."""
    record = ClusterHistory()
    tracemalloc.start()
    try:
        for i in range(2_000):
            for message in (submitted(i, f"{i}"), started(i, {"n": 1}, f"{i}"), finished(i + 0.5, f"{i}")):
                record.add(message)
        per_job_bytes = tracemalloc.get_traced_memory()[0] / 2_000
        record.add(submitted(2_000.0))
        before_bytes = tracemalloc.get_traced_memory()[0]
        for i in range(5_000):
            record.add(reported(2_000.0 + i, i))
        grown_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert per_job_bytes < 2_500
    assert grown_bytes < 10_000
