"""One scenario through the live engine and through the simulation: equal journals.

The live engine gets a clock that jumps, and its own planner and journal; its executor is the same simulated world.
Delays and submissions are odd numbers, so that a fact of the world and a timer do not fall on one instant by chance:
which of them is first then is not compared.
"""

from tests.memory_journal import MemoryJournal

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.events import GrantApplied, GrantFailed, JobFailed, JobFinished, JobSubmitted, Message, TimerFired
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.planner import InlinePlanner
from punctual.sim.event_queue import EventQueue
from punctual.sim.fake_clock import FakeClock
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import CoresTruth
from punctual.sim.world import World

NODE = Node(NodeId("here"), Resources(cores=2.0))
CONTROLLERS = ("remaining-cost", "decor-pi")
PERIODS = Periods(first_tick_s=7.31, idle_tick_s=11.03, retry_s=1.7, answer_s=31.7)
PHYSICS = Physics(
    startup_s=3.137, resize_s=1.0317, rate_sigma=0.05, failures_per_device_h=100.0, checkpoint_s=13.3,
    failed_resize_frac=0.1, lost_answer_frac=0.1,
)  # fmt: skip
SEED = 11


def jobs() -> list[SimJob]:
    return [
        SimJob(1000.0 + 10.0373 * i, spec(i), CoresTruth(step_core_s=0.1 + 0.01 * i), 500.0 + 77.7 * i)
        for i in range(6)
    ]


def spec(i: int) -> JobSpec:
    return JobSpec(
        id=JobId(f"job-{i}"),
        ceiling=Resources(cores=1.0 + 0.1 * i),
        floor=Resources(cores=0.1),
        work_steps=500.0 + 77.7 * i,
        deadline_s=200.0 + 31.3 * i,
        controller=CONTROLLERS[i % 2] if i < 5 else None,
        preemptible=True,
        resize_cost_s=0.219,
    )


class Shares:
    """Everybody gets what they demand; where that is too much, the first ones do."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        free = NODE.capacity.cores
        plan = Plan(revision=snapshot.revision, grants={})
        for view in snapshot.jobs:
            cores = min(free, max(view.spec.floor.cores, view.demand.cores))
            if cores >= view.spec.floor.cores:
                plan.grants[view.id] = {NODE.id: Resources(cores=cores)}
                free -= cores
        return plan


class Calls(EventQueue):
    """What is to happen in the world, as calls of a clock."""

    def __init__(self, clock: FakeClock, physics: Physics) -> None:
        super().__init__()
        self._clock = clock
        self.world = World(self, physics, SEED)

    def enter(self, at: float, priority: int, subject: object, version: int = 0) -> None:
        def happen() -> None:
            for event in self.world.due(at, subject, version):
                self._clock.post(event)

        self._clock.call_at(at, happen)

    def submit(self, job: SimJob) -> None:
        def arrive() -> None:
            self.world.submit(job)
            self._clock.post(JobSubmitted(at=job.submitted_at, spec=job.spec))

        self._clock.call_at(job.submitted_at, arrive)


def controllers() -> dict[str, object]:
    return {name: registry.load("controllers", name)() for name in CONTROLLERS}


def live() -> list[Message]:
    clock, journal = FakeClock(jobs()[0].submitted_at), MemoryJournal()
    calls = Calls(clock, PHYSICS)
    scheduler = Scheduler(controllers(), strict=True, seed=SEED, periods=PERIODS, n_retries=50)  # type: ignore[arg-type]
    engine = Engine(scheduler, calls.world, InlinePlanner(Shares()), journal=journal, time=clock)
    for event in calls.world.join(clock.now(), NODE):
        engine.post(event)
    for job in jobs():
        calls.submit(job)
    begins_at = jobs()[-1].submitted_at
    engine.run(lambda: clock.now() >= begins_at and not scheduler.n_active)
    return [message for _, message in journal.read_from(1)]


def simulated() -> list[Message]:
    journal: list[Message] = []
    Simulation(
        jobs(), [NODE], Shares(), controllers=controllers(), physics=PHYSICS, seed=SEED, periods=PERIODS,  # type: ignore[arg-type]
        listeners=[journal.append], n_retries=50,
    ).run()  # fmt: skip
    return journal


def test_the_live_engine_and_the_simulation_write_the_same_journal() -> None:
    one, other = live(), simulated()
    for i, (message, counterpart) in enumerate(zip(one, other, strict=False)):
        assert message == counterpart, f"message {i}"
    assert len(one) == len(other)


def test_the_scenario_is_worth_playing() -> None:
    journal = simulated()
    counts = {kind: sum(isinstance(message, kind) for message in journal) for kind in (
        TimerFired, GrantApplied, GrantFailed, JobFailed, JobFinished,
    )}  # fmt: skip
    assert counts[JobFinished] == len(jobs())
    assert counts[TimerFired] > 100
    assert all(counts.values())
