"""A node that is taken away: its jobs leave it, nothing new comes, and a notice that is withdrawn leaves no trace."""

from typing import Any, TypeVar

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, only

from punctual.core.codec import decode, encode, kind_of
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, StopJob, WarnUser
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PauseRequested,
    StopRequested,
)
from punctual.core.ids import NodeId
from punctual.core.job import Allocation
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.status import StatusBoard

THERE = NodeId("there")
C = TypeVar("C", bound=Command)


def there(amount: float) -> Allocation:
    return {THERE: Resources(cores=amount)}


class Noticed(Desk):
    """A desk with two nodes, and the board that follows it."""

    def __init__(self) -> None:
        self.board = StatusBoard()
        super().__init__()
        self.join(THERE)

    def tell(self, event: Event) -> list[Command]:
        commands = super().tell(decode(kind_of(event), encode(event)))  # type: ignore[arg-type]
        for message in (event, *commands):
            self.board.fold(message)
        self.scheduler.validate()
        return commands

    def join(self, node: NodeId) -> None:
        self.tell(NodeJoined(at=0.0, node=node, capacity=Resources(cores=2), jobs_at_once=3))

    def notice(self, node: NodeId = HERE, *, at: float = 1.0, ends_at: float | None = 61.0) -> list[Command]:
        return self.tell(NodeNoticed(at=at, node=node, ends_at=ends_at))

    def gone(self, stop: StopJob, *, at: float = 2.0) -> list[Command]:
        """The job's process has made a checkpoint and ended."""
        return self.tell(JobFailed(at=at, job=stop.job, cause=stop.cause, retryable=True, is_stopped=stop.moves))

    def nodes(self) -> list[NodeId]:
        return [node.id for node in self.scheduler.snapshot(0.0).nodes]


def of(commands: list[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


@pytest.mark.parametrize("declared", [{}, {"preemptible": False}, {"n_retries": 0}])
def test_a_job_that_is_on_the_node_alone_saves_and_starts_elsewhere(declared: dict[str, Any]) -> None:
    desk = Noticed()
    desk.run(A, 1.0, **declared)
    commands = desk.notice()
    stop = only(commands, StopJob)
    assert (stop.job, stop.restarts, stop.moves) == (A, True, True)
    assert "'here' is taken away in 60 s" in stop.cause
    assert of(commands, RequestPlan)
    assert not of(commands, ResizeJob)
    desk.gone(stop)
    assert desk.board.job(A).state == "queued"
    launch = only(desk.plan({A: there(1.0)}, at=2.0), LaunchJob)
    assert launch.grant == there(1.0)
    desk.started(launch, at=3.0)
    assert desk.scheduler.job(A).status == "running"
    assert not of(desk.tell(NodeLost(at=61.0, node=HERE)), ResizeJob)


def test_its_user_is_told_once_and_another_end_is_no_news() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    (told,) = of(desk.notice(), WarnUser)
    assert (told.job, told.node, told.reason.code, told.reason.facts["left_s"]) == (A, HERE, "node-noticed", 60.0)
    assert not of(desk.notice(at=2.0, ends_at=12.0), WarnUser | StopJob | RequestPlan)  # type: ignore[arg-type]
    assert {node.id: node.ends_at for node in desk.board.nodes()} == {HERE: 12.0, THERE: None}


def test_a_job_with_workers_elsewhere_goes_on_there_without_a_stop() -> None:
    desk = Noticed()
    worker = Resources(cores=1)
    desk.submit(A, worker=worker, floor=1.0)
    launch = only(desk.plan({A: {HERE: worker, THERE: worker}}), LaunchJob)
    desk.started(launch)
    commands = desk.notice()
    assert only(commands, ResizeJob).grant == {THERE: worker}
    assert not of(commands, StopJob)


def test_a_job_that_its_user_has_paused_saves_and_stays_paused() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    pause = only(desk.tell(PauseRequested(at=0.5, job=A)), ResizeJob)
    desk.applied(pause, at=0.6)
    desk.gone(only(desk.notice(), StopJob))
    assert desk.board.job(A).display_state == "paused"
    assert not of(desk.plan({A: there(1.0)}, at=2.0), LaunchJob)


def test_a_job_that_is_just_being_started_there_is_not_left_behind() -> None:
    desk = Noticed()
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    stop = only(desk.notice(), StopJob)
    desk.started(launch, at=1.5)
    desk.gone(stop)
    assert desk.board.job(A).state == "queued"


def test_a_job_that_waits_there_for_its_turn_waits_elsewhere() -> None:
    desk = Noticed()
    desk.submit(A, ceiling=2.0)
    desk.submit(B)
    desk.plan({A: cores(2.0)})
    assert not [stop for stop in of(desk.notice(), StopJob) if stop.job == B]


def test_nothing_is_placed_there_and_a_plan_that_would_is_not_used() -> None:
    desk = Noticed()
    desk.submit(A)
    desk.notice()
    assert desk.nodes() == [THERE]
    desk.submit(B, at=2.0)
    snapshot = desk.scheduler.snapshot(2.0)
    assert HERE not in snapshot.free


def test_a_notice_that_is_withdrawn_puts_the_node_back_with_its_limits() -> None:
    desk = Noticed()
    desk.notice(THERE)
    assert desk.nodes() == [HERE]
    commands = desk.notice(THERE, at=5.0, ends_at=None)
    assert not of(commands, WarnUser)
    assert [(node.id, node.jobs_at_once) for node in desk.scheduler.snapshot(5.0).nodes][1:] == [(THERE, 3)]
    assert {node.ends_at for node in desk.board.nodes()} == {None}
    assert not desk.notice(THERE, at=6.0, ends_at=None), "it had none"
    desk.submit(A, at=7.0)
    assert only(desk.plan({A: there(1.0)}, at=7.0), LaunchJob)


def test_a_job_that_leaves_goes_back_to_a_node_that_stays_after_all() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    stop = only(desk.notice(), StopJob)
    desk.notice(at=1.5, ends_at=None)
    desk.gone(stop)
    assert only(desk.plan({A: cores(1.0)}, at=2.0), LaunchJob)


def test_a_job_that_has_no_node_any_more_says_what_it_waits_for() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice(THERE)
    desk.gone(only(desk.notice(), StopJob))
    (told,) = of(desk.plan({}, at=2.0), WarnUser)
    assert (told.job, told.reason.code) == (A, "waits")
    assert "waits for a node" in told.reason.text
    assert desk.board.job(A).reason == told.reason


def test_a_user_s_stop_ends_a_job_that_is_leaving() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    stop = only(desk.tell(StopRequested(at=70.0, job=A, cause="enough")), StopJob)
    assert (stop.restarts, stop.moves, stop.cause) == (False, False, "enough")
    desk.tell(JobFailed(at=71.0, job=A, cause="enough", is_stopped=True))
    assert desk.board.job(A).state == "stopped"


def test_a_job_that_finishes_instead_is_finished() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    desk.tell(JobFinished(at=2.0, job=A, landed_at=2.0))
    assert desk.board.job(A).state == "finished"


def test_a_node_that_ends_before_its_job_has_left_ends_no_job() -> None:
    """A job that is to be started again, and whose process is lost meanwhile, is started again."""
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    assert not of(desk.tell(NodeLost(at=61.0, node=HERE)), RejectJob)
    assert desk.board.job(A).state == "queued"
    desk.join(HERE)
    assert desk.nodes() == [HERE, THERE], "what comes back is another machine"
    assert only(desk.plan({A: cores(1.0)}, at=62.0), LaunchJob)


def test_an_unknown_node_is_no_news() -> None:
    assert not Noticed().notice(NodeId("nowhere"))


def test_it_survives_a_restart() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    again = Scheduler({"scripted": desk.controller})
    again.load(desk.scheduler.dump())
    assert again.snapshot(2.0).nodes == desk.scheduler.snapshot(2.0).nodes
    lost = JobFailed(at=2.0, job=A, cause="it moves", retryable=True, is_stopped=True)
    again.handle(lost)
    assert again.job(A).status == "queued"
    late = GrantApplied(at=3.0, job=A, request=1, granted=cores(1.0))
    assert again.handle(late) == []
    assert again.handle(JobStarted(at=3.0, job=A, request=1, granted=cores(1.0))) == []
