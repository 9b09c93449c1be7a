"""What a thinned journal still tells."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.journal.course import JOB, NODE, finished, holding, just_running, report, resize, submitted, tick

from punctual.core.codec import encode, kind_of
from punctual.core.commands import ResizeJob, WarnUser
from punctual.core.control import PhaseProgress
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobStarted,
    Message,
    NodeLost,
    PhaseReported,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.history.cluster import ClusterHistory, JobRecord
from punctual.history.run import RunSummary, history_of, series, summarize
from punctual.journal.compaction import SPACING_S_MAX, SPACING_S_MIN, CompactionRules, Row

M = TypeVar("M")


def rows_of(messages: Iterable[Message]) -> list[Row]:
    return [(number, kind_of(message), encode(message)) for number, message in enumerate(messages, start=1)]


def thinned(messages: list[Message]) -> list[Message]:
    removed = set(CompactionRules().take(rows_of(messages)))
    return [message for number, message in enumerate(messages, start=1) if number not in removed]


def of_kind(messages: list[Message], kind: type[M]) -> list[M]:
    return [message for message in messages if isinstance(message, kind)]


def course(n_ticks: int) -> list[Message]:
    return [message for messages in just_running(n_ticks) for message in messages]


def test_timers_and_requests_for_plans_go() -> None:
    kinds = {kind_of(message) for message in thinned(course(500))}
    assert kinds == {
        "JobSubmitted", "LaunchJob", "JobStarted", "ProgressReported", "ResizeJob", "GrantApplied",
    }  # fmt: skip


def test_reports_stand_apart_by_a_share_of_the_job_s_age() -> None:
    """Those before a decision are kept as well, so there is none here."""
    messages = [*submitted(), *(report(1000.0 + i, float(i)) for i in range(80_000))]
    at = [message.at for message in of_kind(thinned(messages), ProgressReported)]
    gaps = [(after - before, before - 1000.0) for before, after in pairwise(at[:-1])]
    assert all(SPACING_S_MIN <= gap_s <= SPACING_S_MAX for gap_s, _ in gaps)
    assert all(gap_s <= max(SPACING_S_MIN, 0.005 * age_s) + 3.0 for gap_s, age_s in gaps)
    assert at[0] == 1000.0
    assert at[-1] == 80_999.0, "the last one is what is known now"
    assert len(at) < 1500


def test_the_report_before_a_decision_is_kept() -> None:
    """`punctual why` tells what a decision rested on."""
    messages = [*submitted(), *tick(1001.0, 1.0), *tick(1002.0, 2.0), *tick(1003.0, 3.0), *resize(1003.1, 2, 2.0)]
    messages += [*tick(1004.0, 4.0), *tick(1004.5, 5.0)]
    assert [message.steps_done for message in of_kind(thinned(messages), ProgressReported)] == [1.0, 3.0, 5.0]


def test_a_report_that_says_something_else_is_kept() -> None:
    reports = [report(1001.0, 1.0), report(1002.0, 2.0), report(1003.0, 3.0, landed=True)]
    reports += [report(1003.5, 3.0, landed=True)]
    kept = of_kind(thinned([*submitted(), *reports, *finished(1004.0, 3.0)]), ProgressReported)
    assert [message.at for message in kept] == [1001.0, 1002.0, 1003.0, 1004.0]


def test_each_start_begins_anew() -> None:
    messages = [*submitted(), *tick(1001.0, 1.0), *tick(1002.0, 2.0)]
    messages += [JobFailed(at=1002.1, job=JOB, cause="lost", retryable=True)]
    messages += [
        JobStarted(at=1003.0, job=JOB, request=2, granted=holding(1.0)),
        *tick(1003.5, 0.0),
        *tick(1004.0, 1.0),
    ]
    assert [message.at for message in of_kind(thinned(messages), ProgressReported)] == [1001.0, 1002.0, 1003.5, 1004.0]


def test_commands_that_change_no_grant_are_thinned_out_with_their_answers() -> None:
    messages = [*submitted()]
    for i_tick in range(200):
        messages += [*tick(1000.0 + i_tick, float(i_tick)), *resize(1000.5 + i_tick, 2 + i_tick, 1.0)]
    kept = thinned(messages)
    commands, answers = of_kind(kept, ResizeJob), of_kind(kept, GrantApplied)
    assert 30 <= len(commands) <= 45
    assert [command.request for command in commands] == [answer.request for answer in answers]
    assert len(of_kind(kept, ProgressReported)) <= 2 * len(commands) + 2


def test_changes_of_a_grant_are_all_kept_and_so_is_what_was_given() -> None:
    messages = [*submitted()]
    for i_resize in range(50):
        messages += resize(1001.0 + i_resize, 2 + i_resize, 1.0 + i_resize % 3)
    messages += [GrantApplied(at=1100.0, job=JOB, request=99, granted=holding(0.5))]
    messages += [GrantFailed(at=1101.0, job=JOB, request=99, granted=holding(0.5), cause="read-only")]
    assert [m for m in messages if isinstance(m, ResizeJob | GrantApplied | GrantFailed)] == [
        m for m in thinned(messages) if isinstance(m, ResizeJob | GrantApplied | GrantFailed)
    ]


def test_plans_that_prove_something_are_kept_with_the_command_they_led_to() -> None:
    messages = [
        *submitted(),
        *resize(1001.0, 2, 2.0, bound=10.0),
        *resize(1002.0, 3, 2.0, bound=11.0),  # changes no grant
        *resize(1002.5, 4, 1.0),  # proves nothing
        PlanProposed(at=1003.0, plan=None, revision=5, cause="it crashed"),
    ]
    assert [message.revision for message in of_kind(thinned(messages), PlanProposed)] == [2, 5]


def test_phases_are_thinned_out_like_progress() -> None:
    reports = [
        PhaseReported(at=1000.0 + i, job=JOB, phases=(PhaseProgress(name="a", units_planned=100, units_done=i),))
        for i in range(100)
    ]
    kept = of_kind(thinned([*submitted(), *reports]), PhaseReported)
    assert len(kept) <= 22
    assert kept[0] == reports[0]
    assert kept[-1] == reports[-1]


def test_what_was_told_the_user_is_kept() -> None:
    spec = JobSpec(id=JOB, ceiling=Resources(4.0), deadline_s=100.0)
    told: list[Message] = [
        SpecChanged(at=1001.0, spec=spec),
        WarnUser(at=1002.0, job=JOB, reason=Reason("late", "it will be late", {"finish_s": 120.0})),
    ]
    assert set(map(id, told)) <= set(map(id, thinned([*submitted(), *tick(1001.0, 1.0), *told])))


def test_jobs_do_not_mix() -> None:
    other = JobId("other")
    mixed: list[Message] = [*submitted()]
    for i in range(100):
        mixed.append(report(1001.0 + i, float(i)))
        mixed.append(replace(report(1001.5 + i, float(i)), job=other))
    alone = [message for message in mixed if getattr(message, "job", JOB) != other]
    kept = [message for message in thinned(mixed) if getattr(message, "job", JOB) != other]
    assert kept == thinned(alone)


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 300))
@settings(deadline=None, max_examples=examples(40))
def test_it_does_not_matter_in_which_pieces_a_journal_is_read(sizes: list[int], n_ticks: int) -> None:
    rows = rows_of(course(n_ticks))
    thinning, removed, start = CompactionRules(), list[int](), 0
    for size in [*sizes, len(rows)]:
        removed += thinning.take(rows[start : start + size])
        start += size
    assert sorted(removed) == sorted(CompactionRules().take(rows))


def test_what_a_new_thinning_takes_in_the_middle_stays_right() -> None:
    """After a restart of the process some messages more are kept, and none too few."""
    rows = rows_of(course(400))
    removed = set(CompactionRules().take(rows[:700])) | set(CompactionRules().take(rows[700:]))
    assert removed <= set(CompactionRules().take(rows)) | {
        number for number, kind, _ in rows if kind == "ProgressReported"
    }
    assert not removed & {number for number, kind, _ in rows if kind in ("ResizeJob", "GrantApplied", "JobStarted")}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tick"] * 12 + ["pace", "resize", "answer", "fail", "deadline", "resume", "lose"]),
        st.floats(0.1, 400.0),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=120,
)


def played(steps: list[tuple[str, float, int]], *, lands: bool) -> list[Message]:
    """A run that all sorts of things happen to."""
    messages, at, request, done, cores = submitted(), 1000.1, 1, 0.0, 1.0
    for what, passed_s, number in steps:
        at, request, done = at + passed_s, request + 1, done + number
        cores = 1.0 + number if what == "resize" else cores
        match what:
            case "tick":
                messages += tick(at, done)
            case "pace" | "resize":
                messages += resize(at, request, cores)
            case "fail":
                messages += [JobFailed(at=at, job=JOB, cause="lost", retryable=True)]
                messages += [JobStarted(at=at + 0.05, job=JOB, request=request, granted=holding(cores))]
            case "answer":
                messages += [GrantApplied(at=at, job=JOB, request=request, granted=holding(cores))]
            case "resume":
                held = {JOB: holding(number / 2.0)} if number else {}
                messages += [SteeringResumed(at=at, lost_at=at - passed_s / 2.0, granted=held)]
            case "lose":
                messages += [NodeLost(at=at, node=NODE)]
            case "deadline":
                spec = JobSpec(id=JOB, ceiling=Resources(4.0), deadline_s=1000.0 * (1 + number))
                messages += [SpecChanged(at=at, spec=spec)]
    # A journal goes on behind what is thinned out.
    return messages + (finished(at + 1.0, done + 1.0) if lands else [report(at + 1.0, done)])


@given(STEPS, st.booleans())
@settings(deadline=None, max_examples=examples(150))
def test_the_numbers_of_a_run_stay_what_they_were(steps: list[tuple[str, float, int]], lands: bool) -> None:
    messages = played(steps, lands=lands)
    kept = thinned(messages)
    before, after = summarize(messages, JOB), summarize(kept, JOB)
    assert _exact(after) == _exact(before)
    assert after.granted_core_s == pytest.approx(before.granted_core_s, rel=1e-12)
    assert _jobs(kept) == _jobs(messages)
    assert series(history_of(kept, JOB)).grant == series(history_of(messages, JOB)).grant
    assert series(history_of(kept, JOB)).deadlines == series(history_of(messages, JOB)).deadlines
    assert set(series(history_of(kept, JOB)).progress) <= set(series(history_of(messages, JOB)).progress)
    assert series(history_of(kept, JOB)).progress[-1:] == series(history_of(messages, JOB)).progress[-1:]


def _jobs(messages: list[Message]) -> list[JobRecord]:
    record = ClusterHistory()
    for message in messages:
        record.add(message)
    return list(record.jobs())


def _exact(summary: RunSummary) -> dict[str, object]:
    return {
        name: getattr(summary, name)
        for name in RunSummary.__dataclass_fields__
        # How long usage was short is told from the readings that are kept.
        if name not in ("granted_core_s", "shortfall")
    }  # fmt: skip


@given(STEPS)
@settings(deadline=None, max_examples=examples(60))
def test_the_curve_of_progress_is_never_far_from_what_it_was(steps: list[tuple[str, float, int]]) -> None:
    """Between two points that are kept lies no longer than the spacing allows, unless nothing was reported."""
    messages = played(steps, lands=True)
    all_at = [message.at for message in of_kind(messages, ProgressReported)]
    kept_at = [message.at for message in of_kind(thinned(messages), ProgressReported)]
    for before, after in pairwise(kept_at):
        missing = [at for at in all_at if before < at < after]
        assert max(missing, default=-inf) - before < SPACING_S_MAX
