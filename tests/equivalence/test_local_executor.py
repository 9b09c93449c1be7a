"""One scenario simulated, live with a clock that jumps, and live with real processes: the same happens to each job.

Real processes take their own time, so what is compared is the order of what happened to each job, and of the plans. In
the simulation an instant says when something happens; with real processes it is what has happened before: a process
ends when it finds a file, which is made when the message comes that it waits for.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.equivalence.test_simulation import Calls
from tests.memory_journal import MemoryJournal

from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    PlanProposed,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.program import Program
from punctual.core.resources import Resources, total
from punctual.core.scheduler import Periods, Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.planner import InlinePlanner
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.executor import LocalExecutor
from punctual.sim.fake_clock import FakeClock
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import Constant

NODE = Node(NodeId("here"), Resources(cores=2.0))
#: Nothing is repeated or given up because it took long.
PERIODS = Periods(answer_s=float("inf"))
PHYSICS = Physics(startup_s=1.0, resize_s=0.5)
GROWS, FIRST, TOO_LARGE, WAITS, STOPPED = (JobId(name) for name in ("grows", "first", "too-large", "waits", "stopped"))

#: Job -> instant of its submission in the simulation, floor, ceiling, and the seconds it works there.
JOBS = {
    GROWS: (0.0, 0.5, 2.0, 100.0),
    FIRST: (0.0, 1.0, 1.0, 50.0),
    TOO_LARGE: (0.0, 4.0, 4.0, 1.0),
    WAITS: (10.0, 2.0, 2.0, 30.0),
    STOPPED: (10.0, 2.0, 2.0, 30.0),
}
STOP_AT = 60.0
#: A process that ends when it finds its file.
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.02)"


def spec(job: JobId) -> JobSpec:
    _, floor, ceiling, _ = JOBS[job]
    return JobSpec(id=job, floor=Resources(cores=floor), ceiling=Resources(cores=ceiling), controller=None)


def sim_jobs() -> list[SimJob]:
    return [SimJob(at, spec(job), Constant(1.0), work_s) for job, (at, _, _, work_s) in JOBS.items()]


class Shares:
    """In order of submission, first each job's floor, then as much as it may have."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        free = NODE.capacity.cores
        cores: dict[JobId, float] = {}
        for view in snapshot.jobs:
            if view.spec.floor.cores <= free:
                cores[view.id] = view.spec.floor.cores
                free -= view.spec.floor.cores
        for view in snapshot.jobs:
            if view.id in cores:
                more = min(free, view.spec.ceiling.cores - cores[view.id])
                cores[view.id] += more
                free -= more
        grants = {job: {NODE.id: Resources(cores=amount)} for job, amount in cores.items()}
        return Plan(revision=snapshot.revision, grants=grants)


def scheduler() -> Scheduler:
    return Scheduler({}, strict=True, periods=PERIODS)


def simulated() -> list[Message]:
    journal: list[Message] = []
    events = [StopRequested(at=STOP_AT, job=STOPPED, cause="the user")]
    Simulation(
        sim_jobs(), [NODE], Shares(), physics=PHYSICS, periods=PERIODS, events=events, listeners=[journal.append]
    ).run()
    return journal


def live_with_a_clock_that_jumps() -> list[Message]:
    clock, journal, shares = FakeClock(), MemoryJournal(), scheduler()
    calls = Calls(clock, PHYSICS)
    engine = Engine(shares, calls.world, InlinePlanner(Shares()), journal=journal, time=clock)
    for event in calls.world.join(0.0, NODE):
        engine.post(event)
    for job in sim_jobs():
        calls.submit(job)
    clock.call_at(STOP_AT, lambda: engine.post(StopRequested(at=STOP_AT, job=STOPPED, cause="the user")))
    engine.run(lambda: clock.now() >= STOP_AT and not shares.n_active)
    return [message for _, message in journal.read_from(1)]


@dataclass
class Script:
    """Does what is next when the message has come that it waits for."""

    steps: list[tuple[Callable[[Message], bool], Callable[[], None]]]
    heard: list[Message] = field(default_factory=list)

    def listen(self, message: Message) -> None:
        self.heard.append(message)
        while self.steps and any(map(self.steps[0][0], self.heard)):
            self.steps.pop(0)[1]()


def live_with_real_processes(folder: Path) -> list[Message]:
    journal, mailbox, shares = MemoryJournal(), Mailbox(), scheduler()
    gates = {job: folder / f"{job}-may-end" for job in JOBS}

    def submit(*jobs: JobId) -> None:
        for job in jobs:
            program = Program(argv=(sys.executable, "-I", "-S", "-c", WAIT, str(gates[job])))
            mailbox.post(JobSubmitted(at=mailbox.now(), spec=spec(job), program=program))

    script = Script([
        (is_about(JobStarted, FIRST), lambda: submit(WAITS, STOPPED)),
        (is_about(JobSubmitted, STOPPED), gates[FIRST].touch),
        (is_about(JobFinished, FIRST), lambda: mailbox.post(StopRequested(at=mailbox.now(), job=STOPPED, cause="the user"))),
        (is_about(StopRequested, STOPPED), lambda: None),
        (lambda message: is_about(GrantApplied, GROWS)(message) and held(message) == 2.0, gates[GROWS].touch),
        (is_about(JobStarted, WAITS), gates[WAITS].touch),
    ])  # fmt: skip
    context = ExecutorContext(
        node=NODE.id, runtime_dir=folder / "run", actuator="pacing", log_of=lambda job: folder / f"{job}.log"
    )
    with closing(LocalExecutor(context)) as executor:
        engine = Engine(
            shares, executor, InlinePlanner(Shares()), journal=journal, time=mailbox, listeners=[script.listen]
        )
        engine.post(NodeJoined(at=mailbox.now(), node=NODE.id, capacity=NODE.capacity))
        submit(GROWS, FIRST, TOO_LARGE)
        engine.run(lambda: not script.steps and not shares.n_active)
    return script.heard


def is_about(kind: type, job: JobId) -> Callable[[Message], bool]:
    def matches(message: Message) -> bool:
        return isinstance(message, kind) and job_of(message) == job

    return matches


def job_of(message: Any) -> JobId | None:
    return message.spec.id if isinstance(message, JobSubmitted) else getattr(message, "job", None)


def held(message: Any) -> float:
    """Cores that the message gives or says to be held."""
    allocation = message.grant if isinstance(message, LaunchJob | ResizeJob) else message.granted
    return round(total(allocation.values()).cores, 6)


def fate(journal: Iterable[Message], job: JobId) -> list[tuple[str, float | None]]:
    """What happened to the job, in its order, with the cores that it was given."""
    grants = (LaunchJob, ResizeJob, JobStarted, GrantApplied)
    others = (JobSubmitted, JobFinished, JobFailed, RejectJob, StopRequested, StopJob)
    return [
        (type(message).__name__, held(message) if isinstance(message, grants) else None)
        for message in journal
        if isinstance(message, grants + others) and job_of(message) == job
    ]


def plans(journal: Iterable[Message]) -> list[dict[JobId, float]]:
    """The plans that differ from the one before."""
    made = [
        {job: total(grant.values()).cores for job, grant in message.plan.grants.items()}
        for message in journal
        if isinstance(message, PlanProposed)
    ]
    return made[:1] + [plan for before, plan in pairwise(made) if plan != before]


def test_the_same_happens_to_each_job_whoever_runs_it(tmp_path: Path) -> None:
    expected = simulated()
    for journal in (live_with_a_clock_that_jumps(), live_with_real_processes(tmp_path)):
        assert {job: fate(journal, job) for job in JOBS} == {job: fate(expected, job) for job in JOBS}
        assert plans(journal) == plans(expected)


def test_the_scenario_is_worth_playing() -> None:
    journal = simulated()
    events = {type(message) for message in journal if isinstance(message, Event)}
    assert {JobStarted, GrantApplied, JobFinished, StopRequested} <= events
    assert len(plans(journal)) >= 4
    assert [kind for kind, _ in fate(journal, STOPPED)] == ["JobSubmitted", "StopRequested", "RejectJob"]
    assert fate(journal, TOO_LARGE)[-1] == ("RejectJob", None)
