"""A job that its user has paused holds nothing, whatever the policy proposes, until its user resumes it."""

import pickle
from dataclasses import replace

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual import registry
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, StopJob, WarnUser
from punctual.core.events import (
    JobFailed,
    JobSubmitted,
    PauseRequested,
    PlanProposed,
    ResumeRequested,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.status import StatusBoard


def pause(desk: Desk, job: JobId = A, *, at: float = 10.0) -> ResizeJob:
    return only(desk.tell(PauseRequested(at=at, job=job, cause="lunch", by="anna")), ResizeJob)


def test_a_job_that_may_not_be_paused_by_policies_is_paused_by_its_user(desk: Desk) -> None:
    desk.run(A, 1.0)
    asked = pause(desk)
    assert (asked.grant, asked.reason.text) == ({}, "paused by anna: lunch")
    desk.applied(asked, at=10.0)
    assert desk.scheduler.job(A).status == "paused"
    assert desk.scheduler.job(A).deadline_at == 100.0


def test_what_it_holds_is_given_to_others_only_once_it_is_paused(desk: Desk) -> None:
    desk.run(A, 2.0)
    desk.submit(B, at=9.0)
    asked = pause(desk)
    assert none(desk.plan({B: cores(2.0)}, at=10.0), LaunchJob)
    assert only(desk.applied(asked, at=11.0), LaunchJob).job == B


def test_policies_do_not_see_it_and_plans_that_name_it_give_it_nothing(desk: Desk) -> None:
    desk.run(A, 1.0)
    asked = pause(desk)
    assert desk.scheduler.snapshot(10.0).jobs == ()
    desk.applied(asked, at=10.0)
    assert none(desk.plan({A: cores(1.0)}, at=11.0), ResizeJob)
    assert desk.scheduler.job(A).planned == {}


@pytest.mark.parametrize("says_promises", [True, False])
def test_nothing_is_promised_to_it(desk: Desk, says_promises: bool) -> None:
    def promise(at: float, **others: object) -> None:
        revision = desk.scheduler.snapshot(at).revision
        plan = Plan(revision=revision, grants={A: cores(1.0)}, promises={A: 100.0})
        desk.tell(PlanProposed(at=at, plan=replace(plan, **others), revision=revision))  # type: ignore[arg-type]

    desk.run(A, 1.0)
    promise(0.0)
    assert desk.scheduler.promised_until_at(A) == 100.0
    desk.applied(pause(desk), at=10.0)
    assert desk.scheduler.promised_until_at(A) is None
    promise(11.0, **({} if says_promises else {"promises": None}))
    assert desk.scheduler.promised_until_at(A) is None


def test_a_plan_is_asked_for_when_it_is_resumed_and_it_goes_on(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.applied(pause(desk), at=10.0)
    desk.plan({}, at=10.0)
    only(desk.tell(ResumeRequested(at=60.0, job=A)), RequestPlan)
    desk.applied(only(desk.plan({A: cores(2.0)}, at=60.0), ResizeJob), at=60.0)
    assert desk.scheduler.job(A).status == "running"
    desk.tick(A, at=61.0)
    assert desk.controller.readings[-1].elapsed_s == 61.0, "its deadline has gone on counting"


def test_a_job_that_has_not_begun_waits_until_it_is_resumed(desk: Desk) -> None:
    desk.submit(A)
    desk.tell(PauseRequested(at=1.0, job=A))
    assert none(desk.plan({A: cores(1.0)}, at=1.0), LaunchJob)
    revision = desk.scheduler.snapshot(2.0).revision
    declined = Plan(revision=revision, grants={}, declines={A: Reason("late", "it comes too late")})
    assert none(desk.tell(PlanProposed(at=2.0, plan=declined, revision=revision)), RejectJob)
    desk.tell(ResumeRequested(at=3.0, job=A))
    only(desk.plan({A: cores(1.0)}, at=3.0), LaunchJob)


def test_a_launch_under_way_is_paused_when_it_is_answered(desk: Desk) -> None:
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    assert none(desk.tell(PauseRequested(at=1.0, job=A)), ResizeJob)
    desk.applied(only(desk.started(launch, at=2.0), ResizeJob), at=2.0)
    assert desk.scheduler.job(A).status == "paused"


def test_it_is_not_launched_again_when_its_process_fails(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.applied(pause(desk), at=10.0)
    desk.tell(JobFailed(at=11.0, job=A, cause="killed", retryable=True))
    assert none(desk.plan({A: cores(1.0)}, at=20.0), LaunchJob)
    assert only(desk.tell(StopRequested(at=25.0, job=A, cause="enough")), RejectJob).job == A


def test_it_can_be_stopped_and_what_stops_is_not_paused(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.run(B, 1.0)
    desk.applied(pause(desk), at=10.0)
    assert only(desk.tell(StopRequested(at=23.0, job=A, cause="enough")), StopJob).job == A
    only(desk.tell(StopRequested(at=25.0, job=B, cause="enough")), StopJob)
    assert none(desk.tell(PauseRequested(at=26.0, job=B)), ResizeJob)
    assert desk.scheduler.job(B).planned == cores(1.0)


def test_it_is_still_paused_by_a_scheduler_that_was_loaded_and_resumes_steering(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.applied(pause(desk), at=10.0)
    loaded = Scheduler({"scripted": desk.controller}, strict=True)
    loaded.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    desk.scheduler = loaded
    commands = desk.tell(SteeringResumed(at=20.0, lost_at=15.0, granted={A: cores(1.0)}))  # its supervisor let it go on
    desk.applied(only(commands, ResizeJob), at=20.0)
    assert desk.scheduler.job(A).status == "paused"
    assert none(desk.plan({A: cores(1.0)}, at=21.0), ResizeJob)


def test_the_board_says_who_has_paused_it_and_why() -> None:
    board, spec = StatusBoard(), JobSpec(id=A, ceiling=Resources(cores=1))
    board.fold(JobSubmitted(at=0.0, spec=spec))
    asked = PauseRequested(at=1.0, job=A, cause="lunch", by="anna")
    board.fold(asked)
    status = board.job(A)
    assert (status.state, status.display_state, status.pause) == ("queued", "paused", asked)
    board.fold(ResumeRequested(at=2.0, job=A))
    assert (board.job(A).display_state, board.job(A).pause) == ("queued", None)


@pytest.mark.parametrize("policy", registry.names("policies"))
def test_under_every_policy_it_gets_nothing_until_it_is_resumed(policy: str) -> None:
    desk, chosen = Desk(), registry.load("policies", policy)()
    worker = Resources(cores=0.5)

    def done(commands: list[Command], at: float) -> None:
        for command in commands:
            assert not isinstance(command, WarnUser)
            if isinstance(command, LaunchJob):
                desk.started(command, at=at)
            elif isinstance(command, ResizeJob):
                desk.applied(command, at=at)

    def plan(at: float) -> None:
        desk.tell(replace(desk.joined, at=at))  # makes one due
        snapshot = desk.scheduler.snapshot(at)
        done(desk.tell(PlanProposed(at=at, plan=chosen.allocate(snapshot), revision=snapshot.revision)), at)

    for job in (A, B):
        spec = JobSpec(id=job, ceiling=worker * 2, floor=worker, worker=worker, work_steps=100, controller=None)
        desk.tell(JobSubmitted(at=0.0, spec=spec))
    plan(0.0)
    starts = bool(desk.scheduler.job(A).granted)  # not under one that only counts jobs with servers
    done(desk.tell(PauseRequested(at=1.0, job=A)), 1.0)
    for at in (2000.0, 4000.0, 6000.0):  # in other rounds, for policies that decide by rounds
        plan(at)
        assert not desk.scheduler.job(A).granted
    assert bool(desk.scheduler.job(B).granted) == starts, "the other one goes on"
    desk.tell(ResumeRequested(at=7000.0, job=A))
    plan(8000.0)
    assert bool(desk.scheduler.job(A).planned) == starts, "there is room for both"
    desk.scheduler.validate()
