"""Answers that are never heard, and allocations of which a part is lost."""

from tests.core.desk import HERE, A, Desk, cores, none, only

from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.events import GrantFailed, JobStarted, JobSubmitted, NodeJoined, NodeLost, TimerFired
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec
from punctual.core.resources import Resources


def test_a_resize_without_an_answer_is_asked_again_although_the_target_is_the_old_one_again(desk: Desk) -> None:
    desk.run(A, 2.0)
    only(desk.plan({A: cores(1.0)}, at=1.0), ResizeJob)  # performed perhaps; nobody hears of it
    assert none(desk.plan({A: cores(2.0)}, at=2.0), ResizeJob)
    again = only(desk.tick(A, at=12.0), ResizeJob)
    assert again.grant == cores(2.0)
    desk.applied(again, at=12.0)
    assert none(desk.tick(A, at=30.0), ResizeJob)


def test_workers_left_on_other_nodes_are_no_allocation_if_their_number_is_not_allowed(desk: Desk) -> None:
    one, other = NodeId("one"), NodeId("other")
    gpu = Resources(gpus=1)
    for node in (one, other):
        desk.tell(NodeJoined(at=0.0, node=node, capacity=gpu))
    spec = JobSpec(
        id=JobId("w"), worker=gpu, counts=(2,), floor=gpu * 2, ceiling=gpu * 2, controller=None, preemptible=True
    )
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    launch = only(desk.plan({spec.id: {one: gpu, other: gpu}}), LaunchJob)
    desk.tell(JobStarted(at=0.0, job=spec.id, request=launch.request, granted=launch.grant))
    pause = only(desk.tell(NodeLost(at=1.0, node=one)), ResizeJob)
    assert pause.grant == {}
    desk.applied(pause, at=1.0)
    assert [view.id for view in desk.scheduler.snapshot(1.0).waiting] == [spec.id]


def test_a_job_that_ran_already_when_it_was_launched_again_is_brought_to_its_target(desk: Desk) -> None:
    desk.submit(A)
    only(desk.plan({A: cores(1.0)}), LaunchJob)  # performed; nobody hears of it
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=2)))  # makes a plan due
    desk.plan({A: cores(2.0)}, at=1.0)
    again = only(desk.tell(TimerFired(at=12.0, timer=Timer("answer", A))), LaunchJob)
    assert again.grant == cores(2.0)
    started = JobStarted(at=12.0, job=A, request=again.request, granted=cores(1.0))
    resize = only(desk.tell(started), ResizeJob)
    assert resize.grant == cores(2.0)
    desk.applied(resize, at=12.0)
    assert desk.scheduler.job(A).granted == cores(2.0)


def test_an_event_between_a_launch_and_its_answer_does_not_make_it_asked_again(desk: Desk) -> None:
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    waiting = desk.tell(NodeJoined(at=0.5, node=HERE, capacity=Resources(cores=2)))
    assert none(waiting, LaunchJob)
    assert none(waiting, ResizeJob)
    assert none(desk.started(launch, at=1.0), ResizeJob)
    assert desk.scheduler.job(A).granted == cores(1.0)


def test_a_job_whose_launch_was_not_answered_can_be_given_up(desk: Desk) -> None:
    """Whether it runs is not known; so it is told to hold nothing, and what was booked for it is free then."""
    spec = JobSpec(id=A, ceiling=Resources(cores=2), controller=None, preemptible=True)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    only(desk.plan({A: cores(2.0)}), LaunchJob)  # performed perhaps; nobody hears of it
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=2)))  # makes a plan due
    desk.plan({}, at=1.0)
    nothing = only(desk.tell(TimerFired(at=12.0, timer=Timer("answer", A))), ResizeJob)
    assert nothing.grant == {}
    none_there = GrantFailed(at=12.0, job=A, request=nothing.request, granted={}, cause="there is no such process")
    desk.tell(none_there)
    desk.tell(TimerFired(at=14.0, timer=Timer("retry", A)))
    assert desk.scheduler.job(A).status == "queued"
    assert only(desk.plan({A: cores(1.0)}, at=14.0), LaunchJob).grant == cores(1.0)
