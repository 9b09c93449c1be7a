"""A live journal as a trace: submissions, and the work that jobs turned out to need.

The cost of a step is measured in core-seconds, as the processes used them; for a job with devices, and for one
whose processes report no CPU time, in the seconds for which it held a worker. Both assume that with twice as
much a job is twice as fast, up to the most that it was seen to use. Start-up, evaluations and checkpoints are in the
steps between whose reports they happened.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import ceil, inf
from statistics import median

from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob, RejectJob, RequestPlan, ResizeJob
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PauseRequested,
    PlanProposed,
    PolicyChanged,
    ProgressReported,
    ResumeRequested,
    SpecChanged,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobSpec, shape_of
from punctual.core.lifecycle import about
from punctual.core.resources import total
from punctual.core.speed import Shape
from punctual.core.status import WINDOW_S
from punctual.history.cluster import ClusterHistory
from punctual.history.job import JobHistory
from punctual.history.run import curves_of
from punctual.sim.job import SimJob

#: Kinds of messages that say nothing of this.
UNUSED_KINDS = ("TimerFired", "WarnUser", "PhaseReported", "LossReported")
#: Events that are played again as they happened.
_PLAYED = (NodeJoined, NodeLost, NodeNoticed, SpecChanged, PauseRequested, ResumeRequested, StopRequested)
#: A job whose usage reaches this share of its grant is held back by the grant, and may be able to use more.
HELD_BACK_FRAC = 0.85
#: A job is described by at most so many stretches, each with one speed.
_N_STRETCHES_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProportionalSpeed:
    """Speed proportional to the grant, up to the most that the job can use.

    Attributes
    ----------
    step_cost
        Core-seconds of a step; with `by_workers`, worker-seconds.
    usable
        The most cores, or workers, that make it faster.
    """

    step_cost: float
    usable: float = inf
    by_workers: bool = False

    def rate_sps(self, shape: Shape) -> float:
        return min(shape.n_workers if self.by_workers else shape.cores, self.usable) / self.step_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Interval from `from_at` until before `until_at`, in the journal's time."""

    from_at: float = -inf
    until_at: float = inf

    def has(self, at: float) -> bool:
        return self.from_at <= at < self.until_at


ALWAYS = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLoad:
    """The part of a journal that can be replayed.

    Attributes
    ----------
    jobs
        Jobs in order of submission.
    events
        Changed deadlines, pauses and stops by users, and the machine's capacity, in order of time.
    policy_changes
        Changes of the host's policy; they belong to the policy that ran.
    nodes
        The nodes with the last capacity of each.
    estimated, left_out
        Jobs whose cost was not measured to its end, and jobs that are not played; each with why.
    n_outside
        Jobs that are not played because they were not submitted in the period asked for.
    startup_s, resize_s, solver_s
        Medians of how long a start, a change of a grant and a plan took; 0 where the journal does not say.
    unsteered_s
        Seconds without steering; the replay steers all the time.
    """

    jobs: tuple[SimJob, ...]
    events: tuple[Event, ...]
    policy_changes: tuple[PolicyChanged, ...]
    nodes: tuple[Node, ...]
    estimated: dict[JobId, str]
    left_out: dict[JobId, str]
    n_outside: int
    startup_s: float
    resize_s: float
    solver_s: float
    unsteered_s: float


def recorded_load(messages: Iterable[Message], period: Period = ALWAYS) -> RecordedLoad:
    """The load in the messages of a journal, whole or thinned out, oldest first: the jobs submitted in `period`."""
    history = ClusterHistory(curves=True)
    events: list[Event] = []
    policy_changes: list[PolicyChanged] = []
    plan_asked_at: dict[int, float] = {}
    plans_s: list[float] = []
    resumed: list[SteeringResumed] = []
    for message in messages:
        subject = about(message)
        if isinstance(message, _PLAYED) and (subject is None or is_open(history, subject)):
            events.append(message)
        elif isinstance(message, PolicyChanged):
            policy_changes.append(message)
        elif isinstance(message, RequestPlan):
            plan_asked_at[message.revision] = message.at
        elif isinstance(message, PlanProposed) and message.revision in plan_asked_at:
            plans_s.append(message.at - plan_asked_at.pop(message.revision))
        elif isinstance(message, SteeringResumed):
            resumed.append(message)
        history.add(message)
    stopped = {event.job for event in events if isinstance(event, StopRequested)}
    histories = {id: job for id, job in history.histories.items() if period.has(job.submitted_at)}
    works = {id: _work_of(job, is_stopped=id in stopped) for id, job in histories.items()}
    known = {job: work for job, work in works.items() if isinstance(work, _PastWork)}
    jobs = [_sim_job(histories[job], work, known.keys()) for job, work in known.items()]
    startups_s, resizes_s = _delays_s(history.histories.values())
    return RecordedLoad(
        jobs=tuple(sorted(jobs, key=lambda job: job.submitted_at)),
        events=tuple(about_kept(events, known.keys())),
        policy_changes=tuple(policy_changes),
        nodes=tuple(_nodes_in(events)),
        estimated={job: work.estimate for job, work in known.items() if work.estimate},
        left_out={job: work for job, work in works.items() if isinstance(work, str)},
        n_outside=len(history.histories) - len(histories),
        startup_s=median(startups_s or [0.0]),
        resize_s=median(resizes_s or [0.0]),
        solver_s=median(plans_s or [0.0]),
        unsteered_s=sum(event.at - event.lost_at for event in resumed if period.has(event.lost_at)),
    )


def is_open(history: ClusterHistory, job: JobId) -> bool:
    """Whether the job was submitted and has not ended."""
    return job in history.histories and history.histories[job].is_open


def _delays_s(histories: Iterable[JobHistory]) -> tuple[list[float], list[float]]:
    """Seconds from each launch to its answer, and from each change of a grant."""
    startups_s, resizes_s = list[float](), list[float]()
    for traced in (traced for history in histories for traced in curves_of(history).trace):
        if isinstance(traced.message, LaunchJob | ResizeJob) and isinstance(traced.answer, JobStarted | GrantApplied):
            delays_s = startups_s if isinstance(traced.answer, JobStarted) else resizes_s
            delays_s.append(max(0.0, traced.answer.at - traced.message.at))
    return startups_s, resizes_s


def _nodes_in(events: Iterable[Event]) -> list[Node]:
    joined = [event for event in events if isinstance(event, NodeJoined)]
    nodes = {
        event.node: Node(event.node, event.capacity, event.device, jobs_at_once=event.jobs_at_once) for event in joined
    }
    return [nodes[node] for node in sorted(nodes)]


def about_kept(events: Iterable[Event], kept: Collection[JobId]) -> Iterator[Event]:
    """Yield the events that concern one of the jobs `kept`, or all."""
    for event in events:
        if isinstance(event, SpecChanged) and event.spec.id in kept:
            yield replace(event, spec=_declared(event.spec, kept))
        elif about(event) is None or about(event) in kept:
            yield event


def _declared(spec: JobSpec, kept: Collection[JobId]) -> JobSpec:
    """Return the declaration for the scheduler, without dependencies on missing jobs and without a goal."""
    return replace(spec, after=tuple(job for job in spec.after if job in kept), goal=None)


# The work of a job.


@dataclass(slots=True)
class _CostsBySteps:
    """Costs of a job's steps so far, read from its history."""

    spec: JobSpec
    #: (steps, cost so far) in core-seconds and in worker-seconds, ascending in steps.
    by_core: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    by_worker: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    #: Its grant, when that began, and the core-seconds and worker-seconds that it held before.
    cores: float = 0.0
    n_workers: int = 0
    since_at: float = 0.0
    held_core_s: float = 0.0
    held_worker_s: float = 0.0
    #: Last report of the present process, and the counts before that process.
    last: ProgressReported | None = None
    used_before_core_s: float = 0.0
    redone_worker_s: float = 0.0
    #: Whether it has not come as far yet as the process before.
    is_redoing: bool = False
    is_paced: bool = False
    #: The most cores that it used, without a pacing line, and whether it was held back then.
    most_cores: float = 0.0
    is_held_back: bool = False

    @classmethod
    def of(cls, history: JobHistory) -> "_CostsBySteps":
        costs, curves = cls(history.spec_at(inf), since_at=history.submitted_at), curves_of(history)
        # A report comes before what follows from it at the same instant.
        steps = [(reading.at, 0, partial(costs.report, reading)) for reading in curves.readings]
        steps += [(change.at, 1, partial(costs.hold, change.at, change.granted)) for change in curves.grants]
        steps += [(at, 2, partial(costs.lose_process, at)) for at in curves.losses_of_process]
        steps += [(at, 2, partial(setattr, costs, "is_paced", is_paced)) for at, is_paced in curves.pacing]
        for _, _, step in sorted(steps, key=lambda step: step[:2]):
            step()
        return costs

    def hold(self, at: float, granted: Allocation) -> None:
        self._accrue(at)
        shape = shape_of(self.spec, granted, {})
        self.cores, self.n_workers = total(granted.values()).cores, shape.n_workers if granted else 0

    def _accrue(self, at: float) -> None:
        over_s = max(0.0, at - self.since_at)
        self.held_core_s += self.cores * over_s
        self.held_worker_s += self.n_workers * over_s
        self.since_at = max(self.since_at, at)

    def report(self, event: ProgressReported) -> None:
        self._accrue(event.at)
        if self.last is not None and event.used_core_s < self.last.used_core_s:
            self.lose_process(event.at)
        self._look_at_usage(event)
        self.is_redoing = self.is_redoing and event.steps_done <= self.by_core[-1][0]
        if self.is_redoing:
            self.used_before_core_s = self.by_core[-1][1] - event.used_core_s
            self.redone_worker_s = self.held_worker_s - self.by_worker[-1][1]
        in_flight_s = max(0.0, event.at - event.unit_at) if self.last is not None else 0.0
        used_core_s = self.used_before_core_s + event.used_core_s - event.in_flight_core_s
        held_worker_s = self.held_worker_s - self.redone_worker_s - self.n_workers * in_flight_s
        _extend(self.by_core, event.steps_done, used_core_s)
        _extend(self.by_worker, event.steps_done, held_worker_s)
        self.last = event

    def lose_process(self, at: float) -> None:
        """Record the loss of a process; steps that the next one repeats are no work of the job."""
        self._accrue(at)
        self.last, self.is_redoing = None, True
        self.used_before_core_s = self.by_core[-1][1]
        self.redone_worker_s = self.held_worker_s - self.by_worker[-1][1]

    def _look_at_usage(self, event: ProgressReported) -> None:
        if self.last is None or self.is_paced or event.at - self.last.at < WINDOW_S or not self.cores:
            return
        usage_cores = (event.used_core_s - self.last.used_core_s) / (event.at - self.last.at)
        self.most_cores = max(self.most_cores, usage_cores)
        self.is_held_back = self.is_held_back or usage_cores >= HELD_BACK_FRAC * self.cores


def _extend(points: list[tuple[float, float]], steps: float, cost: float) -> None:
    """Add a point; cost after it without a new step counts for the steps before."""
    before_steps, before_cost = points[-1]
    if steps > before_steps:
        points.append((steps, max(cost, before_cost)))
    elif steps == before_steps and steps > 0:
        points[-1] = (steps, max(cost, before_cost))


@dataclass(frozen=True, slots=True)
class _PastWork:
    """A job's work: (steps, cost so far), the most it can use at once, and a note on what is estimated."""

    points: list[tuple[float, float]]
    usable: float
    by_workers: bool
    estimate: str = ""


def _work_of(history: JobHistory, *, is_stopped: bool) -> _PastWork | str:
    """The work of a job, or why it is not known."""
    costs, end = _CostsBySteps.of(history), history.end
    if isinstance(end, RejectJob | JobFailed) and not is_stopped:
        turned_away = isinstance(end, RejectJob) and not costs.held_core_s + costs.held_worker_s
        declared = costs.spec.work_core_s
        if not turned_away:
            return "it failed: what it would have needed is not known"
        if declared is None:
            return "it was turned away before it ran, and its work was not declared"
        points = [(0.0, 0.0), (costs.spec.work_steps or 1.0, declared)]
        return _PastWork(points, inf, by_workers=False, estimate="turned away: its work as declared")
    by_workers = costs.spec.ceiling.gpus > 0 or costs.by_core[-1][1] <= 0
    points = costs.by_worker if by_workers else costs.by_core
    usable = inf if by_workers or costs.is_held_back or not costs.most_cores else costs.most_cores
    steps_total = history.steps_total
    if not isinstance(end, JobFinished):
        state = "stopped by a user" if is_stopped else "not ended"
        return _unfinished(costs.spec, _PastWork(points, usable, by_workers), steps_total, state)
    if points[-1][0] > 0 and points[-1][1] > 0:
        return _PastWork(points, usable, by_workers)
    # All declared steps, or one, cost the whole grant over time.
    held, by_workers = costs.held_core_s or costs.held_worker_s, not costs.held_core_s
    estimate = "it told of no steps: its work is what it held until its end"
    if held <= 0:
        return "it held nothing"
    return _PastWork([(0.0, 0.0), (steps_total or 1.0, held)], inf, by_workers, estimate)


def _unfinished(spec: JobSpec, work: _PastWork, steps_total: float | None, state: str) -> _PastWork | str:
    """Return work that continues at the mean cost of the steps so far, or why there is none."""
    steps, cost = work.points[-1]
    if steps > 0 and cost > 0 and steps_total is not None:
        more = [(steps_total, cost * steps_total / steps)] if steps_total > steps else []
        estimate = f"{state}: the steps left cost as much as those done"
        return replace(work, points=[*work.points, *more], estimate=estimate)
    if spec.work_core_s is not None:
        return _PastWork(
            [(0.0, 0.0), (steps_total or 1.0, spec.work_core_s)], inf, False, f"{state}: its work as declared"
        )
    return f"{state}, and nothing says what it would have needed"


def _sim_job(history: JobHistory, work: _PastWork, kept: Collection[JobId]) -> SimJob:
    points = _fewer(work.points)
    steps, cost = points[-1]
    phases = tuple((before[0], _truth(before, point, work)) for before, point in pairwise(points))
    return SimJob(
        submitted_at=history.submitted_at,
        spec=_declared(history.specs[0][1], kept),
        truth=_truth((0.0, 0.0), (steps, cost), work),
        work_steps=steps,
        phases=phases if len(phases) > 1 else (),
        declared_steps=history.steps_declared,
    )


def _fewer(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `_N_STRETCHES_MAX` stretches; the first, which has the start, and the last point stay."""
    every = ceil((len(points) - 1) / _N_STRETCHES_MAX)
    return [point for i, point in enumerate(points) if i <= 1 or (i - 1) % every == 0 or i == len(points) - 1]


def _truth(before: tuple[float, float], point: tuple[float, float], work: _PastWork) -> ProportionalSpeed:
    # A stretch in which no cost was seen is not done in no time: it has a thousandth of the mean.
    least = 1e-3 * work.points[-1][1] / work.points[-1][0]
    step_cost = max((point[1] - before[1]) / (point[0] - before[0]), least)
    return ProportionalSpeed(step_cost=step_cost, usable=work.usable, by_workers=work.by_workers)
