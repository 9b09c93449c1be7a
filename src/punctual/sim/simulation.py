"""The loop that makes virtual time pass for the scheduler: the live loop's counterpart, in the same order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    Event,
    JobFailed,
    JobFinished,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PlanProposed,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.core.protocols import Controller, Message, PerfModel, Policy
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.timer import Timer
from punctual.sim.agenda import ARRIVAL, FACT, PLAN, TIMER, Agenda
from punctual.sim.garbage import rare_collections
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.world import World

Listener = Callable[[Message], None]

#: Where answers may be lost: longer than most start-ups, because a launch is repeated after it.
_ANSWER_S = 600.0

#: After which a job may have ended.
_ENDINGS = (JobFinished, JobFailed, StopRequested)


class Simulation:
    """Plays jobs on nodes under a policy, until each job has ended or nothing can happen any more.

    At one instant facts of the world come first, then submissions, then timers, then plans; equals in the order in
    which they were entered, timers in that of their names. For each event: the scheduler handles it, its commands are performed, and the listeners
    get the event and the commands in their order.

    Parameters
    ----------
    jobs
        In order of submission; taken one at a time, so that a trace need not be in memory.
    nodes
        They join at the instant of the first submission.
    policy
        Asked inline, with the snapshot of the instant of the request; its answer comes after the time that `physics`
        says a plan takes. What it raises ends the simulation.
    controllers, models
        By registered name; each job names its own.
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
        How often the scheduler launches a failed job again.
    end_at
        Stop before the first entry after this instant.

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
    ) -> None:
        self._physics = physics or Physics()
        self._jobs = iter(jobs)
        self._nodes = sorted(nodes, key=lambda node: node.id)
        self._policy = policy
        self._listeners = tuple(listeners)
        self._end_at = end_at
        self._scheduler = Scheduler(
            controllers or {}, models=models, strict=strict, seed=seed,
            periods=_periods(periods, self._physics), n_retries=n_retries,
        )  # fmt: skip
        self._agenda = Agenda()
        self._world = World(self._agenda, self._physics, seed)
        self._outside = sorted(events, key=lambda event: event.at)
        #: Submissions and facts from outside that are still to come, and jobs that are submitted and have not ended.
        self._n_coming = 0
        self._left: set[JobId] = set()
        self._is_planning = False
        #: Version of the timer in force under each key.
        self._timers: dict[Timer, int] = {}
        self._n_timers = 0
        self._takes: dict[int, Callable[[float, Any, int], None]] = {
            FACT: self._take_fact,
            ARRIVAL: self._arrive,
            TIMER: self._fire,
            PLAN: self._propose,
        }
        self._performs: dict[type, Callable[[Any], None]] = {
            LaunchJob: self._world.perform,
            ResizeJob: self._world.perform,
            StopJob: self._world.perform,
            RequestPlan: self._request_plan,
            SetTimer: self._set_timer,
            RejectJob: self._reject,
            WarnUser: _nothing,  # for listeners only
        }

    @property
    def scheduler(self) -> Scheduler:
        """To look at, never to tell: for listeners that check it."""
        return self._scheduler

    @property
    def world(self) -> World:
        """What is really the case: for listeners that check it."""
        return self._world

    def run(self) -> None:
        """Play; a second call does nothing.

        Raises
        ------
        InvalidSpec
            A job cannot be used, or was submitted before the one that came before it.
        InvariantBroken
            A plan is not valid, or there is an error of ours.
        """
        with rare_collections():
            self._open()
            self._play()

    def _play(self) -> None:
        agenda = self._agenda
        while (self._left or self._n_coming) and agenda:
            at, priority, _, subject, version = agenda.pop()
            if at > self._end_at or (priority == FACT and self._is_stuck()):
                break
            self._takes[priority](at, subject, version)

    def _open(self) -> None:
        first = next(self._jobs, None)
        starts_at = [first.submitted_at] if first is not None else []
        starts_at += [event.at for event in self._outside[:1]]
        if not starts_at:
            return
        for node in self._nodes:
            for event in self._world.join(min(starts_at), node):
                self._deliver(event)
        for event in self._outside:
            self._await(event.at, event)
        if first is not None:
            self._await(first.submitted_at, first)

    def _await(self, at: float, subject: SimJob | Event) -> None:
        self._n_coming += 1
        self._agenda.enter(at, ARRIVAL, subject)

    def _is_stuck(self) -> bool:
        """Whether nodes may come and go for ever without any job going on: a job that fits nowhere, say."""
        return not (self._n_coming or self._is_planning or self._timers) and self._world.is_quiet()

    # What the agenda holds.

    def _take_fact(self, at: float, subject: object, version: int) -> None:
        for event in self._world.due(at, subject, version):
            self._deliver(event)

    def _arrive(self, at: float, subject: SimJob | Event, version: int) -> None:
        self._n_coming -= 1
        if not isinstance(subject, SimJob):
            for event in self._from_outside(subject):
                self._deliver(event)
            return
        self._left.add(subject.spec.id)
        self._world.submit(subject)
        self._deliver(JobSubmitted(at=at, spec=subject.spec))
        following = next(self._jobs, None)
        if following is not None:
            _check_order(at, following)
            self._await(following.submitted_at, following)

    def _from_outside(self, event: Event) -> list[Event]:
        match event:
            case NodeJoined(at=at, node=node, capacity=capacity, device=device):
                return self._world.join(at, Node(node, capacity, device))
            case NodeLost(at=at, node=node):
                return self._world.lose(at, node)
        return [event]

    def _fire(self, at: float, timer: Timer, version: int) -> None:
        timers = self._due([(timer, version)], at)
        for due in timers:
            if due.kind == "tick":  # it decides on a fresh reading
                for event in self._world.report(at, due.job):
                    self._deliver(event)
        for due in timers:
            self._deliver(TimerFired(at=at, timer=due))

    def _due(self, found: list[tuple[Timer, int]], at: float) -> list[Timer]:
        """All timers of the instant; those set again are left out, and none is in force any more."""
        while self._agenda.next_is(at, TIMER):
            _, _, _, timer, version = self._agenda.pop()
            found.append((timer, version))
        timers = [timer for timer, version in found if self._timers.get(timer) == version]
        for timer in timers:
            del self._timers[timer]
        return timers

    def _propose(self, at: float, plan: Plan, version: int) -> None:
        self._is_planning = False
        self._deliver(PlanProposed(at=at, plan=plan, revision=plan.revision))

    # Events to the scheduler, its commands to those who perform them.

    def _deliver(self, event: Event) -> None:
        commands = self._scheduler.handle(event)
        for command in commands:
            self._performs[type(command)](command)
        if isinstance(event, _ENDINGS):
            self._note_end(event.job)
        for listener in self._listeners:
            listener(event)
            for command in commands:
                listener(command)

    def _note_end(self, job: JobId) -> None:
        if self._scheduler.job(job).status in ("finished", "failed"):
            self._left.discard(job)

    def _request_plan(self, command: RequestPlan) -> None:
        snapshot = self._scheduler.snapshot(command.at)
        plan = self._policy.allocate(snapshot)
        self._is_planning = True
        self._agenda.enter(command.at + self._decision_s(snapshot), PLAN, plan)

    def _decision_s(self, snapshot: Snapshot) -> float:
        n_jobs = len(snapshot.holding) + len(snapshot.waiting)
        return self._physics.solver_s + self._physics.solver_per_job_s * n_jobs

    def _set_timer(self, command: SetTimer) -> None:
        self._n_timers += 1
        self._timers[command.timer] = self._n_timers
        self._agenda.enter(command.fire_at, TIMER, command.timer, self._n_timers)

    def _reject(self, command: RejectJob) -> None:
        self._left.discard(command.job)


def _nothing(command: Command) -> None:
    pass


def _periods(periods: Periods | None, physics: Physics) -> Periods:
    lossy = physics.lost_answer_frac > 0
    if periods is None:
        return Periods(answer_s=_ANSWER_S if lossy else inf)
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
