"""A node that is taken away: its jobs leave it, nothing new comes, and a notice that is withdrawn leaves no trace."""

from typing import Any, TypeVar

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, only

from punctual.core.codec import decode, encode, kind_of
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.control import PhaseProgress
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
    PhaseReported,
    ProgressReported,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, EndRules
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.status import StatusBoard

THERE = NodeId("there")
C = TypeVar("C", bound=Command)


def there(amount: float) -> Allocation:
    return {THERE: Resources(cores=amount)}


def saving(n: int, wall_s: float) -> PhaseProgress:
    """So many checkpoints, which took so long in all."""
    return PhaseProgress(name="checkpoint", units_planned=9.0, units_done=n, units_measured=n, wall_s=wall_s)


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

    def leave(self, id: JobId = A, *, at: float = 16.0) -> list[Command]:
        """A quarter of the notice has passed, which is left for plans."""
        return self.tell(TimerFired(at=at, timer=Timer("leave", id)))

    def nodes(self) -> list[NodeId]:
        return [node.id for node in self.scheduler.snapshot(0.0).nodes]


def of(commands: list[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


@pytest.mark.parametrize("declared", [{}, {"preemptible": False}, {"n_retries": 0}])
def test_a_job_that_is_on_the_node_alone_saves_and_starts_elsewhere(declared: dict[str, Any]) -> None:
    desk = Noticed()
    desk.run(A, 1.0, **declared)
    commands = desk.notice()
    assert of(commands, RequestPlan)
    assert only(commands, SetTimer).fire_at == 16.0
    assert not of(commands, StopJob | ResizeJob)  # type: ignore[arg-type]
    stop = only(desk.leave(), StopJob)
    assert (stop.job, stop.restarts, stop.moves) == (A, True, True)
    assert "'here' is taken away in 45 s" in stop.cause
    desk.gone(stop, at=17.0)
    assert desk.board.job(A).state == "queued"
    launch = only(desk.plan({A: there(1.0)}, at=18.0), LaunchJob)
    assert launch.grant == there(1.0)
    desk.started(launch, at=19.0)
    assert desk.scheduler.job(A).status == "running"
    assert not of(desk.tell(NodeLost(at=61.0, node=HERE)), ResizeJob)


def test_a_job_works_on_until_a_plan_has_another_place_for_it() -> None:
    desk = Noticed()
    desk.run(A, 1.0, preemptible=True)
    desk.notice(ends_at=3601.0)
    desk.tell(NodeNoticed(at=1.5, node=THERE, ends_at=1e5))
    assert not of(desk.plan({A: {}}, at=2.0), ResizeJob), "it may use what it has until the end"
    desk.tell(NodeNoticed(at=60.0, node=THERE, ends_at=None))
    assert only(desk.plan({A: there(1.0)}, at=61.0), ResizeJob).grant == there(1.0)
    assert not of(desk.leave(at=3000.0), StopJob)


def test_a_job_works_on_until_its_last_checkpoint_before_the_end() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.tell(PhaseReported(at=0.5, job=A, phases=(saving(2, 10.0),)))
    timer = only(desk.notice(ends_at=3601.0), SetTimer)
    assert timer.fire_at == 3601.0 - 2 * 5.0 - 10.0, "twice a checkpoint, and a command that is lost and repeated"
    assert not of(desk.leave(at=3000.0), StopJob), "a timer that was set before"
    assert of(desk.leave(at=timer.fire_at), StopJob)


def test_a_job_leaves_sooner_if_its_node_ends_sooner_than_was_said() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice(ends_at=3601.0)
    assert only(desk.notice(at=101.0, ends_at=141.0), SetTimer).fire_at == 111.0
    assert of(desk.leave(at=111.0), StopJob)
    assert not of(desk.notice(at=112.0, ends_at=130.0), StopJob), "it is asked once"


def test_a_job_has_as_much_time_to_save_as_it_asked_for() -> None:
    desk = Noticed()
    desk.run(A, 1.0, ends=EndRules(grace_s=300.0))
    assert only(desk.notice(ends_at=3601.0), SetTimer).fire_at == 3601.0 - 300.0 - 10.0


def test_a_node_that_stays_after_all_keeps_its_job_and_the_policy_may_pause_it() -> None:
    desk = Noticed()
    desk.run(A, 1.0, preemptible=True)
    desk.notice()
    desk.notice(at=2.0, ends_at=None)
    assert not of(desk.plan({A: cores(1.0)}, at=2.0), ResizeJob)
    desk.submit(B, at=3.0)
    assert only(desk.plan({A: {}, B: cores(2.0)}, at=4.0), ResizeJob).grant == {}
    assert not of(desk.leave(), StopJob)


def test_a_saved_job_has_only_the_rest_of_its_work_left() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    desk.progress(A, at=15.0, steps=60.0)
    stop = only(desk.leave(), StopJob)
    desk.tell(JobFailed(at=17.0, job=A, cause=stop.cause, retryable=True, is_stopped=True, has_saved=True))
    (waiting,) = desk.scheduler.snapshot(17.0).waiting
    assert (waiting.done_steps, waiting.steps_total, waiting.remaining_steps(17.0)) == (60.0, 100.0, 40.0)
    desk.started(only(desk.plan({A: there(1.0)}, at=18.0), LaunchJob), at=19.0)
    assert desk.scheduler.job(A).done_steps == 60.0, "until the new process says where it is"
    desk.progress(A, at=20.0, steps=55.0)
    assert desk.scheduler.job(A).done_steps == 55.0


def test_a_job_that_is_lost_has_the_work_since_its_last_checkpoint_left() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.progress(A, at=10.0, steps=40.0)
    desk.tell(PhaseReported(at=11.0, job=A, phases=(saving(1, 1.0),)))
    desk.progress(A, at=15.0, steps=60.0)
    desk.tell(NodeLost(at=16.0, node=HERE))
    assert desk.scheduler.job(A).done_steps == 40.0


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


def test_policies_see_no_memory_on_it() -> None:
    desk = Noticed()
    desk.submit(A)
    desk.started(only(desk.plan({A: there(1.0)}), LaunchJob))
    desk.tell(
        ProgressReported(at=1.0, job=A, steps_done=1, steps_total=9, unit_at=1.0, used_core_s=1.0, memory_bytes=2**30)
    )
    assert [*desk.scheduler.snapshot(1.0).holding[0].resident] == [THERE]
    desk.notice(THERE)
    assert not desk.scheduler.snapshot(1.0).holding[0].resident


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
    desk.notice()
    stop = only(desk.leave(), StopJob)
    desk.notice(at=16.5, ends_at=None)
    desk.gone(stop, at=17.0)
    assert only(desk.plan({A: cores(1.0)}, at=18.0), LaunchJob)


def test_a_job_that_has_no_node_any_more_says_what_it_waits_for() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice(THERE)
    desk.notice()
    assert not of(desk.plan({}, at=2.0), WarnUser), "it works on"
    desk.gone(only(desk.leave(), StopJob), at=17.0)
    (told,) = of(desk.plan({}, at=18.0), WarnUser)
    assert (told.job, told.reason.code) == (A, "waits")
    assert "waits for a node" in told.reason.text
    assert desk.board.job(A).reason == told.reason


def test_a_user_s_stop_ends_a_job_that_is_leaving() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    assert of(desk.leave(), StopJob)
    stop = only(desk.tell(StopRequested(at=70.0, job=A, cause="enough")), StopJob)
    assert (stop.restarts, stop.moves, stop.cause) == (False, False, "enough")
    desk.tell(JobFailed(at=71.0, job=A, cause="enough", is_stopped=True))
    assert desk.board.job(A).state == "stopped"


def test_a_job_that_finishes_instead_is_finished() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    assert of(desk.leave(), StopJob)
    desk.tell(JobFinished(at=17.0, job=A, landed_at=17.0))
    assert desk.board.job(A).state == "finished"


def test_a_node_that_ends_before_its_job_has_left_ends_no_job() -> None:
    """A job that is to be started again, and whose process is lost meanwhile, is started again."""
    desk = Noticed()
    desk.run(A, 1.0)
    desk.notice()
    assert of(desk.leave(), StopJob)
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


def test_a_total_that_its_process_no_longer_believes_is_not_that_of_the_next_one() -> None:
    desk = Noticed()
    desk.run(A, 1.0)
    desk.progress(A, at=1.0, steps=5.0)
    assert desk.scheduler.forecast(A)[1] == 100.0
    desk.tell(ProgressReported(at=2.0, job=A, steps_done=6.0, steps_total=None, unit_at=2.0, used_core_s=2.0))
    assert desk.scheduler.forecast(A)[1] is None
