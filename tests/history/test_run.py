"""Numbers of a run from its messages, worked out by hand."""

from dataclasses import astuple, replace
from typing import Any

import pytest
from tests.history.scene import chain

from punctual.core.commands import ResizeJob, WarnUser
from punctual.core.control import PhaseProgress
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeLost,
    PhaseReported,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.history.job import PhaseCourse
from punctual.history.run import DeadlineSet, RunSummary, Warned, history_of, series, summarize, summarize_all
from punctual.history.user_requests import user_request

JOB = JobId("a")
NODE = NodeId("n")
SPEC = JobSpec(id=JOB, ceiling=Resources(2.0), work_steps=100, deadline_s=10.0)


def on(cores: float) -> Allocation:
    return {NODE: Resources(cores)}


def submitted(at: float = 100.0) -> JobSubmitted:
    return JobSubmitted(at=at, spec=SPEC)


def started(at: float, cores: float, request: int = 1) -> JobStarted:
    return JobStarted(at=at, job=JOB, request=request, granted=on(cores))


def applied(at: float, cores: float) -> GrantApplied:
    return GrantApplied(at=at, job=JOB, request=2, granted=on(cores))


def progress(at: float, steps: float, used_core_s: float, *, landed: bool = False, in_flight: float = 0.0) -> Message:
    return ProgressReported(
        at=at, job=JOB, steps_done=steps, steps_total=100, unit_at=at - 0.25, used_core_s=used_core_s,
        in_flight_core_s=in_flight, landed=landed,
    )  # fmt: skip


def warned(at: float, code: str, job: JobId | None = JOB, **facts: float) -> WarnUser:
    return WarnUser(at=at, job=job, reason=Reason(code, f"it is {code}", facts))


RUN: list[Message] = [
    submitted(),
    started(101.0, 2.0),
    progress(103.0, 20, 4.0),
    applied(103.0, 1.0),
    applied(104.0, 1.0),
    progress(107.0, 60, 8.0),
    applied(107.0, 0.5),
    progress(109.25, 100, 9.5, landed=True, in_flight=0.25),
    applied(109.25, 2.0),
    progress(110.25, 100, 11.0, landed=True, in_flight=1.75),
    JobFinished(at=110.5, job=JOB, landed_at=109.0),
]


def test_a_whole_run() -> None:
    assert summarize(RUN, JOB) == RunSummary(
        job=JOB,
        submitted_at=100.0,
        started_at=101.0,
        landed_at=109.0,
        ended_at=110.5,
        deadlines=(DeadlineSet(at=100.0, deadline_s=10.0),),
        deadline_s=10.0,
        deviation_s=-1.0,
        deviation_frac=-0.1,
        on_time=True,
        steps_done=100,
        steps_total=100,
        used_core_s=9.25,
        granted_core_s=2 * 2.0 + 4 * 1.0 + 2 * 0.5,
        ceiling_core_s=8 * 2.0,
        n_resizes=2,
        warnings=(),
        unsteered_s=0.0,
        status="finished",
        exit_code=0,
        cause="",
        controller="remaining-cost",
    )


def test_deviation_is_relative_to_the_deadline_in_force_at_landing() -> None:
    tightened = SpecChanged(at=104.0, spec=replace(SPEC, deadline_s=8.0))
    relaxed_too_late = SpecChanged(at=109.5, spec=replace(SPEC, deadline_s=20.0))
    summary = summarize([*RUN[:5], tightened, *RUN[5:10], relaxed_too_late, RUN[10]], JOB)
    assert summary.deadline_s == 8.0
    assert summary.deviation_s == 1.0
    assert summary.deviation_frac == 0.125
    assert summary.on_time is False
    assert [one.deadline_s for one in summary.deadlines] == [10.0, 8.0, 20.0]


def test_landing_exactly_at_the_deadline_is_on_time() -> None:
    summary = summarize([submitted(99.0), *RUN[1:]], JOB)
    assert summary.deviation_s == 0.0
    assert summary.on_time is True


def test_a_change_of_something_else_sets_no_deadline() -> None:
    same = SpecChanged(at=104.0, spec=replace(SPEC, weight=2.0))
    assert len(summarize([*RUN, same], JOB).deadlines) == 1


def test_a_run_without_a_deadline() -> None:
    free = JobSubmitted(at=100.0, spec=replace(SPEC, deadline_s=None))
    summary = summarize([free, *RUN[1:]], JOB)
    assert (summary.deadline_s, summary.deviation_s, summary.deviation_frac, summary.on_time) == (None,) * 4
    assert series(history_of([free, *RUN[1:]], JOB)).deadlines == ()


def test_a_run_that_goes_on() -> None:
    summary = summarize(RUN[:6], JOB)
    assert summary.landed_at is None
    assert summary.on_time is None
    assert summary.status is None
    assert summary.exit_code is None
    assert summary.used_core_s == 8.0
    assert summary.granted_core_s == 2 * 2.0 + 4 * 1.0


def test_a_ceiling_counts_from_the_start_and_as_long_as_it_was_in_force() -> None:
    before_start = SpecChanged(at=100.5, spec=replace(SPEC, ceiling=Resources(3.0)))
    lowered = SpecChanged(at=104.0, spec=replace(SPEC, ceiling=Resources(1.0)))
    summary = summarize([*RUN[:1], before_start, *RUN[1:5], lowered, *RUN[5:]], JOB)
    assert summary.ceiling_core_s == 3 * 3.0 + 5 * 1.0


def test_a_run_that_has_just_been_submitted() -> None:
    summary = summarize([submitted()], JOB)
    assert (summary.started_at, summary.granted_core_s, summary.used_core_s, summary.n_resizes) == (None, 0.0, 0.0, 0)
    assert summary.ceiling_core_s == 0.0
    assert summary.steps_total == 100


def test_a_failed_run_was_not_on_time() -> None:
    summary = summarize([*RUN[:6], JobFailed(at=108.0, job=JOB, cause="exit 3", exit_code=3)], JOB)
    assert summary.on_time is False
    assert (summary.status, summary.exit_code, summary.cause) == ("failed", 3, "exit 3")
    assert summary.granted_core_s == 2 * 2.0 + 5 * 1.0


def test_a_run_that_fails_after_landing_keeps_its_landing() -> None:
    summary = summarize([*RUN[:10], JobFailed(at=110.5, job=JOB, cause="exit 1", exit_code=1)], JOB)
    assert summary.landed_at == 109.0
    assert summary.on_time is True
    assert summary.status == "failed"


def test_a_job_that_goes_on_after_landing_counts_until_its_last_landing() -> None:
    again = [progress(104.0, 100, 3.0, landed=True), progress(106.0, 100, 4.0), progress(108.0, 100, 5.0, landed=True)]
    messages = [submitted(), started(100.5, 1.0), *again, progress(109.0, 100, 5.5, landed=True)]
    summary = summarize([*messages, JobFinished(at=109.0, job=JOB, landed_at=107.75)], JOB)
    assert (summary.landed_at, summary.used_core_s) == (107.75, 5.0)
    assert summarize(messages[:4], JOB).landed_at is None


def test_a_program_lands_when_it_has_its_results() -> None:
    """A last evaluation that nobody declared: the last step was in time, and what came after it was not."""
    messages: list[Message] = [submitted(), started(100.5, 1.0), progress(109.0, 100, 8.0, landed=True)]
    after = [progress(at, 100, at - 101.0, landed=True) for at in (110.0, 111.0, 114.0)]
    before = summarize([*messages, *after], JOB)
    assert (before.landed_at, before.used_core_s, before.worked_on_s) == (108.75, 8.0, 0.0)
    summary = summarize([*messages, *after, JobFinished(at=114.25, job=JOB, landed_at=113.5)], JOB)
    assert (summary.landed_at, summary.worked_on_s, summary.used_core_s) == (113.5, 4.75, 10.0)
    assert summary.on_time is False


def test_starting_again_is_no_resize_and_holds_nothing_between() -> None:
    again: list[Message] = [JobFailed(at=105.0, job=JOB, cause="lost", retryable=True), started(107.0, 1.0, 2)]
    summary = summarize(
        [submitted(), started(101.0, 1.0), *again, JobFinished(at=109.0, job=JOB, landed_at=109.0)], JOB
    )
    assert summary.granted_core_s == 4.0 + 2.0
    assert summary.n_resizes == 0
    assert summary.started_at == 101.0
    assert summary.status == "finished"


def test_what_a_process_used_that_failed_counts_too() -> None:
    failed = JobFailed(at=105.0, job=JOB, cause="lost", retryable=True)
    messages: list[Message] = [submitted(), started(101.0, 1.0), progress(104.0, 40, 3.0), failed, started(107.0, 1.0)]
    assert summarize(messages, JOB).used_core_s == 3.0
    landed = progress(112.0, 100, 4.0, landed=True, in_flight=0.5)
    assert summarize([*messages, progress(109.0, 60, 1.0)], JOB).used_core_s == 3.0 + 1.0
    assert summarize([*messages, landed], JOB).used_core_s == 3.0 + 4.0 - 0.5


def test_a_failed_resize_says_what_is_held() -> None:
    failed = GrantFailed(at=103.0, job=JOB, request=2, granted=on(1.5), cause="device busy")
    summary = summarize([submitted(), started(101.0, 2.0), failed, progress(105.0, 10, 1.0)], JOB)
    assert summary.granted_core_s == 2 * 2.0 + 2 * 1.5
    assert summary.n_resizes == 1


def test_a_lost_node_takes_its_grant() -> None:
    lost = [NodeLost(at=103.0, node=NodeId("other")), NodeLost(at=104.0, node=NODE)]
    summary = summarize([submitted(), started(101.0, 2.0), *lost, progress(106.0, 10, 1.0)], JOB)
    assert summary.granted_core_s == 3 * 2.0


def test_what_was_held_while_nobody_steered_counts_as_granted() -> None:
    resumed = SteeringResumed(at=106.0, lost_at=103.0, granted={JOB: on(2.0)})
    steered_again: list[Message] = [resumed, started(106.0, 2.0), applied(107.0, 0.5)]
    summary = summarize([submitted(), started(101.0, 1.0), *steered_again, progress(109.0, 10, 1.0)], JOB)
    assert summary.granted_core_s == 2 * 1.0 + 4 * 2.0 + 2 * 0.5
    assert summary.unsteered_s == 3.0
    assert summary.started_at == 101.0


def test_warnings_keep_the_first_of_each_kind() -> None:
    told = [
        warned(102.0, "infeasible", earliest_finish_s=12.0, deadline_s=10.0),
        warned(103.0, "feasible"),
        warned(104.0, "infeasible", earliest_finish_s=13.0),
        warned(105.0, "plan-refused", job=None),
        warned(106.0, "no-progress", job=JobId("another")),
    ]
    summary = summarize([*RUN, *told], JOB)
    assert [one.code for one in summary.warnings] == ["infeasible", "feasible", "plan-refused"]
    first = Warned(
        at=102.0, code="infeasible", text="it is infeasible", facts={"earliest_finish_s": 12.0, "deadline_s": 10.0}
    )
    assert summary.warned("infeasible") == first
    assert summary.warned("no-progress") is None
    assert series(history_of([*RUN, *told], JOB)).forecasts == ((2.0, 12.0), (4.0, 13.0))


def test_other_jobs_are_left_out() -> None:
    other = JobId("b")
    theirs: list[Message] = [
        JobSubmitted(at=90.0, spec=replace(SPEC, id=other, deadline_s=3.0)),
        JobStarted(at=90.0, job=other, request=1, granted=on(9.0)),
        JobFinished(at=95.0, job=other, landed_at=95.0),
    ]
    assert summarize([*theirs, *RUN], JOB) == summarize(RUN, JOB)
    assert summarize([*theirs, *RUN], other).deviation_s == 2.0


def test_a_name_that_is_used_again_is_another_job() -> None:
    again: list[Message] = [
        JobSubmitted(at=200.0, spec=replace(SPEC, deadline_s=20.0)),
        started(201.0, 1.0),
        progress(211.0, 100, 9.0, landed=True),
        JobFinished(at=211.0, job=JOB, landed_at=210.75),
    ]
    assert summarize([*RUN, *again], JOB) == summarize(again, JOB)
    assert chain([*RUN, *again], JOB) == chain(again, JOB)
    duplicate = JobSubmitted(at=105.0, spec=replace(SPEC, deadline_s=1.0))
    assert summarize([*RUN[:5], duplicate, *RUN[5:]], JOB) == summarize(RUN, JOB)


def test_a_job_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="submission"):
        summarize(RUN, JobId("b"))


def test_the_demand_is_what_the_reason_of_a_resize_says_or_its_grant() -> None:
    def resize(at: float, cores: float, **facts: float) -> ResizeJob:
        return ResizeJob(at=at, job=JOB, request=2, grant=on(cores), reason=Reason("because", "because", facts))

    wanted = {"demand_cores": 1.5}
    told = [resize(103.0, 1.0), resize(104.0, 0.5, **wanted), resize(105.0, 0.75, **wanted), resize(106.0, 2.0)]
    course = series(history_of([submitted(), started(101.0, 1.0), *told], JOB))
    assert course.demand == ((3.0, 1.0), (4.0, 1.5), (6.0, 2.0))


def test_the_course() -> None:
    resize = ResizeJob(at=103.0, job=JOB, request=2, grant=on(1.0), reason=Reason("track", "…", {"finish_s": 9.5}))
    course = series(history_of([*RUN[:3], resize, *RUN[3:]], JOB))
    assert course.progress == ((3.0, 0.2), (7.0, 0.6), (9.25, 1.0), (10.25, 1.0))
    assert course.grant == ((1.0, 2.0), (3.0, 1.0), (7.0, 0.5), (9.25, 2.0), (10.5, 0.0))
    assert course.usage == ((7.0, 1.0), (9.25, 1.5 / 2.25), (10.25, 1.5))
    assert list(course.deadlines) == [(0.0, 10.0)]
    assert course.forecasts == ((3.0, 9.5),)


def test_the_line_to_the_deadline_begins_at_the_first_step_and_anew_where_the_deadline_is_changed() -> None:
    """As the live displays have it: from where the job is then, and only as long as a deadline is in force."""
    readings = [progress(at, steps, 0.0) for at, steps in ((102.0, 0), (104.25, 10), (110.0, 20), (120.0, 60))]

    def told(*changes: Message) -> list[tuple[float, ...]]:
        messages = sorted([*readings, *changes], key=lambda message: message.at)
        lines = series(history_of([JobSubmitted(at=100.0, spec=replace(SPEC, deadline_s=40.0)), *messages], JOB)).lines
        return [astuple(line) for line in lines]

    def changed(at: float, deadline_s: float | None) -> Message:
        return SpecChanged(at=at, spec=replace(SPEC, deadline_s=deadline_s))

    assert told() == [(4.0, 0.1, 40.0, 1.0)]
    assert told(changed(101.0, 22.0)) == [(4.0, 0.1, 22.0, 1.0)], "before the first step nothing bends"
    assert told(changed(112.0, 22.0)) == [pytest.approx((4.0, 0.1, 12.0, 0.3)), (12.0, 0.2, 22.0, 1.0)]
    assert told(changed(113.0, None)) == [pytest.approx((4.0, 0.1, 13.0, 0.325))]
    assert told(changed(113.0, 5.0)) == told(changed(113.0, None)), "to a deadline that has passed none leads"


def test_a_job_without_steps_or_deadline_has_no_line() -> None:
    assert series(history_of([submitted(), started(101.0, 1.0)], JOB)).lines == ()
    free = JobSubmitted(at=100.0, spec=replace(SPEC, deadline_s=None))
    assert series(history_of([free, *RUN[1:]], JOB)).lines == ()


def test_readings_of_one_instant_and_of_a_new_process_give_no_usage() -> None:
    readings = [progress(102.0, 1, 1.0), progress(102.0, 2, 1.5), progress(103.0, 1, 0.25), progress(104.0, 2, 1.25)]
    assert series(history_of([submitted(), *readings], JOB)).usage == ((4.0, 1.0),)


def resize(at: float, request: int, cores: float) -> ResizeJob:
    return ResizeJob(at=at, job=JOB, request=request, grant=on(cores), pacing=None, reason=Reason("test", "a test"))


def test_what_a_change_of_the_grant_took_is_told_at_the_change() -> None:
    changes: list[Message] = [resize(103.0, 2, 1.5), applied(104.5, 1.5), resize(105.0, 2, 1.5), applied(106.0, 1.5)]
    told = series(history_of([submitted(), started(101.0, 1.0), *changes], JOB))
    assert told.resizes == ((4.5, 1.5),), "neither an unknown command nor one that changes nothing took any time"


def phases(at: float, **wall_s: float) -> PhaseReported:
    known = tuple(
        PhaseProgress(name=name, units_planned=4, units_done=1, units_measured=1, wall_s=took_s)
        for name, took_s in wall_s.items()
    )
    return PhaseReported(at=at, job=JOB, phases=known)


def test_phases_are_told_with_their_times_and_parts_of_one_are_one_span() -> None:
    parts: list[Message] = [
        phases(110.0, evaluate=2.0, save=0.0),
        phases(112.0, evaluate=4.0, save=0.0),
        phases(113.0, evaluate=4.0, save=1.0),
    ]
    told = series(history_of([submitted(), *parts, phases(130.0, evaluate=5.0, save=1.0)], JOB))
    assert told.phases == (
        PhaseCourse(name="evaluate", from_s=8.0, until_s=12.0),
        PhaseCourse(name="save", from_s=12.0, until_s=13.0),
        PhaseCourse(name="evaluate", from_s=29.0, until_s=30.0),
    )


def test_several_jobs_are_summed_up_as_each_of_them_is() -> None:
    other = JobId("b")
    own: list[Any] = [submitted(), started(100.5, 2.0), progress(104.0, 50, 5.0), applied(105.0, 1.0)]
    others = [replace(own[0], spec=replace(SPEC, id=other)), *(replace(message, job=other) for message in own[1:])]
    of_all: list[Message] = [
        warned(101.0, "plan-lost", None),
        NodeLost(at=106.0, node=NODE),
        SteeringResumed(at=108.0, lost_at=107.0, granted={JOB: on(1.0)}),
    ]
    messages = sorted([*own, *others, *of_all], key=lambda message: message.at)
    assert summarize_all(messages, [JOB, other]) == {job: summarize(messages, job) for job in (JOB, other)}
    assert summarize(messages, JOB) != replace(summarize(messages, other), job=JOB)
    with pytest.raises(InvalidSpec, match="submission"):
        summarize_all(messages, [JobId("c")])


def test_a_change_of_the_number_of_workers_is_told_in_workers() -> None:
    worker = Resources(cores=0.6)
    before = JobSpec(id=SPEC.id, worker=worker, floor=worker, ceiling=worker * 3)
    request = user_request(SpecChanged(at=1.0, spec=replace(before, ceiling=worker * 2)), before)
    assert request is not None
    assert request.text == "what it may have was changed by the user: now 1 to 2 workers"
