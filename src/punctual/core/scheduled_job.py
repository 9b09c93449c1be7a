"""The scheduler's record of a job, and the table of all: those that have not ended, and the last ones that have."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from punctual.core.control import CoreWork, Demand, PacingLine, PhaseProgress
from punctual.core.errors import InvariantBroken
from punctual.core.events import JobSubmitted, Message, PauseRequested, ProgressReported, StopRequested
from punctual.core.fast_init import fast_init, unchecked_constructor
from punctual.core.ids import JobId, NodeId
from punctual.core.job import ENDED, Allocation, JobSpec, JobState, JobView, declared_work, shape_of
from punctual.core.lifecycle import end_state
from punctual.core.loss import LossCurve
from punctual.core.program import Program
from punctual.core.protocols import Controller
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.speed import RateCurve, Shape

#: Fields that a change of the declaration leaves as submitted, and fields that bound a job's amounts.
_OF_SUBMISSION = ("controller", "model", "goal", "convergence", "after", "ends")
_BOUNDS = ("floor", "ceiling", "worker", "server", "counts")
_QUEUED = Reason("start-up", "a job starts at its ceiling")

_view = unchecked_constructor(JobView)
#: Makes the last messages of a job: enough to see a resize asked, failed, asked again and applied, with the readings between.
new_story = partial(deque[object], maxlen=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """Waiting times of the scheduler, in seconds; infinite: wait for ever, without a timer.

    Attributes
    ----------
    first_tick_s
        Time from a job's start, or the end of a pause, to its first tick.
    idle_tick_s
        Between ticks of a job without a deadline.
    retry_s, retry_max_s
        Time before a failed command is repeated, or a failed job launched again. The second doubles with each failure
        in a row, up to `retry_max_s`.
    answer_s
        Time until a command without an answer is taken as lost.
    plan_s
        Time until a plan that has not come is taken as lost. Finite where another process makes plans.
    gather_s
        Least time between two plans that changed demands alone ask for. Above 0 where a plan costs computing time: near
        their deadlines some jobs would ask for twenty plans a second.
    learn_s
        Least time over which a speed is measured.
    grace_s, grace_frac
        A job that runs and reports no progress is pointed out after the first, or this share of its deadline if that
        is longer.
    """

    first_tick_s: float = 0.25
    idle_tick_s: float = 1.0
    retry_s: float = 1.0
    retry_max_s: float = 60.0
    answer_s: float = 10.0
    plan_s: float = inf
    gather_s: float = 0.0
    learn_s: float = 1.0
    grace_s: float = 30.0
    grace_frac: float = 0.2

    def retry_after_s(self, n_failures: int) -> float:
        """Seconds to wait after `n_failures` failures in a row."""
        doublings: int = min(max(0, n_failures - 1), 64)
        return max(self.retry_s, min(self.retry_s * 2.0**doublings, self.retry_max_s))


@fast_init
@dataclass(frozen=True, slots=True)
class SpeedSample:
    """A report from which a speed may be learned.

    Attributes
    ----------
    begun_at
        Instant of its last unit; infinite: unknown.
    runs_free
        Whether nothing held the job back then.
    """

    begun_at: float
    steps_done: float
    phases: tuple[PhaseProgress, ...]
    runs_free: bool


@fast_init
@dataclass(frozen=True, slots=True)
class CostSample:
    """Start of the next measurement of a step's cost: the node, and the CPU seconds and steps until then."""

    node: NodeId
    used_core_s: float
    steps_done: float


@dataclass(slots=True)
class ScheduledJob:
    """The scheduler's record of a job.

    Attributes
    ----------
    submitted_revision
        Revision in force when it was submitted: only plans of a later one know the job.
    controller, controller_state
        None: no controller steers it, because none was asked for or because it failed (`is_quarantined`).
    n_retries
        Failures in a row after which it is still launched again.
    n_failures
        Launches that failed and processes that failed in a row, without a new step between.
    n_shortages
        Commands in a row that had no effect because its node was short of something.
    n_requests
        Number of the last command about this job; answers carry it.
    demand, planned_demand
        Its controller's demand, now and when the last plan was requested.
    is_respecified
        Its user has declared something else since its controller was last asked.
    demand_core_s, planned_work, planned_core_s
        `granted_core_s` when the demand was made; the work left that policies were last shown, and `granted_core_s`
        then.
    target, target_reason
        The last plan's amount, and the policy's reason for it.
    asked, asked_at, is_applied
        Request of the last command, its instant, and whether the answer said that it is in force. The target is
        compared with this and not with the grant, which is the amount as read back and differs by the actuator's
        resolution.
    is_hired
        Whether its target has machines that are paid for: to be slower there would cost more.
    is_relaunched
        Its launch is said again; it may be running with what an earlier launch gave it.
    retry_at
        Nothing is asked before this instant.
    stop_cause, restarts, moves, interrupts
        Why it is to stop; None: it is not. Whether it is launched again after that, whether because it must leave its node, and
        whether it is asked as by Ctrl-C.
    leaves_at
        Until this instant it works on although its nodes have notice and no plan gives it others; infinite: that is not so.
    pause
        Its user's request to pause, in force until a resume; None: not paused.
    waits_for
        Jobs that must finish before it is started.
    begun
        Steps done, CPU seconds used, and the instant, when its present process first reported a step: before that it started
        up.
    landed_at
        Instant of its last declared step or phase; the program may work on. Infinite: not yet.
    longest_unit_s
        The longest time in which it held something and reported nothing new, since it has begun to train.
    dearest_unit_core_s
        The most CPU seconds that it was seen to use between two steps or parts, since it has begun to train.
    saved_steps, declared_steps
        Steps done at its last checkpoint, and the total that it declared when it trained last; None: it knows none.
    most_steps
        The largest number of steps that was ever reported.
    last_failure
        Cause, exit code and `most_steps` when its process last failed.
    phases_at_steps
        Steps done when its newest phase was announced; None: not reported yet.
    mark
        Start of the next measurement of its speed.
    cost_mark, costs
        Start of the next measurement of its cost; measured core-seconds of a step by node.
    held, held_since_at, shape
        Total grant by the ledger; the instant from which it has held something; and the grant's shape.
    ran_s
        Seconds for which its present process has held something, up to `accrued_at`.
    places
        Nodes where its process is.
    memory_bytes, peak_memory_bytes, expected_memory_bytes
        Memory that its present process holds with its children, and the most that was reported; the most of its earlier
        processes, or what is expected of it. 0: not known.
    is_memory_known
        Whether its present process has run for long enough that it is hardly to hold more.
    granted_core_s, granted_gpu_s, accrued_at
        Integrals of what it held, and up to when.
    told
        Codes of the warnings that are given once.
    story
        Its last messages; None once it has ended.
    """

    spec: JobSpec
    submitted_at: float
    submitted_revision: int
    program: Program | None = None
    controller: Controller[Any] | None = None
    controller_state: Any = None
    is_quarantined: bool = False
    curve: RateCurve | None = None
    losses: LossCurve | None = None
    status: JobState = "queued"
    n_retries: int = 0
    n_failures: int = 0
    n_shortages: int = 0
    n_requests: int = 0
    demand: Demand | None = None
    planned_demand: Resources = NOTHING
    is_respecified: bool = False
    demand_core_s: float = 0.0
    planned_work: CoreWork | None = None
    planned_core_s: float = 0.0
    target: Allocation = field(default_factory=dict)
    target_reason: Reason | None = None
    asked: tuple[Allocation, PacingLine | None] | None = None
    asked_at: float = 0.0
    is_applied: bool = False
    is_relaunched: bool = False
    is_hired: bool = False
    retry_at: float = 0.0
    stop_cause: str | None = None
    restarts: bool = False
    moves: bool = False
    interrupts: bool = False
    leaves_at: float = inf
    pause: PauseRequested | None = None
    waits_for: tuple[JobId, ...] = ()
    progress: ProgressReported | None = None
    begun: tuple[float, float, float] | None = None
    landed_at: float = inf
    longest_unit_s: float = 0.0
    dearest_unit_core_s: float = 0.0
    saved_steps: float = 0.0
    declared_steps: float | None = None
    most_steps: float = 0.0
    last_failure: tuple[str, int | None, float] | None = None
    phases: tuple[PhaseProgress, ...] = ()
    phases_at_steps: float | None = None
    mark: SpeedSample | None = None
    cost_mark: CostSample | None = None
    costs: dict[NodeId, float] = field(default_factory=dict)
    can_pace: bool = False
    can_cap: bool = True
    held: Resources = NOTHING
    held_since_at: float = 0.0
    shape: Shape | None = None
    started_at: float | None = None
    granted_at: float = 0.0
    granted_core_s: float = 0.0
    granted_gpu_s: float = 0.0
    accrued_at: float = 0.0
    ran_s: float = 0.0
    places: tuple[NodeId, ...] = ()
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    expected_memory_bytes: int = 0
    is_memory_known: bool = False
    feasible: bool = True
    told: frozenset[str] = frozenset()
    story: deque[object] | None = field(default_factory=new_story)

    @classmethod
    def of(cls, event: JobSubmitted, revision: int, n_retries: int) -> "ScheduledJob":
        """Return the record of a job submitted under plan `revision`; `n_retries` is the default of its retries."""
        spec = event.spec
        job = cls(spec, event.at, revision, event.program, planned_demand=spec.ceiling, accrued_at=event.at)
        job.n_retries = n_retries if spec.n_retries is None else spec.n_retries
        job.expected_memory_bytes = spec.expected_memory_bytes
        job.tell(event)
        return job

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_withheld(self) -> bool:
        """Whether policies do not see the job, because it may hold nothing."""
        return self.pause is not None or bool(self.waits_for)

    @property
    def has_place(self) -> bool:
        """Whether it holds something, or is to."""
        return bool(self.target) or self.shape is not None

    def tell(self, message: object) -> None:
        """Add to the story of a job that has not ended."""
        if self.story is not None:
            self.story.append(message)

    def so_far(self) -> tuple[object, ...]:
        """Return the last messages about the job; none after its end."""
        return tuple(self.story or ())

    def wanted(self) -> Resources:
        """Demand of its controller; its ceiling before the first demand."""
        return self.demand.resources if self.demand else self.spec.ceiling

    def respecify(self, spec: JobSpec) -> bool:
        """Note the user's new declaration, except for plug-ins; return whether other amounts are allowed."""
        kept = {name: getattr(self.spec, name) for name in _OF_SUBMISSION}
        changes = {name: value for name, value in kept.items() if value != getattr(spec, name)}
        before, self.spec = self.spec, replace(spec, **changes) if changes else spec
        if self.spec.deadline_s != before.deadline_s:
            self.told -= {"deadline-passed"}
        if self.demand is not None and not self.demand.resources.fits_in(self.spec.ceiling):
            self.demand = replace(self.demand, resources=self.spec.ceiling)
        self.planned_demand, self.is_respecified = self.wanted(), True
        return any(getattr(self.spec, name) != getattr(before, name) for name in _BOUNDS)

    def report(self, event: ProgressReported) -> bool:
        """Note reported progress and use; return whether that is news for a policy."""
        if self.progress is not None and event.used_core_s < self.progress.used_core_s:  # another process
            self.progress, self.begun, self.longest_unit_s, self.dearest_unit_core_s = None, None, 0.0, 0.0
        if self.is_training and self.progress is not None:
            since_at = max(self.progress.unit_at, self.held_since_at)
            self.longest_unit_s = max(self.longest_unit_s, event.unit_at - since_at)
            if event.unit_at > since_at:
                self.dearest_unit_core_s = max(self.dearest_unit_core_s, self.progress.in_flight_core_s)
        if self.begun is None and event.steps_done > 0:
            self.begun = event.steps_done, event.used_core_s - event.in_flight_core_s, event.unit_at
        self.landed_at = min(self.landed_at, event.unit_at) if event.landed else inf
        self.progress = event
        if self.phases_at_steps is None:
            self.phases_at_steps = event.steps_done
        if self.is_training:
            self.declared_steps = event.steps_total
        if event.steps_done > self.most_steps:
            self.most_steps, self.n_failures = event.steps_done, 0
        self.memory_bytes, self.peak_memory_bytes = event.memory_bytes, max(self.peak_memory_bytes, event.memory_bytes)
        # After so many seconds a process is taken to have held as much memory as it ever will.
        was_known, self.is_memory_known = self.is_memory_known, self.peak_memory_bytes > 0 and self.ran_s >= 60.0
        return self.is_memory_known > was_known

    def ask_to_stop(self, event: StopRequested) -> None:
        """Note that its user wants it to end; a second request may use another way."""
        if self.interrupts and not event.interrupts:
            self.asked_at = -inf
        self.stop_cause, self.interrupts = event.cause, event.interrupts
        self.restarts = self.moves = False

    def ask_to_move(self, cause: str) -> None:
        """Note that its process must end, after a checkpoint if it can make one, and another be started elsewhere."""
        self.stop_cause, self.restarts, self.moves = cause, True, True

    @property
    def may_work_on(self) -> bool:
        """Whether it goes on with what it holds until `leaves_at`, although it is to have nothing."""
        return self.leaves_at < inf and not self.target and self.pause is None

    @property
    def on(self) -> frozenset[NodeId]:
        """Nodes on which it has a process, or one may just be started."""
        asked = () if self.asked is None else self.asked[0]
        return frozenset() if self.status == "queued" else frozenset((*self.places, *asked))

    def report_phases(self, phases: tuple[PhaseProgress, ...]) -> None:
        """Note how far its phases are."""
        known = {phase.name for phase in self.phases}
        if any(phase.name not in known for phase in phases):
            self.phases_at_steps = None  # the report of its steps comes next
        if _n_checkpoints(phases) > _n_checkpoints(self.phases):
            self.note_checkpoint()
        self.phases = phases

    def note_checkpoint(self) -> None:
        """Note that another process would go on with the steps that were reported last, at least."""
        if self.is_training and self.progress is not None:
            self.saved_steps = self.progress.steps_done

    def take(self, demand: Demand) -> bool:
        """Note its controller's demand; return whether that is news for a policy. Its grant must be accrued."""
        self.demand, self.demand_core_s = demand, self.granted_core_s
        is_news = self.is_respecified or self.planned_demand != demand.resources or self._departs(demand.work)
        if is_news:
            self.is_respecified = False
            self.planned_demand, self.planned_work = demand.resources, demand.work
            self.planned_core_s = self.granted_core_s
        return is_news

    def _departs(self, work: CoreWork | None) -> bool:
        """Whether the work left differs from what policies saw last, less the grant since."""
        known = self.planned_work
        if work is None or known is None:
            return work is not known
        expected_core_s = known.core_s - (self.granted_core_s - self.planned_core_s)
        # Work left, and an instant it is due, that differ by these shares from what policies were shown are worth a
        # plan.
        band_core_s = max(0.05 * known.core_s, known.std_core_s)
        is_due_otherwise = abs(work.due_s - known.due_s) > 0.02 * known.due_s
        return is_due_otherwise or abs(work.core_s - expected_core_s) > band_core_s

    def steps_total(self) -> tuple[float | None, float]:
        """Steps of the whole job, declared or expected until its goal, and their standard deviation."""
        progress = self.progress
        declared = self.declared_steps or self.spec.work_steps
        if self.losses is None or progress is None:
            return declared, 0.0
        expected, std = self.losses.steps_total(declared)
        # Until the job says that it is there, there is at least one more.
        return (expected if expected is None else max(expected, progress.steps_done + 1.0)), std

    @property
    def deadline_at(self) -> float | None:
        """Instant of the deadline; None without one."""
        return None if self.spec.deadline_s is None else self.submitted_at + self.spec.deadline_s

    def pacing(self) -> PacingLine | None:
        """The line it is to keep to; None: it goes as fast as it can."""
        return self.demand.pacing if self.demand and not self.is_hired else None

    def reason(self) -> Reason:
        """Reason for the job's target: its controller's if the target satisfies the demand, else the policy's.

        A demand for another number of cores is among its facts, as `demand_cores`.
        """
        if self.pause is not None:
            return Reason("paused", self.pause.text())
        if self.demand is None:
            return self.target_reason or _QUEUED
        target, demand_cores = total(self.target.values()), self.demand.resources.cores
        satisfied = self.demand.resources.fits_in(target)
        reason = self.demand.reason if satisfied or self.target_reason is None else self.target_reason
        if demand_cores == target.cores:
            return reason
        return replace(reason, facts={**reason.facts, "demand_cores": demand_cores})

    def is_settled(self) -> bool:
        """Whether the target was asked for, and the answer said that it is in force."""
        if self.status == "queued":
            return not self.target
        return self.stop_cause is None and self.is_applied and self.asked == (self.target, self.pacing())

    def accrue(self, at: float) -> None:
        """Add the grant since the last call to the integrals."""
        over_s = at - self.accrued_at
        if self.shape is not None:
            self.granted_core_s += self.held.cores * over_s
            self.granted_gpu_s += self.held.gpus * over_s
            self.ran_s += over_s
        self.accrued_at = at

    def hold(self, granted: Allocation, devices: Mapping[Any, str], at: float) -> None:
        """Note that the job holds `granted` from `at` on; its grant until then must be accrued."""
        if granted and self.shape is None:
            self.held_since_at = at
        self.places = tuple(granted) or self.places
        held, shape = total(granted.values()), shape_of(self.spec, granted, devices) if granted else None
        if (held, shape) != (self.held, self.shape):  # an answer may also be to a new pacing line alone
            self.held, self.shape, self.granted_at = held, shape, at

    def forget_process(self) -> None:
        """Forget the state of a process that is gone; the next one is measured for itself."""
        self.status, self.n_requests = "queued", self.n_requests + 1  # answers to earlier requests are void
        self.asked, self.is_applied, self.is_relaunched, self.leaves_at = None, False, False, inf
        self.progress, self.begun, self.mark, self.cost_mark, self.ran_s = None, None, None, None, 0.0
        self.phases, self.phases_at_steps = (), None
        self.longest_unit_s, self.dearest_unit_core_s = 0.0, 0.0
        self.told -= {"stalled"}
        self.forget_waiting()
        if self.restarts:
            self.stop_cause, self.restarts, self.moves = None, False, False
        self.expected_memory_bytes = max(self.expected_memory_bytes, self.peak_memory_bytes)
        self.places, self.memory_bytes, self.peak_memory_bytes, self.is_memory_known = (), 0, 0, False

    def forget_waiting(self) -> None:
        """Forget that it was told why it waits: once it waits again it is told again."""
        self.told -= {code for code in self.told if code.split()[0] == "waits"}

    def forget_all_but_numbers(self) -> None:
        """Free the plug-ins and histories of a job that has ended; its record can still be looked up by name."""
        self.controller, self.controller_state, self.curve, self.losses, self.story = None, None, None, None, None
        self.held, self.shape, self.asked, self.mark, self.program = NOTHING, None, None, None, None
        self.cost_mark, self.costs = None, {}

    @property
    def has_landed(self) -> bool:
        """Whether all its declared work is done; its process may still run."""
        return self.progress is not None and self.progress.landed

    @property
    def is_training(self) -> bool:
        """Whether its present process has reported that it trains."""
        progress = self.progress
        return progress is not None and (progress.steps_total is not None or progress.steps_done > 0)

    def view(
        self, granted: Allocation, promised_until_at: float | None, resident: Mapping[NodeId, int] | None = None
    ) -> JobView:
        """Return the job as a policy sees it."""
        steps_total, steps_total_std = self.steps_total()
        return _view(
            spec=self.spec,
            status=self.status,
            submitted_at=self.submitted_at,
            done_steps=self.progress.steps_done if self.progress and self.is_training else self.saved_steps,
            demand=self.wanted(),
            granted=granted,
            planned=self.target,
            started_at=self.started_at,
            granted_at=self.granted_at,
            progress_at=max(self.granted_at, self.progress.at if self.progress else 0.0),
            rate_sps=self.curve.rate_sps(self.shape) if self.curve and self.shape else 0.0,
            curve=self.curve,
            granted_core_s=self.granted_core_s,
            granted_gpu_s=self.granted_gpu_s,
            accrued_at=self.accrued_at,
            steps_total=steps_total,
            steps_total_std=steps_total_std,
            landed=self.has_landed,
            work=self._work_left(),
            promised_until_at=promised_until_at,
            steps_before=0.0 if self.progress else self.most_steps,
            resident={} if resident is None else resident,
            expected_memory_bytes=0 if self.spec.asked_memory_bytes else self.expected_memory_bytes,
        )

    def _work_left(self) -> CoreWork | None:
        """Work left at `accrued_at`: the controller's estimate, or the declared work, less the grant since."""
        if self.has_landed:
            return None
        work = None if self.demand is None else self.demand.work
        if work is None:
            return declared_work(self.spec, self.granted_core_s)
        if self.granted_core_s == self.demand_core_s:
            return work
        return replace(work, core_s=max(0.0, work.core_s - (self.granted_core_s - self.demand_core_s)))

    def without_plug_ins(self) -> "ScheduledJob":
        """Return a copy without plug-ins, but with their states, and without recent messages."""
        curve = None if self.curve is None else RateCurve(None, self.curve.state)
        losses = None if self.losses is None else replace(self.losses, model=None)
        return replace(self, controller=None, curve=curve, losses=losses, story=None)


def _n_checkpoints(phases: tuple[PhaseProgress, ...]) -> int:
    return sum(phase.units_done for phase in phases if phase.is_checkpoint)


@dataclass(slots=True)
class JobTable:
    """Records of jobs by name.

    Attributes
    ----------
    n_ended
        Number of ended jobs that are remembered, the last ones.
    active
        The jobs that have not ended, in order of submission.
    just_ended
        Jobs that have just ended and for which others wait: see `followers_of_ended`.
    """

    n_ended: int
    active: dict[JobId, ScheduledJob] = field(default_factory=dict)
    just_ended: list[ScheduledJob] = field(default_factory=list)
    _jobs: dict[JobId, ScheduledJob] = field(default_factory=dict)
    #: Ended jobs that are remembered, in the order in which they ended.
    _ended: dict[JobId, None] = field(default_factory=dict)
    #: Jobs that others wait for.
    _followed: set[JobId] = field(default_factory=set)

    def __getitem__(self, job: JobId) -> ScheduledJob:
        """Return the record of a job, also after its end; raise `KeyError` if it is not remembered."""
        return self._jobs[job]

    def get(self, job: JobId) -> ScheduledJob | None:
        """Return the record of a job, also after its end; None if it is not remembered."""
        return self._jobs.get(job)

    def add(self, job: ScheduledJob) -> None:
        """Add a job that was submitted."""
        self._jobs[job.spec.id] = job
        self.active[job.spec.id] = job

    def queue_behind(self, job: ScheduledJob) -> Reason | None:
        """Make a new job wait for those it runs after. Returns why it can never run; None: it can."""
        if not job.spec.after:
            return None
        for name in job.spec.after:
            before = self.get(name)
            if before is None:
                return Reason("after-unknown", f"it is to run after '{name}', and there is no such job")
            if before.ended and before.status != "finished":
                return _left_behind(before)
        job.waits_for = tuple(name for name in job.spec.after if not self[name].ended)
        self._followed.update(job.waits_for)
        return None

    def followers_of_ended(self) -> Iterator[tuple[ScheduledJob, Reason | None]]:
        """Yield the jobs that waited for one that has just ended, with the reason why they can never run, or None.

        Includes those of jobs that end meanwhile.
        """
        while self.just_ended:
            before = self.just_ended.pop(0)
            for job in [job for job in self.active.values() if before.spec.id in job.waits_for]:
                job.waits_for = tuple(other for other in job.waits_for if other != before.spec.id)
                yield job, None if before.status == "finished" else _left_behind(before)

    def end(self, job: ScheduledJob, end: Message) -> None:
        """Record the end of a job with the message `end`, and forget the oldest of many ended jobs."""
        name = job.spec.id
        if name in self._followed:
            self._followed.remove(name)
            self.just_ended.append(job)
        del self.active[name]
        job.status = end_state(end) or job.status
        job.forget_all_but_numbers()
        self._ended[name] = None
        if len(self._ended) > self.n_ended:
            forgotten = next(iter(self._ended))
            del self._ended[forgotten], self._jobs[forgotten]

    def validate(self, granted: Callable[[JobId], Allocation]) -> None:
        """Raise `InvariantBroken` if the state contradicts itself, or what is `granted` to jobs that have not ended."""
        for name, job in self._jobs.items():
            if job.ended != (name not in self.active):
                raise InvariantBroken(f"job '{name}' is {job.status} and listed as the opposite", job.so_far())
            if not job.ended and job.status == "queued" and granted(name):
                raise InvariantBroken(f"job '{name}' is queued and holds something", job.so_far())
            if not job.ended and job.is_withheld and job.target:
                raise InvariantBroken(f"job '{name}' may have nothing and is to have something", job.so_far())

    def without_plug_ins(self) -> "JobTable":
        """Return a copy of the table whose records have no plug-ins."""
        active = {name: job.without_plug_ins() for name, job in self.active.items()}
        return replace(self, active=active, _jobs={**self._jobs, **active})


def duplicate(job: JobId) -> Reason:
    """Return the reason for turning away a second job of this name."""
    return Reason("duplicate-id", f"a second job '{job}' was submitted and turned away; choose another name for it")


def _left_behind(before: ScheduledJob) -> Reason:
    """Return the reason why a job that runs after `before` can never run."""
    how = before.status if before.status == "failed" else f"was {before.status}"
    return Reason("after-failed", f"it is to run after '{before.spec.id}', which {how}")
