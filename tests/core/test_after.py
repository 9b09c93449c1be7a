"""A job that is to run after others is not there for policies until all of them have finished."""

import pickle
from itertools import pairwise

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual.core.cluster import Node
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, JobSubmitted, StopRequested
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.policies.fifo import Fifo
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import Constant

C = JobId("c")


def submit(desk: Desk, id: JobId, *after: JobId, at: float = 0.0) -> list[Command]:
    spec = JobSpec(id=id, ceiling=Resources(cores=2), controller="scripted", after=after, preemptible=True)
    return desk.tell(JobSubmitted(at=at, spec=spec))


def test_it_starts_once_all_have_finished(desk: Desk) -> None:
    desk.run(A, 0.5)
    desk.run(B, 0.5)
    submit(desk, C, A, B)
    assert {job.id for job in desk.scheduler.snapshot(0.0).jobs} == {A, B}
    desk.plan(desk.granted(), at=1.0)
    assert none(desk.plan({**desk.granted(), C: cores(1.0)}, at=1.0), LaunchJob), "whatever a plan says"
    desk.tell(JobFinished(at=2.0, job=A, landed_at=2.0))
    assert C not in {job.id for job in desk.scheduler.snapshot(2.0).jobs}
    desk.tell(JobFinished(at=3.0, job=B, landed_at=3.0))
    assert [job.id for job in desk.scheduler.snapshot(3.0).jobs] == [C]
    only(desk.plan({C: cores(1.0)}, at=4.0) + desk.plan({C: cores(1.0)}, at=4.0), LaunchJob)


def test_one_that_has_finished_before_is_not_waited_for(desk: Desk) -> None:
    desk.run(A, 0.5)
    desk.tell(JobFinished(at=1.0, job=A, landed_at=1.0))
    only(submit(desk, B, A, at=2.0), RequestPlan)
    assert [job.id for job in desk.scheduler.snapshot(2.0).jobs] == [B]


@pytest.mark.parametrize("stops", [False, True])
def test_one_that_does_not_finish_ends_all_that_wait_for_it(desk: Desk, stops: bool) -> None:
    desk.run(A, 0.5)
    submit(desk, B, A)
    submit(desk, C, B)
    if stops:
        desk.tell(StopRequested(at=1.0, job=A, cause="enough"))
    commands = desk.tell(JobFailed(at=1.0, job=A, cause="it crashed", is_stopped=stops))
    rejected = {command.job: command.reason.text for command in commands if isinstance(command, RejectJob)}
    how = "was stopped" if stops else "failed"
    assert rejected == {B: f"it is to run after 'a', which {how}", C: "it is to run after 'b', which was turned away"}
    assert only(submit(desk, JobId("d"), A, at=2.0), RejectJob).reason.code == "after-failed"


def test_a_waiting_job_can_be_stopped(desk: Desk) -> None:
    desk.run(A, 0.5)
    submit(desk, B, A)
    submit(desk, C, B)
    commands = desk.tell(StopRequested(at=1.0, job=B, cause="enough"))
    rejected = [(command.job, command.reason.text) for command in commands if isinstance(command, RejectJob)]
    assert rejected == [(B, "enough"), (C, "it is to run after 'b', which was stopped")]
    desk.tell(JobFinished(at=2.0, job=A, landed_at=2.0))


def test_a_long_chain_ends_at_once(desk: Desk) -> None:
    desk.run(A, 0.5)
    names = [A, *(JobId(f"job-{n}") for n in range(3000))]
    for before, name in pairwise(names):
        submit(desk, name, before)
    commands = desk.tell(JobFailed(at=1.0, job=A, cause="it crashed"))
    assert sum(isinstance(command, RejectJob) for command in commands) == 3000


def test_it_cannot_wait_for_an_unknown_job_or_itself(desk: Desk) -> None:
    assert only(submit(desk, B, JobId("nobody")), RejectJob).reason.code == "after-unknown"
    with pytest.raises(InvalidSpec, match="must name other jobs"):
        submit(desk, B, B)


def test_it_still_waits_when_the_state_was_loaded(desk: Desk) -> None:
    desk.run(A, 0.5)
    submit(desk, B, A)
    loaded = Scheduler({"scripted": desk.controller}, strict=True)
    loaded.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    desk.scheduler = loaded
    assert [job.id for job in loaded.snapshot(1.0).jobs] == [A]
    desk.tell(JobFinished(at=2.0, job=A, landed_at=2.0))
    assert [job.id for job in loaded.snapshot(2.0).jobs] == [B]


def test_simulated_jobs_run_one_after_the_other() -> None:
    worker = Resources(cores=1.0)

    def job(name: JobId, *after: JobId) -> SimJob:
        spec = JobSpec(
            id=name,
            worker=worker,
            floor=worker,
            ceiling=worker,
            counts=(1,),
            work_steps=100,
            controller=None,
            after=after,
        )
        return SimJob(0.0, spec, Constant(1.0), 100.0)

    seen: list[tuple[str, JobId]] = []

    def listen(message: object) -> None:
        if isinstance(message, LaunchJob | JobFinished):
            seen.append((type(message).__name__, message.job))

    nodes = [Node(NodeId("n"), Resources(cores=4.0), "")]
    Simulation([job(A), job(B, A), job(C, A, B)], nodes, Fifo(), listeners=[listen]).run()
    assert seen == [(kind, name) for name in (A, B, C) for kind in ("LaunchJob", "JobFinished")]
