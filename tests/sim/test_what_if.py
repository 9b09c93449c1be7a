"""A live host's jobs in the simulated world: they go on as they were, and end as they would have ended."""

from typing import Any, cast

import pytest

from punctual.core.cluster import Node
from punctual.core.commands import WarnUser
from punctual.core.events import (
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    PauseRequested,
    PolicyChanged,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import StatusBoard
from punctual.daemon.host_state import HostState, new_scheduler
from punctual.daemon.run_folder import create_run
from punctual.journal.sqlite import SqliteJournal
from punctual.journal.state import dumps, loads
from punctual.sim import parts
from punctual.sim import what_if as what_if_module
from punctual.sim.job import SimJob
from punctual.sim.recorded import ProportionalSpeed
from punctual.sim.simulation import Simulation, registered
from punctual.sim.what_if import SimulatedEnd, played, what_if

NODE = Node(NodeId("local"), Resources(2.0))
NOW = 40.0
POLICY = "promises-first"


def job(name: str, at: float = 0.0, *, core_s: float = 60.0, steps: float = 100.0, **declared: Any) -> SimJob:
    """A job on cores that takes `core_s` in all, its steps declared."""
    spec = JobSpec(id=JobId(name), ceiling=Resources(2.0), floor=Resources(0.1), work_steps=steps, **declared)
    return SimJob(at, spec, ProportionalSpeed(step_cost=core_s / steps, usable=2.0), steps)


def simulated(jobs: list[SimJob], end_at: float = float("inf"), events: Any = ()) -> HostState:
    """The state of a host with these jobs at `end_at`."""
    boards: list[StatusBoard] = []

    def listen(message: Message) -> None:
        boards[0].fold(message)

    simulation = Simulation(
        jobs, [NODE], registered(POLICY, {}), controllers=parts.by_default("controllers", ["remaining-cost"]), end_at=end_at,
        events=events, listeners=(listen,), strict=False,
    )  # fmt: skip
    boards.append(StatusBoard(simulation.scheduler.forecast))
    simulation.run()
    return HostState(
        run=cast(Any, None), journal=cast(Any, None), scheduler=simulation.scheduler, board=boards[0], time=cast(Any, None)
    )  # fmt: skip


def restored(state: HostState) -> HostState:
    """As it is read from a journal."""
    scheduler = new_scheduler()
    again = HostState(
        run=state.run,
        journal=state.journal,
        scheduler=scheduler,
        board=StatusBoard(scheduler.forecast),
        time=state.time,
    )
    again.load(dumps(loads(state.dumped())))
    return again


def ends(jobs: list[SimJob], other: str | None = None, events: Any = ()) -> dict[str, SimulatedEnd]:
    """What is said at `NOW` of each job that has not ended then."""
    state = restored(simulated(jobs, NOW, events))
    change = None if other is None else PolicyChanged(at=NOW, policy=other, parameters={}, before=POLICY)
    return cast(Any, played(state, NOW, registered(POLICY, {}), change, 10.0))


def test_under_its_own_policy_each_job_ends_as_it_does_where_nobody_asked() -> None:
    jobs = [job("tight", deadline_s=70.0), job("wide", 10.0, deadline_s=150.0), job("free", 20.0)]
    whole = simulated(jobs).board
    said = ends(jobs)
    assert set(said) == {"tight", "wide", "free"}
    for name, outcome in said.items():
        landed_at = whole.job(JobId(name)).landed_at
        assert outcome.landed_at is not None
        assert landed_at is not None
        assert outcome.landed_at == pytest.approx(landed_at, abs=3.0), name
        assert not outcome.unknown


def test_another_policy_changes_who_is_in_time() -> None:
    """Where all get as much, the job without a deadline holds what the other one needs for its own."""
    jobs = [job("free", core_s=200.0), job("tight", 30.0, core_s=100.0, deadline_s=80.0)]
    assert ends(jobs)["tight"].verdict == "met"
    assert ends(jobs, "max-min")["tight"].verdict == "missed"


def test_both_policies_begin_with_the_same_state_though_the_journal_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run("host", {"options": {"policy": POLICY}})
    with SqliteJournal(run.journal) as journal:
        journal.append([
            NodeJoined(at=0.0, node=NODE.id, capacity=NODE.capacity),
            JobSubmitted(at=1.0, spec=job("a", deadline_s=70.0).spec),
            JobStarted(at=2.0, job=JobId("a"), request=1, granted={NODE.id: Resources(1.0)}),
        ])  # fmt: skip

        def played_while_more_comes(state: HostState, at: float, *asked: Any) -> dict[JobId, SimulatedEnd]:
            known.append((at, [(status.id, status.steps_done) for status in state.board.jobs()]))
            journal.append([
                ProgressReported(at=3.0, job=JobId("a"), steps_done=50.0, steps_total=100.0, unit_at=3.0, used_core_s=30.0, landed=False),
                JobSubmitted(at=4.0, spec=job("b").spec),
            ])  # fmt: skip
            return played(state, at, *asked)

        known: list[tuple[float, list[tuple[JobId, float]]]] = []
        monkeypatch.setattr(what_if_module, "played", played_while_more_comes)
        (outlook,) = what_if(run, POLICY, {}, 10.0).jobs
    assert known == [(known[0][0], [(JobId("a"), 0.0)])] * 2
    assert outlook.other == outlook.today


def test_of_a_job_whose_work_nobody_knows_nothing_is_said_and_of_one_that_waits_for_it_neither() -> None:
    endless = job("endless", core_s=1e6, steps=1e6)
    endless = SimJob(0.0, JobSpec(id=JobId("endless"), ceiling=Resources(1.0)), endless.truth, 1e6)
    jobs = [
        endless,
        job("after", 1.0, work_core_s=60.0, after=(JobId("endless"),)),
        job("known", 2.0, deadline_s=100.0),
    ]
    said = ends(jobs)
    assert "how much it has left" in said["endless"].unknown
    assert "waits for 'endless'" in said["after"].unknown
    assert said["known"].verdict == "met"


def test_a_job_that_only_waits_is_said_to_wait_and_why() -> None:
    endless = job("endless", core_s=1e6, steps=1e6)
    endless = SimJob(
        0.0, JobSpec(id=JobId("endless"), ceiling=Resources(2.0), floor=Resources(2.0)), endless.truth, 1e6
    )
    waits = SimJob(
        1.0,
        JobSpec(id=JobId("waits"), ceiling=Resources(2.0), floor=Resources(2.0), work_core_s=60.0),
        endless.truth,
        1e6,
    )
    said: dict[str, SimulatedEnd] = cast(
        Any, played(simulated([endless, waits], NOW), NOW, registered("fifo", {}), None, 1.0)
    )
    assert said["waits"].state == "queued"
    assert said["waits"].unknown == "it still waits for room"
    told = simulated([endless, waits], NOW)
    text = "it waits until a job ends: 1 job runs, and no more do at once (`--jobs-at-once`)"
    told.board.fold(WarnUser(at=NOW, job=JobId("waits"), reason=Reason("waits", text)))
    said = cast(Any, played(told, NOW, registered("fifo", {}), None, 1.0))
    assert said["waits"].unknown.startswith("it still waits until a job ends: 1 job runs")


def test_a_job_that_its_user_has_paused_stays_paused() -> None:
    pause = PauseRequested(at=30.0, job=JobId("paused"))
    said = ends([job("paused", deadline_s=300.0), job("known", 2.0, deadline_s=100.0)], "fifo", [pause])
    assert (said["paused"].state, said["paused"].unknown) == ("paused", "its user has paused it")
    assert said["known"].verdict == "met"
