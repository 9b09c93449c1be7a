"""One scenario through the live loop and through the simulation: equal journals.

The live loop gets a clock that jumps and an executor over the same simulated world; everything else is what runs live.
Delays and submissions are odd numbers, so that a fact of the world and a timer do not fall on one instant by chance:
what the two loops do first then is not compared.
"""

from collections import deque

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import Command, LaunchJob, ResizeJob, StopJob
from punctual.core.events import Event, GrantApplied, GrantFailed, JobFailed, JobFinished, JobSubmitted, TimerFired
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.protocols import Message, Sink
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.timer import Timer
from punctual.runtime.engine import Due
from punctual.runtime.live import LiveEngine
from punctual.runtime.planner import InlinePlanner
from punctual.runtime.timers import Timers
from punctual.sim.agenda import ARRIVAL, Agenda
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.truth import Cores
from punctual.sim.world import World
from punctual.store.memory import MemoryJournal

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
        SimJob(1000.0 + 10.0373 * i, spec(i), Cores(step_core_s=0.1 + 0.01 * i), 500.0 + 77.7 * i) for i in range(6)
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


class Bridge:
    """The simulated world as the live loop's executor, and as its time source: that is where its events come from."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.world = World(self.agenda, PHYSICS, SEED)
        self.left = {job.spec.id for job in jobs()}
        self._now = jobs()[0].submitted_at
        self._events: deque[Event] = deque()
        self._timers = Timers()
        for job in jobs():
            self.agenda.enter(job.submitted_at, ARRIVAL, job)

    # As an executor.

    def perform(self, command: Command, sink: Sink) -> None:
        assert isinstance(command, LaunchJob | ResizeJob | StopJob)
        self.world.perform(command)

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        for event in self.world.report(at, job):
            sink(event)

    # As a time source.

    def now(self) -> float:
        return self._now

    def post(self, event: Event) -> None:
        self._events.append(event)

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        self._timers.set(timer, fire_at)

    def next(self) -> Event | Due:
        while not self._events:
            next_at, timer_at = self.agenda.next_at(), self._timers.next_at()
            if next_at is None or (timer_at is not None and timer_at < next_at):
                assert timer_at is not None, "the engine waits for nothing"
                self._now = timer_at
                return Due(timer_at, self._timers.pop_due(timer_at))
            self._now = next_at
            self._events.extend(self._next_events())
        return self._events.popleft()

    def _next_events(self) -> list[Event]:
        at, priority, _, subject, version = self.agenda.pop()
        if priority == ARRIVAL:
            self.world.submit(subject)
            return [JobSubmitted(at=at, spec=subject.spec)]
        return self.world.due(at, subject, version)

    # As a listener.

    def listen(self, message: Message) -> None:
        if isinstance(message, JobFinished):
            self.left.discard(message.job)


def controllers() -> dict[str, object]:
    return {name: registry.load("controllers", name)() for name in CONTROLLERS}


def live() -> list[Message]:
    bridge, journal = Bridge(), MemoryJournal()
    scheduler = Scheduler(controllers(), strict=True, seed=SEED, periods=PERIODS, n_retries=50)  # type: ignore[arg-type]
    engine = LiveEngine(scheduler, bridge, InlinePlanner(Shares()), journal, time=bridge, listeners=[bridge.listen])
    for event in bridge.world.join(bridge.now(), NODE):
        engine.post(event)
    engine.run(lambda: not bridge.left)
    return [message for _, message in journal.read_from(1)]


def simulated() -> list[Message]:
    journal: list[Message] = []
    Simulation(
        jobs(), [NODE], Shares(), controllers=controllers(), physics=PHYSICS, seed=SEED, periods=PERIODS,  # type: ignore[arg-type]
        listeners=[journal.append], n_retries=50,
    ).run()  # fmt: skip
    return journal


def test_the_live_loop_and_the_simulation_write_the_same_journal() -> None:
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
