"""The engine on virtual time, with the simulated world as its executor."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobSubmitted, NodeJoined, NodeLost, PlanProposed
from punctual.core.fast_init import unchecked_constructor
from punctual.core.ids import Timer
from punctual.core.protocols import Controller, Listener, PerfModel, Policy, Sink
from punctual.core.quoting import refusing_guarantees
from punctual.core.scheduler import Periods, Scheduler
from punctual.daemon.engine import Due, Engine
from punctual.sim.event_queue import ARRIVAL, FACT, PLAN, TIMER, EventQueue
from punctual.sim.garbage import rare_collections
from punctual.sim.job import SimJob
from punctual.sim.market import PoolCourse
from punctual.sim.physics import Physics
from punctual.sim.world import World

#: Instant at which a timer fires, given the timer, the instant that it is set for and the present.
FiresAt = Callable[[Timer, float, float], float]

_plan_proposed = unchecked_constructor(PlanProposed)


def registered(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Return the installed policy of this name."""
    policy: Policy = registry.load("policies", name)(**parameters)
    return policy


class SimulatedPlanner:
    """Runs the policy at once, and proposes the plan after the time that `physics` gives.

    What the policy raises ends the simulation.
    """

    def __init__(self, policy: Policy, queue: EventQueue, physics: Physics) -> None:
        self._policy, self._queue, self._physics = policy, queue, physics

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        self._policy = registered(policy, parameters)

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        plan = refusing_guarantees(self._policy.allocate(snapshot), snapshot)
        n_jobs = len(snapshot.holding) + len(snapshot.waiting)
        at = snapshot.at + (self._physics.solver_s + self._physics.solver_per_job_s * n_jobs)
        self._queue.enter(at, PLAN, _plan_proposed(at=at, plan=plan, revision=plan.revision, cause=""))


class Simulation:
    """Plays jobs on nodes under a policy, until each job has ended or no event is left.

    At one instant facts of the world come first, then submissions, then timers, then plans; equals in the order in
    which they were entered, timers in that of their names. For each event: the scheduler handles it, its commands are
    performed, and the listeners get the event and the commands in their order.

    Parameters
    ----------
    jobs
        Jobs in order of submission; taken one at a time, so that a trace need not be in memory.
    nodes
        They join at the instant of the first submission.
    policy
        Asked inline, with the snapshot of the instant of the request; its answer comes after the time that `physics`
        says a plan takes. What it raises ends the simulation.
    controllers, models
        Plug-ins by registered name; each job names its own.
    periods
        None: without ticks where a job has no controller, and no answer is waited for in vain. Where answers get lost
        they are given up after ten minutes.
    listeners
        Called with each message. What they raise ends the simulation.
    events
        Facts from outside at given instants: stops, changed deadlines, nodes that come and go.
    strict
        A plan that is not valid ends the simulation with `InvariantBroken`; otherwise it is refused, as in a live
        system.
    n_retries
        Number of times that the scheduler launches a failed job again.
    end_at
        Stop before the first entry after this instant.
    scheduler
        One with a history that goes on here: `world` has to be told of its nodes and jobs, and the first of `events` has
        to be `SteeringResumed`. What else a scheduler is made with is not looked at then. None: a new one.
    fires_at
        When timers fire; None: at the instants that they are set for.
    pools
        Machines that can be asked for, over time; offered at the instant of the first submission.

    Raises
    ------
    InvalidSpec
        Answers may be lost and `periods` waits for them for ever.
    """

    def __init__(
        self,
        jobs: Iterable[SimJob],
        nodes: Iterable[Node],
        policy: Policy,
        *,
        controllers: Mapping[str, Controller[Any]] | None = None,
        models: Mapping[str, PerfModel[Any]] | None = None,
        physics: Physics | None = None,
        seed: int = 0,
        periods: Periods | None = None,
        listeners: Sequence[Listener] = (),
        events: Iterable[Event] = (),
        strict: bool = True,
        n_retries: int = 3,
        end_at: float = inf,
        scheduler: Scheduler | None = None,
        fires_at: FiresAt | None = None,
        pools: Iterable[PoolCourse] = (),
    ) -> None:
        physics = physics or Physics()
        self._jobs = iter(jobs)
        self._nodes = sorted(nodes, key=lambda node: node.id)
        self._outside = sorted(events, key=lambda event: event.at)
        #: Submissions and facts from outside that are in the queue.
        self._n_coming = 0
        self._now, self._end_at, self._fires_at = -inf, end_at, fires_at
        #: Events caused by the last entry of the queue.
        self._events: deque[Event] = deque()
        self.post = self._events.append
        self._queue = EventQueue()
        #: For listeners that check them.
        self.scheduler = scheduler or Scheduler(
            controllers or {}, models=models, strict=strict, seed=seed,
            periods=_periods(periods, physics), n_retries=n_retries,
        )  # fmt: skip
        self.world = World(self._queue, physics, seed, pools)
        #: Handlers of entries by priority, given instant, subject and version; what the scheduler hears of it.
        self._happenings = {FACT: self.world.due, ARRIVAL: self._arrive, PLAN: _proposed}
        planner = SimulatedPlanner(policy, self._queue, physics)
        self._engine = Engine(self.scheduler, self.world, planner, self, listeners=listeners)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Play until the end, or until `until` holds, checked before each event; a second call does nothing.

        Raises
        ------
        InvalidSpec
            A job cannot be used, or was submitted before the one that came before it.
        InvariantBroken
            A plan is not valid, or there is an error of ours.
        """
        with rare_collections():
            self._open()
            self._engine.run(until)

    # The source of time: it jumps from one entry of the queue to the next, once all that an entry leads to is handled.

    def now(self) -> float:
        return self._now

    def set_timer(self, timer: Timer, fire_at: float) -> None:
        at = fire_at if self._fires_at is None else self._fires_at(timer, fire_at, self._now)
        self._queue.timers.set(timer, at)

    def next(self) -> Event | Due | None:
        events = self._events
        while not events:
            entry = self._queue.pop() if self._n_coming > 0 or self.scheduler.n_active > 0 else None
            if entry is None or entry[0] > self._end_at:
                return None
            self._now, priority, _, subject, version = entry
            if priority == TIMER:
                return Due(self._now, subject)
            events.extend(self._happenings[priority](self._now, subject, version))
        return events.popleft()

    def _open(self) -> None:
        first = next(self._jobs, None)
        outside, self._outside = self._outside, []
        starts_at = [first.submitted_at] if first is not None else []
        starts_at += [event.at for event in outside[:1]]
        for node in self._nodes if starts_at else ():
            for event in self.world.join(min(starts_at), node):
                self.post(event)
        for event in self.world.market.open(min(starts_at)) if starts_at else ():
            self.post(event)
        for event in outside:
            self._await(event.at, event)
        if first is not None:
            self._await(first.submitted_at, first)

    def _await(self, at: float, subject: SimJob | Event) -> None:
        self._n_coming += 1
        self._queue.enter(at, ARRIVAL, subject)

    def _arrive(self, at: float, subject: SimJob | Event, _version: int) -> list[Event]:
        self._n_coming -= 1
        if not isinstance(subject, SimJob):
            return self._from_outside(subject)
        self.world.submit(subject)
        following = next(self._jobs, None)
        if following is not None:
            _check_order(at, following)
            self._await(following.submitted_at, following)
        return [JobSubmitted(at=at, spec=subject.spec)]

    def _from_outside(self, event: Event) -> list[Event]:
        match event:
            case NodeJoined(at=at, node=node, capacity=capacity, device=device, jobs_at_once=jobs_at_once):
                return self.world.join(at, Node(node, capacity, device, jobs_at_once=jobs_at_once))
            case NodeLost(at=at, node=node):
                return self.world.lose(at, node)
        return [event]


def _proposed(_at: float, plan: PlanProposed, _version: int) -> tuple[Event]:
    return (plan,)


def _periods(periods: Periods | None, physics: Physics) -> Periods:
    lossy = physics.lost_answer_frac > 0
    if periods is None:
        # Time-out of answers that may be lost: longer than most start-ups, because a launch is repeated after it.
        return Periods(answer_s=600.0 if lossy else inf)
    if lossy and periods.answer_s == inf:
        raise InvalidSpec(
            "`answer_s` must be finite where answers may be lost", f"{periods.answer_s} s", "the periods",
            "Say after how many seconds an answer is taken as lost.",
        )  # fmt: skip
    return periods


def _check_order(at: float, job: SimJob) -> None:
    if job.submitted_at < at:
        raise InvalidSpec(
            "jobs must come in order of submission", f"{job.submitted_at} s after one at {at} s", f"job '{job.spec.id}'",
            "Sort them by `submitted_at`.",
        )  # fmt: skip
