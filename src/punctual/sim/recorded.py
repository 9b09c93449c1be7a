"""Turn the journal of a live host into jobs to simulate: their submissions, and the work they turned out to need.

The cost of a step is measured in core-seconds, as the processes used them; for a job with devices, and for one
whose processes report no CPU time, in the seconds for which it held a worker. Both assume that with twice as
much a job is twice as fast, up to the most that it was seen to use. Start-up, evaluations and checkpoints are in the
steps between whose reports they happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from statistics import median

from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob, RejectJob, RequestPlan, ResizeJob
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PauseRequested,
    PlanProposed,
    PolicyChanged,
    ProgressReported,
    ResumeRequested,
    SpecChanged,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, shape_of
from punctual.core.lifecycle import about
from punctual.core.protocols import Message
from punctual.core.resources import total
from punctual.core.speed import Shape
from punctual.core.status import WINDOW_S
from punctual.sim.job import SimJob

#: Kinds of messages that say nothing of this.
UNUSED_KINDS = ("TimerFired", "SetTimer", "WarnUser", "PhaseReported", "LossReported")
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
    fold = _Fold()
    for message in messages:
        fold.take(message)
    return fold.load(period)


@dataclass(slots=True)
class _Course:
    """State folded from the messages about one job."""

    submitted: JobSubmitted
    spec: JobSpec
    #: (steps, cost so far) in core-seconds and in worker-seconds, ascending in steps.
    by_core: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    by_worker: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    steps_total: float | None = None
    end: JobFinished | JobFailed | RejectJob | None = None
    is_stopped: bool = False
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
    #: The most cores that it used, without a pacing line, and what it held then.
    most_cores: float = 0.0
    is_held_back: bool = False

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
        self.steps_total = event.steps_total or self.steps_total
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


class _Fold:
    """Takes the messages of a journal one by one."""

    def __init__(self) -> None:
        self._courses: dict[JobId, _Course] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._events: list[Event] = []
        self._policy_changes: list[PolicyChanged] = []
        self._asked_at: dict[tuple[JobId, int], float] = {}
        self._plan_asked_at: dict[int, float] = {}
        self._startups_s: list[float] = []
        self._resizes_s: list[float] = []
        self._plans_s: list[float] = []
        self._resumed: list[SteeringResumed] = []

    def take(self, message: Message) -> None:
        match message:
            case JobSubmitted(spec=spec):
                # A second job of a name is turned away.
                self._courses.setdefault(spec.id, _Course(message, spec, since_at=message.at))
            case NodeJoined(node=node, capacity=capacity, device=device, jobs_at_once=jobs_at_once):
                self._nodes[node] = Node(node, capacity, device, jobs_at_once=jobs_at_once)
                self._events.append(message)
            case NodeLost():
                self._events.append(message)
            case PolicyChanged():
                self._policy_changes.append(message)
            case RequestPlan(at=at, revision=revision):
                self._plan_asked_at[revision] = at
            case PlanProposed(at=at, revision=revision) if revision in self._plan_asked_at:
                self._plans_s.append(at - self._plan_asked_at.pop(revision))
            case SteeringResumed():
                self._resume(message)
            case _:
                course = self._courses.get(about(message) or JobId(""))
                if course is not None and course.end is None:
                    self._take_own(course, message)

    def _resume(self, event: SteeringResumed) -> None:
        self._resumed.append(event)
        for job, course in self._courses.items():
            if course.end is None and job in event.granted:
                course.hold(event.lost_at, event.granted[job])
            elif course.end is None:
                course.hold(event.lost_at, {})
                course.lose_process(event.lost_at)

    def _take_own(self, course: _Course, message: Message) -> None:
        match message:
            case SpecChanged(spec=spec):
                course.spec = spec
                self._events.append(message)
            case PauseRequested() | ResumeRequested():
                self._events.append(message)
            case StopRequested():
                course.is_stopped = True
                self._events.append(message)
            case LaunchJob() | ResizeJob():
                self._asked_at[message.job, message.request] = message.at
                course.is_paced = isinstance(message, ResizeJob) and message.pacing is not None
            case JobStarted() | GrantApplied() | GrantFailed():
                self._answered(course, message)
            case ProgressReported():
                course.report(message)
            case JobFailed(retryable=True):
                course.hold(message.at, {})
                course.lose_process(message.at)
            case JobFinished() | JobFailed() | RejectJob():
                course.hold(message.at, {})
                course.end = message

    def _answered(self, course: _Course, event: JobStarted | GrantApplied | GrantFailed) -> None:
        asked_at = self._asked_at.pop((event.job, event.request), None)
        if asked_at is not None and not isinstance(event, GrantFailed):
            times_s = self._startups_s if isinstance(event, JobStarted) else self._resizes_s
            times_s.append(max(0.0, event.at - asked_at))
        course.hold(event.at, event.granted)

    def load(self, period: Period) -> RecordedLoad:
        """Return the load of the jobs submitted in `period`."""
        courses = {job: course for job, course in self._courses.items() if period.has(course.submitted.at)}
        works = {job: _work_of(course) for job, course in courses.items()}
        kept = {job for job, work in works.items() if isinstance(work, _Work)}
        jobs = [_sim_job(courses[job], work, kept) for job, work in works.items() if isinstance(work, _Work)]
        return RecordedLoad(
            jobs=tuple(sorted(jobs, key=lambda job: job.submitted_at)),
            events=tuple(
                _played(event, kept) for event in self._events if about(event) is None or about(event) in kept
            ),
            policy_changes=tuple(self._policy_changes),
            nodes=tuple(self._nodes[node] for node in sorted(self._nodes)),
            estimated={job: work.estimate for job, work in works.items() if isinstance(work, _Work) and work.estimate},
            left_out={job: work for job, work in works.items() if isinstance(work, str)},
            n_outside=len(self._courses) - len(courses),
            startup_s=median(self._startups_s or [0.0]),
            resize_s=median(self._resizes_s or [0.0]),
            solver_s=median(self._plans_s or [0.0]),
            unsteered_s=sum(event.at - event.lost_at for event in self._resumed if period.has(event.lost_at)),
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """A job's work: (steps, cost so far), the most it can use at once, and a note on what is estimated."""

    points: list[tuple[float, float]]
    usable: float
    by_workers: bool
    estimate: str = ""


def _work_of(course: _Course) -> _Work | str:
    """The work of a job, or why it is not known."""
    if isinstance(course.end, RejectJob | JobFailed) and not course.is_stopped:
        turned_away = isinstance(course.end, RejectJob) and not course.held_core_s + course.held_worker_s
        declared = course.spec.work_core_s
        if not turned_away:
            return "it failed: what it would have needed is not known"
        if declared is None:
            return "it was turned away before it ran, and its work was not declared"
        steps = course.spec.work_steps or 1.0
        return _Work(
            [(0.0, 0.0), (steps, declared)], inf, by_workers=False, estimate="turned away: its work as declared"
        )
    by_workers = course.spec.ceiling.gpus > 0 or course.by_core[-1][1] <= 0
    points = course.by_worker if by_workers else course.by_core
    usable = inf if by_workers or course.is_held_back or not course.most_cores else course.most_cores
    if isinstance(course.end, JobFinished):
        return _finished(course, points, usable, by_workers=by_workers)
    return _unfinished(course, points, usable, by_workers=by_workers)


def _finished(course: _Course, points: list[tuple[float, float]], usable: float, *, by_workers: bool) -> _Work | str:
    if points[-1][0] > 0 and points[-1][1] > 0:
        return _Work(points, usable, by_workers)
    return _as_held(course, "it told of no steps: its work is what it held until its end")


def _as_held(course: _Course, estimate: str) -> _Work | str:
    """Return work for all declared steps (or one) that costs the whole grant over time, or why there is none."""
    by_workers = not course.held_core_s
    held = course.held_worker_s if by_workers else course.held_core_s
    steps = course.steps_total or course.spec.work_steps or 1.0
    return _Work([(0.0, 0.0), (steps, held)], inf, by_workers, estimate) if held > 0 else "it held nothing"


def _unfinished(course: _Course, points: list[tuple[float, float]], usable: float, *, by_workers: bool) -> _Work | str:
    """Return work that continues at the mean cost of the steps so far, or why there is none."""
    state = "stopped by a user" if course.is_stopped else "not ended"
    steps, cost = points[-1]
    steps_total = course.steps_total or course.spec.work_steps
    if steps > 0 and cost > 0 and steps_total is not None:
        more = [(steps_total, cost * steps_total / steps)] if steps_total > steps else []
        return _Work([*points, *more], usable, by_workers, f"{state}: the steps left cost as much as those done")
    if course.spec.work_core_s is not None:
        steps_total = steps_total or 1.0
        return _Work([(0.0, 0.0), (steps_total, course.spec.work_core_s)], inf, False, f"{state}: its work as declared")
    return f"{state}, and nothing says what it would have needed"


def _sim_job(course: _Course, work: _Work, kept: set[JobId]) -> SimJob:
    submitted = course.submitted
    points = _fewer(work.points)
    steps, cost = points[-1]
    phases = tuple((before[0], _truth(before, point, work)) for before, point in pairwise(points))
    return SimJob(
        submitted_at=submitted.at,
        spec=_declared(submitted.spec, kept),
        truth=_truth((0.0, 0.0), (steps, cost), work),
        work_steps=steps,
        phases=phases if len(phases) > 1 else (),
        declared_steps=course.steps_total,
    )


def _fewer(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `_N_STRETCHES_MAX` stretches; the first, which has the start, and the last point stay."""
    every = ceil((len(points) - 1) / _N_STRETCHES_MAX)
    return [point for i, point in enumerate(points) if i <= 1 or (i - 1) % every == 0 or i == len(points) - 1]


def _truth(before: tuple[float, float], point: tuple[float, float], work: _Work) -> ProportionalSpeed:
    # A stretch in which no cost was seen is not done in no time: it has a thousandth of the mean.
    least = 1e-3 * work.points[-1][1] / work.points[-1][0]
    step_cost = max((point[1] - before[1]) / (point[0] - before[0]), least)
    return ProportionalSpeed(step_cost=step_cost, usable=work.usable, by_workers=work.by_workers)


def _declared(spec: JobSpec, kept: set[JobId]) -> JobSpec:
    """Return the declaration for the scheduler, without dependencies on missing jobs and without a goal."""
    return replace(spec, after=tuple(job for job in spec.after if job in kept), goal=None)


def _played(event: Event, kept: set[JobId]) -> Event:
    return replace(event, spec=_declared(event.spec, kept)) if isinstance(event, SpecChanged) else event
