"""Given these events, then these commands."""

import pickle
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, none, only

from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.control import Forecast, PacingLine, PhaseProgress
from punctual.core.errors import InvariantBroken
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    JobWarned,
    NodeJoined,
    NodeLost,
    PhaseReported,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.speed import SeenRate, Shape


def test_a_submitted_job_is_planned_and_launched(desk: Desk) -> None:
    assert only(desk.submit(A), RequestPlan)
    launch = only(desk.plan({A: cores(1.5)}), LaunchJob)
    assert launch.grant == cores(1.5)
    commands = desk.started(launch, at=0.1)
    assert only(commands, SetTimer).timer == Timer("tick", JobId("a"))
    assert desk.scheduler.job(A).status == "running"
    assert desk.scheduler.job(A).granted == cores(1.5)


def test_a_changed_demand_asks_for_a_plan_and_an_equal_one_does_not(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 0.5
    assert only(desk.tick(A, at=1.0), RequestPlan)
    assert only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob).grant == cores(0.5)
    assert none(desk.tick(A, at=1.5), RequestPlan)


def test_the_reason_of_the_controller_travels_to_the_command(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    assert only(desk.plan({A: cores(0.5)}), ResizeJob).reason.text == "the script wants 0.5"


def test_the_reason_of_a_resize_has_the_demand_where_that_is_not_the_grant(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    assert only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob).reason.facts == {}
    desk.controller.wanted = 1.5
    desk.tick(A, at=2.0)
    less = only(desk.tick(A, at=12.0), ResizeJob)  # the one before has no answer
    assert (less.grant, less.reason.facts) == (cores(0.5), {"demand_cores": 1.5})


def test_a_grant_read_back_with_rounding_is_not_asked_again(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 1 / 3
    desk.tick(A, at=1.0)
    resize = only(desk.plan({A: cores(1 / 3)}), ResizeJob)
    rounded = {HERE: Resources(cores=0.33335)}
    desk.tell(GrantFailed(at=1.0, job=A, request=resize.request, granted=cores(2.0), cause="busy"))
    again = only(desk.tell(TimerFired(at=2.0, timer=Timer("retry", JobId("a")))), ResizeJob)
    assert desk.tell(GrantApplied(at=2.0, job=A, request=again.request, granted=rounded)) == []
    assert desk.scheduler.job(A).granted == rounded
    assert none(desk.tick(A, at=2.5), ResizeJob)


def test_the_reading_shows_what_was_granted_not_what_was_asked(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    desk.plan({A: cores(0.5)}, at=1.0)  # the resize is asked for and not answered
    desk.tick(A, at=2.0)
    assert desk.controller.readings[-1].granted == Resources(cores=2.0)
    assert desk.controller.readings[-1].granted_core_s == pytest.approx(4.0)


def test_a_failed_resize_waits_one_period(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    resize = only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob)
    failed = GrantFailed(at=1.1, job=A, request=resize.request, granted=cores(2.0), cause="no such file")
    commands = desk.tell(failed)
    assert none(commands, ResizeJob)
    timer = only(commands, SetTimer)
    assert timer.fire_at == pytest.approx(2.1)
    assert none(desk.tick(A, at=1.5), ResizeJob)
    assert only(desk.tell(TimerFired(at=timer.fire_at, timer=timer.timer)), ResizeJob).grant == cores(0.5)


def test_a_job_that_cannot_be_started_is_given_up_with_the_cause(desk: Desk) -> None:
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    for at in (1.0, 3.0, 5.0):
        failed = GrantFailed(at=at, job=A, request=launch.request, granted={}, cause="no room")
        assert none(desk.tell(failed), RejectJob)
        launch = only(desk.tell(TimerFired(at=at + 1.0, timer=Timer("retry", JobId("a")))), LaunchJob)
    rejected = only(
        desk.tell(GrantFailed(at=7.0, job=A, request=launch.request, granted={}, cause="no room")), RejectJob
    )
    assert "no room" in rejected.reason.text
    assert desk.scheduler.job(A).status == "failed"


def test_a_resize_without_an_answer_is_asked_again(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 0.5
    desk.tick(A, at=1.0)
    first = only(desk.plan({A: cores(0.5)}, at=1.0), ResizeJob)
    assert none(desk.tick(A, at=10.9), ResizeJob)
    again = only(desk.tick(A, at=11.0), ResizeJob)
    assert again.request > first.request


def test_reserve_the_larger(desk: Desk) -> None:
    """One job grows into what another gives up only when that is confirmed."""
    desk.run(A, 1.5)
    desk.run(B, 0.5)
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=2)))
    commands = desk.plan({A: cores(0.5), B: cores(1.5)}, at=1.0)
    shrink = only(commands, ResizeJob)
    assert (shrink.job, shrink.grant) == (A, cores(0.5))
    grow = only(desk.applied(shrink, at=1.2), ResizeJob)
    assert (grow.job, grow.grant) == (B, cores(1.5))


def test_a_shrink_that_failed_keeps_its_room(desk: Desk) -> None:
    desk.run(A, 1.5)
    desk.run(B, 0.5)
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=2)))
    shrink = only(desk.plan({A: cores(0.5), B: cores(1.5)}, at=1.0), ResizeJob)
    commands = desk.tell(GrantFailed(at=1.2, job=A, request=shrink.request, granted=cores(1.5), cause="busy"))
    assert none(commands, ResizeJob)


def test_one_plan_in_flight_and_the_next_at_once(desk: Desk) -> None:
    assert only(desk.submit(A), RequestPlan)
    assert none(desk.submit(B), RequestPlan)
    commands = desk.plan({A: cores(1.0)})
    assert only(commands, LaunchJob).job == A
    assert only(commands, RequestPlan)


def test_a_late_plan_is_used_for_the_jobs_that_remain(desk: Desk) -> None:
    desk.run(A, 0.5)
    desk.submit(B)
    desk.tell(JobFinished(at=1.0, job=A, landed_at=1.0))
    launch = only(desk.plan({A: cores(0.5), B: cores(1.5)}, at=2.0), LaunchJob)
    assert launch.job == B


def test_a_plan_does_not_touch_a_job_it_does_not_know(desk: Desk) -> None:
    desk.submit(A)
    desk.submit(B)
    desk.plan({A: cores(1.0)})  # made before B was there, so it says nothing about B
    launch = only(desk.plan({A: cores(1.0), B: cores(1.0)}), LaunchJob)
    assert launch.job == B


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        (cores(3.0), "over its ceiling"),
        (cores(0.01), "under its floor"),
        ({NodeId("here"): Resources(cores=1.5, gpus=1)}, "over its ceiling"),
    ],
)
def test_an_invalid_plan_breaks_tests(desk: Desk, grant: dict[NodeId, Resources], words: str) -> None:
    desk.submit(A)
    with pytest.raises(InvariantBroken, match=words):
        desk.plan({A: grant})


def test_too_much_for_a_node_is_invalid(desk: Desk) -> None:
    desk.submit(A)
    desk.plan({A: cores(1.5)})
    desk.submit(B)
    with pytest.raises(InvariantBroken, match="on node 'here'"):
        desk.plan({A: cores(1.5), B: cores(1.5)})


def test_a_plan_made_before_capacity_changed_is_dropped_and_another_requested(desk: Desk) -> None:
    desk.submit(A)
    desk.tell(NodeJoined(at=0.5, node=HERE, capacity=Resources(cores=1)))
    commands = desk.plan({A: cores(2.0)}, at=1.0)
    assert none(commands, LaunchJob)
    assert only(commands, RequestPlan)


def test_an_invalid_plan_is_refused_live_and_asked_again() -> None:
    desk = Desk()
    desk.scheduler = Scheduler({"scripted": desk.controller})
    desk.tell(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
    desk.submit(A)
    commands = desk.plan({A: cores(9.0)})
    assert only(commands, WarnUser).reason.code == "plan-refused"
    assert none(commands, LaunchJob)
    timer = only(commands, SetTimer)
    assert only(desk.tell(TimerFired(at=timer.fire_at, timer=timer.timer)), RequestPlan)


def test_a_policy_that_failed_is_told_and_asked_again() -> None:
    desk = Desk()
    desk.scheduler = Scheduler({"scripted": desk.controller})
    desk.tell(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
    desk.submit(A)
    commands = desk.tell(PlanProposed(at=0.0, plan=None, revision=1, cause="ran out of memory"))
    assert "ran out of memory" in only(commands, WarnUser).reason.text


def test_a_plan_of_another_policy_is_used_and_told_until_the_policy_answers_again(desk: Desk) -> None:
    def answered(cause: str, amount: float) -> list[Command]:
        revision = desk.scheduler.snapshot(0.0).revision
        plan = Plan(revision=revision, grants={A: cores(amount)})
        return desk.tell(PlanProposed(at=0.0, plan=plan, revision=revision, cause=cause))

    desk.submit(A)
    first = answered("it hangs; another planned instead", 1.0)
    assert only(first, WarnUser).reason == Reason("plan-fallback", "it hangs; another planned instead")
    desk.started(only(first, LaunchJob))
    assert none(answered("it hangs; another planned instead", 1.5), WarnUser)
    assert none(answered("", 1.0), WarnUser)
    assert only(answered("it crashed", 1.0), WarnUser).reason.text == "it crashed"


def test_a_running_job_may_not_be_paused_unless_it_says_so(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.submit(B)
    with pytest.raises(InvariantBroken, match="may not be paused"):
        desk.plan({B: cores(1.0)})


def test_a_moved_deadline_is_acted_on_at_once(desk: Desk) -> None:
    desk.run(A, 1.0)
    spec = JobSpec(id=A, ceiling=Resources(cores=2), floor=Resources(cores=0.1), deadline_s=50.0, controller="scripted")
    timers = [c for c in desk.tell(SpecChanged(at=3.0, spec=spec)) if isinstance(c, SetTimer)]
    assert {timer.timer.kind: timer.fire_at for timer in timers} == {"tick": 3.0, "deadline": 50.0}
    desk.tick(A, at=3.0)
    assert desk.controller.readings[-1].deadline_s == 50.0


def test_a_moved_deadline_is_planned_for_once_its_demand_is_known_also_if_that_is_the_same(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.wanted = 1.0
    assert only(desk.tick(A, at=1.0), RequestPlan)
    desk.plan({A: cores(1.0)}, at=1.0)
    assert none(desk.tick(A, at=2.0), RequestPlan), "nothing is new"
    moved = replace(desk.scheduler.job(A).spec, deadline_s=50.0)
    assert none(desk.tell(SpecChanged(at=3.0, spec=moved)), RequestPlan)
    assert only(desk.tick(A, at=3.0), RequestPlan)


def test_a_change_of_a_job_that_no_controller_steers_is_planned_for_at_once(desk: Desk) -> None:
    spec = JobSpec(id=A, ceiling=Resources(cores=2), floor=Resources(cores=0.1), controller=None)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))
    assert only(desk.tell(SpecChanged(at=1.0, spec=replace(spec, weight=2.0))), RequestPlan)


def test_stop_goes_to_the_executor_and_is_repeated(desk: Desk) -> None:
    desk.run(A, 1.0)
    stop = only(desk.tell(StopRequested(at=1.0, job=A, cause="Ctrl-C")), StopJob)
    assert stop.cause == "Ctrl-C"
    assert none(desk.tick(A, at=2.0), StopJob)
    assert only(desk.tick(A, at=11.0), StopJob)
    desk.tell(JobFailed(at=12.0, job=A, cause="stopped"))
    assert desk.scheduler.job(A).status == "failed"


def test_a_queued_job_that_is_stopped_never_starts(desk: Desk) -> None:
    desk.submit(A)
    desk.tell(StopRequested(at=0.0, job=A, cause="Ctrl-C"))
    assert none(desk.plan({}), LaunchJob)
    assert desk.scheduler.job(A).status == "stopped"


def test_a_retryable_failure_launches_again_and_a_final_one_does_not(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.tell(JobFailed(at=1.0, job=A, cause="node", retryable=True))
    assert desk.scheduler.job(A).status == "queued"
    assert only(desk.plan({A: cores(1.0)}, at=2.0), LaunchJob)
    desk.tell(JobFailed(at=2.0, job=A, cause="exit 1"))
    assert desk.scheduler.job(A).status == "failed"


def test_a_lost_node_takes_its_jobs_back_to_the_queue_and_old_answers_do_not_count(desk: Desk) -> None:
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    desk.tell(NodeLost(at=1.0, node=HERE))
    assert desk.scheduler.job(A).status == "queued"
    desk.tell(JobStarted(at=1.1, job=A, request=launch.request, granted=launch.grant))
    assert desk.scheduler.job(A).status == "queued"


def test_what_a_lost_node_had_granted_counts_up_to_its_loss(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.tell(NodeLost(at=10.0, node=HERE))
    desk.tell(NodeJoined(at=11.0, node=HERE, capacity=Resources(cores=2)))
    desk.started(only(desk.plan({A: cores(1.0)}, at=11.0), LaunchJob), at=11.0)
    desk.tick(A, at=12.0)
    assert desk.controller.readings[-1].granted_core_s == pytest.approx(10.0 * 2.0 + 1.0)


def test_a_landed_job_gets_its_ceiling_whatever_the_controller_says(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.wanted = 0.2
    desk.progress(A, at=50.0, steps=100, landed=True)
    desk.tick(A, at=50.1)
    assert desk.scheduler.demand(A).resources == Resources(cores=2.0)
    assert desk.controller.readings == []


def test_a_new_pacing_line_alone_is_sent_with_the_grant_in_force(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.wanted = 2.0
    desk.controller.pacing = PacingLine(end_s=90.0, end_work=100.0, s_per_step=0.5)
    commands = desk.tick(A, at=1.0)
    assert none(commands, RequestPlan)
    resize = only(commands, ResizeJob)
    assert (resize.grant, resize.pacing) == (cores(2.0), desk.controller.pacing)


def test_a_process_that_was_launched_again_is_told_the_pacing_line_too(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.pacing = PacingLine(end_s=90.0, end_work=100.0, s_per_step=0.5)
    desk.applied(only(desk.tick(A, at=1.0), ResizeJob), at=1.0)
    desk.tell(JobFailed(at=2.0, job=A, cause="a signal", retryable=True))
    launch = only(desk.tell(TimerFired(at=4.0, timer=Timer("retry", A))), LaunchJob)
    assert only(desk.started(launch, at=4.0), ResizeJob).pacing == desk.controller.pacing


def test_a_deadline_that_is_only_perhaps_met_again_has_no_time_to_spare(desk: Desk) -> None:
    desk.run(A, 2.0)
    texts = []
    for feasible, earliest_s in ((False, 120.0), (True, 100.2)):
        desk.controller.forecast = Forecast(
            finish_s=earliest_s, std_s=1.0, earliest_finish_s=earliest_s, feasible=feasible
        )
        texts.append(only(desk.tick(A, at=1.0), WarnUser).reason.text)
    assert texts == [
        "the deadline cannot be met: at full speed the job lands 20 s after it",
        "the deadline can perhaps be met: at full speed the job lands about 200 ms after it",
    ]


def test_silence_is_pointed_out_once_after_the_grace_period(desk: Desk) -> None:
    desk.run(A, 2.0)
    assert none(desk.tick(A, at=19.0), WarnUser)
    assert only(desk.tick(A, at=21.0), WarnUser).reason.code == "no-progress"
    assert none(desk.tick(A, at=61.0), WarnUser)


def test_steps_of_which_nobody_says_how_many_there_are_are_pointed_out_at_once(desk: Desk) -> None:
    desk.run(A, 2.0)
    assert none(desk.tick(A, at=1.0), WarnUser)
    desk.tell(ProgressReported(at=2.0, job=A, steps_done=3, steps_total=None, unit_at=2.0, used_core_s=1.0))
    warned = only(desk.tick(A, at=2.0), WarnUser).reason
    assert warned.code == "no-total"
    assert "--steps" in warned.text
    assert none(desk.tick(A, at=3.0), WarnUser)


def test_what_is_missing_in_an_output_is_left_to_who_has_read_it(desk: Desk) -> None:
    desk.run(A, 2.0)
    report = ProgressReported(at=2.0, job=A, steps_done=3, steps_total=None, unit_at=2.0, used_core_s=1.0, is_read=True)
    desk.tell(report)
    assert none(desk.tick(A, at=2.0), WarnUser)


def test_what_the_executor_warns_of_is_told_once(desk: Desk) -> None:
    desk.run(A, 2.0)
    warned = JobWarned(at=2.0, job=A, reason=Reason("unreadable-progress", "it took too long"))
    assert only(desk.tell(warned), WarnUser).reason == warned.reason
    assert desk.tell(replace(warned, at=3.0)) == []
    assert desk.tell(replace(warned, job=B)) == []


def test_a_declared_phase_that_nothing_is_known_of_is_pointed_out_once(desk: Desk) -> None:
    desk.run(A, 2.0)
    last = PhaseProgress(name="evaluate", units_planned=1, units_done=0)
    desk.tell(PhaseReported(at=1.0, job=A, phases=(last,)))
    desk.progress(A, at=1.0, steps=20)
    assert none(desk.tick(A, at=1.0), WarnUser)
    desk.progress(A, at=2.0, steps=30)
    assert only(desk.tick(A, at=2.0), WarnUser).reason.code == "unmeasured-phase"
    assert none(desk.tick(A, at=3.0), WarnUser)


def test_a_phase_that_is_announced_when_it_begins_is_not_pointed_out_before_another_step(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.progress(A, at=1.0, steps=30)
    first = PhaseProgress(name="evaluate", units_planned=1, units_done=0)
    for at, steps in ((2.0, 33), (3.0, 33)):  # the steps since the last report, then the phase itself
        desk.tell(PhaseReported(at=at, job=A, phases=(first,)))
        desk.progress(A, at=at, steps=steps)
        assert none(desk.tick(A, at=at), WarnUser)
    desk.progress(A, at=4.0, steps=34)
    warned = only(desk.tick(A, at=4.0), WarnUser).reason
    assert warned.code == "unmeasured-phase"
    assert 'punctual.phase("evaluate", rehearsal=True)' in warned.text


def test_a_phase_that_was_rehearsed_is_not_pointed_out(desk: Desk) -> None:
    desk.run(A, 2.0)
    known = PhaseProgress(name="evaluate", units_planned=1, units_done=0, units_measured=2, core_s=0.1)
    desk.tell(PhaseReported(at=1.0, job=A, phases=(known,)))
    desk.progress(A, at=1.0, steps=60)
    assert none(desk.tick(A, at=1.0), WarnUser)


def test_a_job_too_large_for_the_cluster_is_rejected(desk: Desk) -> None:
    rejected = only(desk.submit(A, floor=3.0, ceiling=4.0), RejectJob)
    assert "its floor of 3 cores does not fit in what there is: 2 cores" in rejected.reason.text


def test_a_name_is_used_once(desk: Desk) -> None:
    desk.run(A, 1.0)
    commands = desk.submit(A)
    assert only(commands, WarnUser).reason.code == "duplicate-id"
    assert none(commands, RejectJob), "it would end the first job"
    assert desk.scheduler.job(A).status == "running"


def test_a_job_without_a_deadline_keeps_its_ceiling(desk: Desk) -> None:
    desk.run(A, 2.0)
    spec = JobSpec(id=A, ceiling=Resources(cores=2), controller="scripted")
    desk.tell(SpecChanged(at=1.0, spec=spec))
    desk.tick(A, at=1.0)
    assert desk.scheduler.demand(A).reason.code == "no-deadline"


def test_a_job_without_a_deadline_has_the_forecast_of_its_controller_and_nothing_else(desk: Desk) -> None:
    desk.run(A, 2.0, deadline_s=None)
    desk.controller.wanted = 0.5
    desk.controller.pacing = PacingLine(end_s=50.0, end_work=100.0, s_per_step=0.5)
    desk.controller.forecast = Forecast(finish_s=70.0, std_s=2.0, earliest_finish_s=60.0, feasible=True)
    desk.tick(A, at=1.0)
    demand = desk.scheduler.demand(A)
    assert desk.controller.readings[-1].deadline_s == inf
    assert demand.forecast == desk.controller.forecast
    assert (demand.resources, demand.pacing, demand.work) == (Resources(cores=2), None, None)


def test_a_deadline_that_is_removed_is_not_told_to_be_possible_again(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.controller.forecast = Forecast(finish_s=170.0, std_s=2.0, earliest_finish_s=160.0, feasible=False)
    assert only(desk.tick(A, at=1.0), WarnUser).reason.code == "infeasible"
    desk.tell(SpecChanged(at=2.0, spec=JobSpec(id=A, ceiling=Resources(cores=2), controller="scripted")))
    desk.controller.forecast = replace(desk.controller.forecast, feasible=True)
    assert none(desk.tick(A, at=3.0), WarnUser)


def test_a_broken_invariant_tells_the_story() -> None:
    broken = InvariantBroken("too much", ["first", "second"])
    assert str(broken) == "too much\nLast messages:\n  first\n  second"


def changes(desk: Desk, grants: dict[JobId, Allocation], **more: Any) -> list[Command]:
    """A plan that says only what changes."""
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=2)))  # makes a plan due
    revision = desk.scheduler.snapshot(1.0).revision
    plan = Plan(revision=revision, grants=grants, keeps_others=True, **more)
    return desk.tell(PlanProposed(at=1.0, plan=plan, revision=plan.revision))


def test_a_plan_may_keep_the_jobs_that_it_does_not_name(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.submit(B)
    desk.plan({A: cores(1.0)})
    assert only(changes(desk, {B: cores(1.0)}), LaunchJob).job == B
    assert desk.scheduler.job(A).planned == cores(1.0)
    assert desk.scheduler.snapshot(1.0).free == {HERE: Resources()}


def test_a_plan_that_reaches_over_time_is_followed_by_another(desk: Desk) -> None:
    desk.run(A, 1.0)
    timer = only(changes(desk, {}, ask_again_at=7.0), SetTimer)
    assert (timer.timer, timer.fire_at) == (Timer("plan"), 7.0)
    assert only(desk.tell(TimerFired(at=7.0, timer=Timer("plan"))), RequestPlan)


def test_what_is_kept_counts_when_a_plan_is_checked(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.submit(B)
    desk.plan({A: cores(1.0)})
    with pytest.raises(InvariantBroken, match=r"2.5 cores on node 'here'"):
        changes(desk, {B: cores(1.5)})


def test_a_policy_may_turn_a_waiting_job_away(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.submit(B)
    desk.plan({A: cores(1.0)})
    no = Reason("no-share", "its deadline cannot be promised")
    rejected = only(changes(desk, {}, declines={A: no, B: no}), RejectJob)
    assert (rejected.job, rejected.reason) == (B, no), "A runs and is not the policy's to end"
    assert desk.scheduler.job(B).status == "turned away"
    assert desk.scheduler.snapshot(1.0).waiting == ()


def test_a_promise_holds_until_a_plan_takes_it_back(desk: Desk) -> None:
    """A plan of a policy that promises nothing leaves it as it is; it is part of the state."""
    desk.run(A, 1.0)
    desk.submit(B)
    desk.plan({A: cores(1.0)})
    changes(desk, {}, promises={A: 60.0, B: 90.0})
    changes(desk, {})
    resumed = Scheduler({"scripted": desk.controller}, strict=True)
    resumed.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    shown = {view.id: view.promised_until_at for view in resumed.snapshot(1.0).jobs}
    assert shown == {A: 60.0, B: 90.0}
    changes(desk, {}, promises={B: 70.0})
    assert {view.id: view.promised_until_at for view in desk.scheduler.snapshot(1.0).jobs} == {A: None, B: 70.0}
    desk.tell(StopRequested(at=2.0, job=B, cause="enough"))
    assert desk.scheduler.promised_until_at(B) is None


def test_a_promise_is_not_told_of_a_deadline_that_was_moved_since(desk: Desk) -> None:
    """Policies still see it: they know from it that the job was promised something."""
    desk.run(A, 1.0)
    changes(desk, {}, promises={A: 100.0})
    assert desk.scheduler.promised_until_at(A) == 100.0
    moved = replace(desk.scheduler.job(A).spec, deadline_s=150.0)
    desk.tell(SpecChanged(at=1.0, spec=moved))
    assert desk.scheduler.promised_until_at(A) is None
    assert desk.scheduler.job(A).promised_until_at == 100.0
    changes(desk, {}, promises={A: 150.0})
    assert desk.scheduler.promised_until_at(A) == 150.0


@pytest.mark.parametrize("until_at", [float("nan"), "soon"])
def test_a_promise_that_is_no_instant_is_refused(desk: Desk, until_at: Any) -> None:
    desk.run(A, 1.0)
    with pytest.raises(InvariantBroken, match=r"no instant|no plan"):
        changes(desk, {}, promises={A: until_at})


def test_an_amount_that_is_no_number_of_workers_is_refused(desk: Desk) -> None:
    spec = JobSpec(id=A, worker=Resources(cores=0.5), counts=(1, 2), ceiling=Resources(cores=1), controller=None)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    with pytest.raises(InvariantBroken, match="no number of its workers"):
        desk.plan({A: cores(0.75)})


def test_a_job_without_a_controller_is_not_looked_at_between_events(desk: Desk) -> None:
    spec = JobSpec(id=A, ceiling=Resources(cores=1), controller=None)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    assert not [timer for timer in desk.started(launch) if isinstance(timer, SetTimer) and timer.timer.kind == "tick"]


class Remembers:
    """A model whose state is what it saw."""

    def init(self, spec: JobSpec) -> tuple[SeenRate, ...]:
        return ()

    def update(self, state: tuple[SeenRate, ...], seen: SeenRate) -> tuple[SeenRate, ...]:
        return (*state, seen)

    def rate_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return state[-1].rate_sps if state else 0.0

    def std_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return 0.0 if state else inf


def test_a_speed_is_learned_from_two_reports_under_one_grant() -> None:
    scheduler = Scheduler({}, models={"remembers": Remembers()}, periods=Periods(answer_s=inf))
    scheduler.handle(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
    spec = JobSpec(id=A, ceiling=Resources(cores=2), work_steps=100, controller=None, model="remembers")
    scheduler.handle(JobSubmitted(at=0.0, spec=spec))
    plan = Plan(revision=scheduler.snapshot(0.0).revision, grants={A: cores(1.0)})
    scheduler.handle(PlanProposed(at=0.0, plan=plan, revision=plan.revision))
    scheduler.handle(JobStarted(at=10.0, job=A, request=1, granted=cores(1.0)))

    def report(at: float, steps: float) -> None:
        scheduler.handle(ProgressReported(at=at, job=A, steps_done=steps, steps_total=100, unit_at=at, used_core_s=0.0))

    report(10.0, 0.0)
    report(20.0, 5.0)
    view = scheduler.job(A)
    assert view.rate_sps == 0.5
    assert view.curve is not None
    assert view.curve.state == (SeenRate(shape=Shape(cores=1.0), rate_sps=0.5, over_s=10.0),)
    assert view.remaining_steps(30.0) == 100 - 5 - 5
    scheduler.handle(GrantApplied(at=25.0, job=A, request=1, granted=cores(2.0)))
    report(30.0, 20.0)
    after = scheduler.job(A).curve
    assert after is not None
    assert len(after.state) == 1, "the grant changed between the reports"


def test_a_plan_that_was_made_before_a_node_was_lost_gives_nothing_there(desk: Desk) -> None:
    """Else the job, which may not be paused once it runs, would count as one that has lost its place, and no plan would do."""
    gone = NodeId("gone")
    desk.tell(NodeJoined(at=0.0, node=gone, capacity=Resources(cores=2)))
    desk.submit(A)
    desk.tell(NodeLost(at=0.0, node=gone))
    assert only(desk.plan({A: {gone: Resources(cores=1.0)}}), RequestPlan)
    assert desk.scheduler.job(A).planned == {}
    assert [view.id for view in desk.scheduler.snapshot(0.0).waiting] == [A]


def test_a_job_at_work_goes_on_where_a_plan_moves_it_to_a_node_that_was_lost_meanwhile(desk: Desk) -> None:
    desk.run(A, 1.0)
    gone = NodeId("gone")
    desk.tell(NodeJoined(at=1.0, node=gone, capacity=Resources(cores=2)))
    desk.tell(NodeLost(at=1.0, node=gone))
    commands = desk.plan({A: {gone: Resources(cores=1.0)}}, at=1.0)
    assert only(commands, RequestPlan)
    assert none(commands, ResizeJob)
    assert desk.scheduler.job(A).granted == cores(1.0)
