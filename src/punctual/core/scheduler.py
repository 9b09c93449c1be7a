"""The only mutator of state: events in, commands out.

Three rules hold here, each for a failure that was seen without it.

1. *Fold, then reconcile.* An event changes the state; then what is wanted is compared with what is in force, and the
   difference is asked for. Nothing is remembered about which event led to which command, so a lost, late or failed
   command needs no special case. A failed one waits one period before it is asked again.
2. *Reserve the larger* (`punctual.core.ledger`). At most one resize is in flight per job.
3. *One plan in flight.* A plan that arrives late is still used for the jobs that remain, and the next one is
   requested at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import hypot, inf
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import (
    Command,
    LaunchJob,
    RejectJob,
    RequestPlan,
    ResizeJob,
    SetTimer,
    StopJob,
    WarnUser,
)
from punctual.core.control import Demand, PacingLine, PhaseProgress, Reading
from punctual.core.errors import InvalidSpec, InvariantBroken
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    LossReported,
    NodeJoined,
    NodeLost,
    PhaseReported,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobState, JobView, RateCurve, shape_of
from punctual.core.ledger import Bookings, Ledger
from punctual.core.loss import LossCurve
from punctual.core.picture import Picture
from punctual.core.plan import Plan
from punctual.core.program import Program
from punctual.core.protocols import Controller, ConvergenceModel, PerfModel
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.speed import SeenRate, Shape
from punctual.core.story import Reason, Story
from punctual.core.timer import Timer

#: Share of the steps after which a declared phase that was never seen is pointed out.
_UNMEASURED_FRAC = 0.25

_STATUS_ENDED = ("finished", "failed")
_NO_DEADLINE = Reason("no-deadline", "no deadline is set: the job runs at its ceiling")
_LANDED = Reason("landed", "all declared work is done: the process may leave at full speed")
_QUEUED = Reason("start-up", "a job starts at its ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long the scheduler waits for what, in seconds; infinite: for ever, and no timer is set.

    Attributes
    ----------
    first_tick_s
        From a job's start to its first tick.
    idle_tick_s
        Between ticks of a job without a deadline.
    retry_s
        Before a failed command is asked again.
    answer_s
        After which a command without an answer is taken as lost.
    learn_s
        Least time over which a speed is measured.
    grace_s, grace_frac
        A job that reports no progress is pointed out after the first, or this share of its deadline if that is later.
    """

    first_tick_s: float = 0.25
    idle_tick_s: float = 1.0
    retry_s: float = 1.0
    answer_s: float = 10.0
    learn_s: float = 1.0
    grace_s: float = 30.0
    grace_frac: float = 0.2


@dataclass(slots=True)
class _Job:
    """The scheduler's record of a job."""

    spec: JobSpec
    submitted_at: float
    #: Revision in force when it was submitted: only plans of a later one know the job.
    submitted_revision: int
    program: Program | None
    controller: Controller[Any] | None
    state: Any
    curve: RateCurve | None = None
    losses: LossCurve | None = None
    status: JobState = "queued"
    n_failures: int = 0
    #: Number of the last command about this job; answers carry it.
    n_requests: int = 0
    demand: Demand | None = None
    #: The demand that the last requested plan was made for.
    planned_demand: Resources = NOTHING
    #: What the last plan gives the job, and the policy's reason for it.
    target: Allocation = field(default_factory=dict)
    target_reason: Reason | None = None
    #: What was asked by the last command that was applied. Compared with the target in place of the grant itself,
    #: which is the amount as read back and differs by the actuator's resolution.
    applied: tuple[Allocation, PacingLine | None] | None = None
    asked: tuple[Allocation, PacingLine | None] | None = None
    asked_at: float = 0.0
    retry_at: float = 0.0
    stop_cause: str | None = None
    launched_again: bool = False
    progress: ProgressReported | None = None
    phases: tuple[PhaseProgress, ...] = ()
    #: Where the next speed is learned from.
    mark: "_Mark | None" = None
    can_pace: bool = False
    can_cap: bool = True
    #: What the ledger says the job holds, added up, and the shape it gives the job.
    held: Resources = NOTHING
    shape: Shape | None = None
    started_at: float | None = None
    granted_at: float = 0.0
    granted_core_s: float = 0.0
    granted_gpu_s: float = 0.0
    accrued_at: float = 0.0
    feasible: bool = True
    told_no_progress: bool = False
    told_unmeasured: bool = False
    told_no_loss: bool = False
    #: None once the job has ended.
    story: Story | None = field(default_factory=Story)

    @property
    def ended(self) -> bool:
        return self.status in _STATUS_ENDED

    def tell(self, message: object) -> None:
        """Add to the story of a job that has not ended."""
        if self.story is not None:
            self.story.add(message)

    def so_far(self) -> tuple[object, ...]:
        """The last messages about it; none of a job that has ended."""
        return () if self.story is None else self.story.messages()

    def wanted(self) -> Resources:
        return self.demand.resources if self.demand else self.spec.ceiling

    def pacing(self) -> PacingLine | None:
        return self.demand.pacing if self.demand else None

    def reason(self) -> Reason:
        """Why the job is to have its target: the controller's reason if it gets what it wants, else the policy's."""
        if self.demand is None:
            return self.target_reason or _QUEUED
        satisfied = self.demand.resources.fits_in(total(self.target.values()))
        return self.demand.reason if satisfied or self.target_reason is None else self.target_reason


@dataclass(frozen=True, slots=True)
class _Mark:
    """A report from which a speed may be learned: when its last unit was done, and whether nothing held the job back."""

    begun_at: float
    steps_done: float
    phases: tuple[PhaseProgress, ...]
    runs_free: bool

    def is_alike_until(self, event: ProgressReported, job: _Job) -> bool:
        """Whether the job has only done steps since, unpaced, and not while a change of its grant was in flight."""
        unchanged = job.applied is not None or event.unit_at <= job.asked_at
        return self.runs_free and unchanged and self.phases == job.phases


class Scheduler:
    """Turns events into commands.

    Parameters
    ----------
    controllers
        By registered name; each job names the one that steers it.
    models
        Performance models by registered name; each job may name the one that learns its speed.
    convergences
        Convergence models by registered name; each job with a goal names the one that learns when it is reached.
    strict
        Raise `InvariantBroken` when a plan is not valid (tests); otherwise the plan is refused, the last one stays in
        force and the user is warned.
    seed
        Handed to policies.
    n_retries
        How often a job that could not be started, or failed in a retryable way, is launched again.
    """

    def __init__(
        self,
        controllers: Mapping[str, Controller[Any]],
        *,
        models: Mapping[str, PerfModel[Any]] | None = None,
        convergences: Mapping[str, ConvergenceModel[Any]] | None = None,
        strict: bool = False,
        seed: int = 0,
        periods: Periods | None = None,
        n_retries: int = 3,
    ) -> None:
        self._controllers = dict(controllers)
        self._models = dict(models or {})
        self._convergences = dict(convergences or {})
        self._strict = strict
        self._seed = seed
        self._periods = periods or Periods()
        self._n_retries = n_retries
        self._ledger = Ledger()
        self._jobs: dict[JobId, _Job] = {}
        self._active: dict[JobId, _Job] = {}
        #: Jobs for which what is wanted may differ from what is in force; an event looks at no others.
        self._unsettled: dict[JobId, _Job] = {}
        #: What the last plan gives, by node.
        self._planned = Bookings()
        self._devices: dict[NodeId, str] = {}
        #: What the last plan leaves, by node, and the nodes of which that is out of date.
        self._free: dict[NodeId, Resources] = {}
        self._touched: set[NodeId] = set()
        self._nodes: tuple[Node, ...] = ()
        self._capacity = NOTHING
        self._picture = Picture()
        #: Jobs of which the picture is out of date, in the order in which they changed.
        self._changed: dict[JobId, _Job] = {}
        self._commands: list[Command] = []
        self._revision = 0
        self._plan_due = False
        self._plan_in_flight = False
        self._plan_retry_at = 0.0
        #: Revision in force when capacity last changed: an older plan that does not fit is nobody's fault.
        self._capacity_revision = 0
        self._carry: object = None
        self._folds: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            JobStarted: self._job_started,
            ProgressReported: self._progress_reported,
            PhaseReported: self._phase_reported,
            LossReported: self._loss_reported,
            JobFinished: self._job_finished,
            JobFailed: self._job_failed,
            GrantApplied: self._grant_applied,
            GrantFailed: self._grant_failed,
            NodeJoined: self._node_joined,
            NodeLost: self._node_lost,
            SpecChanged: self._spec_changed,
            StopRequested: self._stop_requested,
            SteeringResumed: self._steering_resumed,
            PlanProposed: self._plan_proposed,
            TimerFired: self._timer_fired,
        }

    def handle(self, event: Event) -> list[Command]:
        """Fold `event` into the state and return what is to be done about it, in order."""
        self._commands = []
        job = self._jobs.get(_subject(event))
        if job is not None:
            job.tell(event)
        self._folds[type(event)](event)
        self._reconcile(event.at)
        return self._commands

    def snapshot(self, at: float) -> Snapshot:
        """The picture that a policy decides on; carries the revision of the last `RequestPlan`."""
        self._bring_up_to_date()
        return Snapshot(
            at=at,
            revision=self._revision,
            nodes=self._nodes,
            holding=self._picture.holding(),
            waiting=self._picture.waiting(),
            free=dict(self._free),
            seed=self._seed,
            carry=self._carry,
        )

    def _bring_up_to_date(self) -> None:
        """Renew what changed since the last snapshot."""
        for job in self._changed.values():
            self._picture.show(self._view(job))
        self._changed.clear()
        for node in self._touched & self._free.keys():
            self._free[node] = self._ledger.nodes[node] - self._planned.total_on(node)
        self._touched.clear()

    def job(self, job: JobId) -> JobView:
        """The job as a policy would see it, also after its end; raises `KeyError` for an unknown one."""
        return self._view(self._jobs[job])

    def demand(self, job: JobId) -> Demand | None:
        """The controller's last demand; None before the first."""
        return self._jobs[job].demand

    @property
    def n_active(self) -> int:
        """Jobs that are submitted and have not ended."""
        return len(self._active)

    def steps_total(self, job: JobId) -> tuple[float | None, float]:
        """Steps of the whole job, declared or expected until its goal, and their standard deviation."""
        return self._steps_total(self._jobs[job])

    def validate(self) -> None:
        """Raise `InvariantBroken` if the state contradicts itself."""
        self._ledger.validate()
        for id, job in self._jobs.items():
            if job.ended != (id not in self._active):
                raise InvariantBroken(f"job '{id}' is {job.status} and listed as the opposite", job.so_far())
            if job.status == "queued" and self._ledger.granted(id):
                raise InvariantBroken(f"job '{id}' is queued and holds something", job.so_far())

    # Folds: one event each, no commands about grants.

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec = event.spec
        if spec.id in self._jobs:
            raise InvalidSpec(
                "`id` must be new", f"'{spec.id}' a second time", f"job '{spec.id}'", "Choose another name (`--name`)."
            )
        controller = self._controllers[spec.controller] if spec.controller else None
        job = _Job(
            spec, event.at, self._revision, event.program, controller, controller.init(spec) if controller else None,
            curve=self._curve(spec), losses=self._losses(spec), planned_demand=spec.ceiling, accrued_at=event.at,
        )  # fmt: skip
        job.tell(event)
        self._jobs[spec.id] = job
        if self._capacity and not spec.floor.fits_in(self._capacity):
            self._reject(event.at, job, self._capacity)
            return
        self._active[spec.id] = job
        self._ledger.open(spec.id)
        self._picture.admit(spec.id)
        self._changed[spec.id] = job
        self._plan_due = True

    def _curve(self, spec: JobSpec) -> RateCurve | None:
        if spec.model is None:
            return None
        model = self._models[spec.model]
        return RateCurve(model, model.init(spec))

    def _losses(self, spec: JobSpec) -> LossCurve | None:
        if spec.goal is None:
            return None
        model = self._convergences[spec.convergence]
        return LossCurve(model, spec.goal, model.init())

    def _reject(self, at: float, job: _Job, capacity: Resources) -> None:
        job.status = "failed"
        text = f"its floor of {job.spec.floor} does not fit in what there is: {capacity}"
        self._emit(RejectJob(at=at, job=job.spec.id, reason=Reason("too-large", text)), job)

    def _job_started(self, event: JobStarted) -> None:
        job = self._settle(event.job, event.request, event.granted, event.at)
        if job is None:
            return
        job.can_pace, job.can_cap = event.can_pace, event.can_cap
        if job.launched_again:  # it may have been running already, with what an earlier launch gave it
            job.applied, job.launched_again = None, False
        if job.status in ("queued", "starting"):
            self._become(job, "running")
            if job.started_at is None:
                job.started_at = event.at
            self._set_tick(job, event.at, self._periods.first_tick_s)

    def _grant_applied(self, event: GrantApplied) -> None:
        self._settle(event.job, event.request, event.granted, event.at)

    def _grant_failed(self, event: GrantFailed) -> None:
        job = self._settle(event.job, event.request, event.granted, event.at)
        if job is None:
            return
        job.applied = None
        if job.status == "starting" and not self._ledger.holds(event.job):
            self._become(job, "queued")
            job.n_failures += 1
            if job.n_failures > self._n_retries:
                self._give_up(job, event)
                return
        job.retry_at = event.at + self._periods.retry_s
        self._emit(SetTimer(at=event.at, timer=Timer("retry", event.job), fire_at=job.retry_at), job)

    def _give_up(self, job: _Job, event: GrantFailed) -> None:
        self._end(event.job, "failed", event.at)
        text = f"it could not be started in {job.n_failures} attempts: {event.cause}"
        self._emit(RejectJob(at=event.at, job=event.job, reason=Reason("not-started", text)), job)

    def _settle(self, id: JobId, request: int, granted: Allocation, at: float) -> _Job | None:
        """Book an answer; None if the job has ended or the answer is to a command that another has replaced."""
        job = self._active.get(id)
        if job is None or request < job.n_requests:
            return None
        self._accrue(job, at)
        self._ledger.settle(id, request, granted)
        self._hold(job, at)
        job.applied = job.asked
        self._unsettle(job)
        return job

    def _hold(self, job: _Job, at: float) -> None:
        """Note what the ledger says the job holds from now on."""
        granted = self._ledger.granted(job.spec.id)
        job.held, job.granted_at = total(granted.values()), at
        job.shape = shape_of(job.spec, granted, self._devices) if granted else None
        self._changed[job.spec.id] = job

    def _progress_reported(self, event: ProgressReported) -> None:
        job = self._active.get(event.job)
        if job is not None:
            self._learn(job, event)
            job.progress = event
            self._changed[event.job] = job

    def _learn(self, job: _Job, event: ProgressReported) -> None:
        """Show the model the speed since the mark, if the job held the same and did nothing but steps all the time.

        A paced job shows how fast it may be, not how fast it is.
        """
        if job.curve is None or job.shape is None:
            return
        mark = job.mark
        if mark is not None and mark.begun_at >= job.granted_at and mark.is_alike_until(event, job):
            steps, over_s = event.steps_done - mark.steps_done, event.unit_at - mark.begun_at
            if 0 <= over_s < self._periods.learn_s:
                return
            if steps > 0 and over_s > 0:
                seen = SeenRate(shape=job.shape, rate_sps=steps / over_s, over_s=over_s)
                job.curve = RateCurve(job.curve.model, job.curve.model.update(job.curve.state, seen))
        # Before its first step it is not known when a job began with it, unless it says that this is now.
        begun_at = event.unit_at if event.steps_done or event.unit_at == event.at else inf
        runs_free = job.applied is not None and job.applied[1] is None
        job.mark = _Mark(begun_at, event.steps_done, job.phases, runs_free)

    def _phase_reported(self, event: PhaseReported) -> None:
        job = self._active.get(event.job)
        if job is not None:
            job.phases = event.phases

    def _loss_reported(self, event: LossReported) -> None:
        job = self._active.get(event.job)
        if job is not None and job.losses is not None:
            job.losses = job.losses.after(event.losses)

    def _job_finished(self, event: JobFinished) -> None:
        self._end(event.job, "finished", event.at)

    def _job_failed(self, event: JobFailed) -> None:
        job = self._active.get(event.job)
        if job is None:
            return
        job.n_failures += 1
        if event.retryable and job.stop_cause is None and job.n_failures <= self._n_retries:
            self._requeue(job, event.at)
            job.retry_at = event.at + self._periods.retry_s
            self._emit(SetTimer(at=event.at, timer=Timer("retry", event.job), fire_at=job.retry_at), job)
        else:
            self._end(event.job, "failed", event.at)

    def _become(self, job: _Job, status: JobState) -> None:
        job.status = status
        self._changed[job.spec.id] = job

    def _end(self, id: JobId, status: JobState, at: float) -> None:
        job = self._active.pop(id, None)
        if job is None:
            return
        self._accrue(job, at)
        self._ledger.close(id)
        self._aim(job, {})
        self._picture.drop(id)
        self._changed.pop(id, None)
        job.status = status
        # An ended job is looked up by its name only: what it took to steer it goes.
        job.held, job.state, job.curve, job.losses, job.story = NOTHING, None, None, None, None
        self._plan_due = True

    def _requeue(self, job: _Job, at: float) -> None:
        self._accrue(job, at)
        self._ledger.close(job.spec.id)
        self._ledger.open(job.spec.id)
        self._hold(job, at)
        self._become(job, "queued")
        job.applied, job.asked = None, None
        job.progress, job.phases, job.mark = None, (), None  # the next process counts for itself
        self._unsettle(job)
        job.n_requests += 1  # answers to what was asked before are about a process that is gone
        self._plan_due = True

    def _node_joined(self, event: NodeJoined) -> None:
        self._ledger.join(event.node, event.capacity)
        self._devices[event.node] = event.device
        self._capacity_changed()

    def _node_lost(self, event: NodeLost) -> None:
        for job in self._active.values():  # what lay there counts up to now
            self._accrue(job, event.at)
        for id in self._planned.forget(event.node):
            job = self._active[id]
            job.target = {node: amount for node, amount in job.target.items() if node != event.node}
            if job.target and self._broken_grant(job, job.target):
                self._aim(job, {})  # what is left is no allocation: the job waits for another one
            self._changed[id] = job
        for id in self._ledger.lose(event.node):
            job = self._active[id]
            self._hold(job, event.at)
            job.applied = None
            self._unsettle(job)
            if not self._ledger.holds(id) and job.status != "queued":
                self._requeue(job, event.at)
        self._capacity_changed()

    def _capacity_changed(self) -> None:
        nodes = sorted(self._ledger.nodes.items())
        self._nodes = tuple(Node(node, capacity, self._devices[node]) for node, capacity in nodes)
        self._capacity = total(self._ledger.nodes.values())
        self._free = dict(nodes)
        self._touched.update(self._free)
        self._capacity_revision = self._revision
        self._plan_due = True

    def _spec_changed(self, event: SpecChanged) -> None:
        job = self._active.get(event.spec.id)
        if job is None:
            return
        job.spec = event.spec
        self._changed[event.spec.id] = job
        self._plan_due = True
        if job.status == "running":
            self._set_tick(job, event.at, 0.0)

    def _stop_requested(self, event: StopRequested) -> None:
        job = self._active.get(event.job)
        if job is None:
            return
        if job.status == "queued":
            self._end(event.job, "failed", event.at)
        else:
            job.stop_cause = event.cause
            self._unsettle(job)

    def _steering_resumed(self, event: SteeringResumed) -> None:
        """Nobody knows what became of what was under way: ask for all of it again, at once."""
        for id, granted in event.granted.items():
            job = self._active.get(id)
            if job is not None:
                self._accrue(job, event.lost_at)
                self._ledger.settle(id, job.n_requests, granted)
                self._hold(job, event.lost_at)
        for job in self._active.values():
            self._ask_anew(job, event.at)
        self._plan_due, self._plan_in_flight, self._plan_retry_at = True, False, event.at

    def _ask_anew(self, job: _Job, at: float) -> None:
        """Say again what was last asked for the job. One that runs is launched again, which tells how it stands."""
        job.applied, job.asked_at, job.retry_at, job.mark = None, -inf, at, None
        self._unsettle(job)
        if job.status == "stopping" or not job.target:
            self._set_tick(job, at, 0.0)
        elif job.status != "queued" or self._ledger.holds(job.spec.id):
            self._become(job, "starting")

    def _plan_proposed(self, event: PlanProposed) -> None:
        self._plan_in_flight = False
        changes = [] if event.plan is None else self._changes(event.plan)
        broken = event.cause if event.plan is None else self._broken(event.plan, changes)
        if event.plan is None or broken:
            outdated = event.plan is not None and event.plan.revision <= self._capacity_revision
            if not outdated:  # otherwise another one is due already
                self._refuse(broken, event.at)
            return
        self._carry = event.plan.carry
        for job, grant in changes:
            job.target_reason = event.plan.reasons.get(job.spec.id)
            if grant != job.target:
                self._aim(job, grant)
                self._unsettle(job)
        self._decline(event.plan, event.at)
        if event.plan.ask_again_at is not None:
            fire_at = max(event.at, event.plan.ask_again_at)
            self._emit(SetTimer(at=event.at, timer=Timer("plan"), fire_at=fire_at), None)

    def _decline(self, plan: Plan, at: float) -> None:
        """End the waiting jobs that the policy will never run. One that has run is not the policy's to end."""
        for id, reason in plan.declines.items():
            job = self._active.get(id)
            if job is not None and job.status == "queued":
                self._end(id, "failed", at)
                self._emit(RejectJob(at=at, job=id, reason=reason), job)

    def _aim(self, job: _Job, grant: Allocation) -> None:
        """Make `grant` what the last plan gives the job."""
        self._touched.update(job.target, grant)
        self._planned.remove(job.spec.id, job.target)
        job.target = {node: amount for node, amount in grant.items() if amount}
        self._planned.put(job.spec.id, job.target)
        self._changed[job.spec.id] = job

    def _refuse(self, why: str, at: float) -> None:
        if self._strict:
            raise InvariantBroken(f"the plan is not valid: {why}")
        text = f"the policy's plan was refused and the last one stays in force: {why}"
        self._emit(WarnUser(at=at, job=None, reason=Reason("plan-refused", text)), None)
        self._plan_due = True
        self._plan_retry_at = at + self._periods.retry_s
        self._emit(SetTimer(at=at, timer=Timer("plan"), fire_at=self._plan_retry_at), None)

    def _timer_fired(self, event: TimerFired) -> None:
        if event.timer.kind == "plan":
            self._plan_due = True
        job = self._active.get(event.timer.job)
        if event.timer.kind == "tick" and job is not None and job.status in ("running", "stopping"):
            self._tick(job, event.at)

    # Ticks: a reading becomes a demand.

    def _tick(self, job: _Job, at: float) -> None:
        self._accrue(job, at)
        self._warn_without_progress(job, at)
        self._warn_of_unmeasured_phases(job, at)
        self._warn_without_losses(job, at)
        demand = self._next_demand(job, at)
        if job.planned_demand != demand.resources:
            job.planned_demand = demand.resources
            self._plan_due = True
            self._changed[job.spec.id] = job
        job.demand = demand
        self._unsettle(job)
        self._warn_of_feasibility(job, at)
        self._set_tick(job, at, demand.next_tick_s)

    def _next_demand(self, job: _Job, at: float) -> Demand:
        idle_s = self._periods.idle_tick_s
        if job.progress is not None and job.progress.landed:
            if job.spec.worker is not None and job.demand is not None:  # starting workers would only delay the others
                return replace(job.demand, next_tick_s=idle_s, reason=_LANDED, pacing=None)
            return Demand(resources=job.spec.ceiling, next_tick_s=idle_s, reason=_LANDED)
        if job.spec.deadline_s is None or job.controller is None:
            return Demand(resources=job.spec.ceiling, next_tick_s=idle_s, reason=_NO_DEADLINE)
        reading = self._reading(job, at, job.spec.deadline_s)
        demand, job.state = job.controller.step(job.spec, job.state, reading)
        return demand if not reading.steps_total_std else _widened(demand, reading)

    def _reading(self, job: _Job, at: float, deadline_s: float) -> Reading:
        progress = job.progress
        steps_total, steps_total_std = self._steps_total(job)
        return Reading(
            elapsed_s=at - job.submitted_at,
            deadline_s=deadline_s,
            granted=job.held,
            granted_core_s=job.granted_core_s,
            used_core_s=progress.used_core_s if progress else 0.0,
            in_flight_core_s=progress.in_flight_core_s if progress else 0.0,
            unit_at_s=progress.unit_at - job.submitted_at if progress else 0.0,
            steps_done=progress.steps_done if progress else 0.0,
            steps_total=steps_total,
            steps_total_std=steps_total_std,
            ceiling=self._ceiling(job),
            phases=job.phases,
            landed=progress.landed if progress else False,
            can_pace=job.can_pace,
            can_cap=job.can_cap,
            shape=job.shape,
            curve=job.curve,
        )

    def _steps_total(self, job: _Job) -> tuple[float | None, float]:
        """Steps of the whole job, and their standard deviation."""
        progress = job.progress
        declared = (progress.steps_total if progress else None) or job.spec.work_steps
        if job.losses is None or progress is None:
            return declared, 0.0
        expected, std = job.losses.steps_total(declared)
        # Until the job says that it is there, there is at least one more.
        return (expected if expected is None else max(expected, progress.steps_done + 1.0)), std

    def _ceiling(self, job: _Job) -> Resources:
        worker = job.spec.worker
        if worker is not None and job.spec.server is None:  # workers may lie on several nodes
            n_workers = sum(capacity.n_times(worker) for capacity in self._ledger.nodes.values())
            return job.spec.ceiling.at_most(worker * n_workers).at_least(job.spec.floor)
        largest = NOTHING
        for capacity in self._ledger.nodes.values():
            largest = largest.at_least(capacity)
        return job.spec.ceiling.at_most(largest).at_least(job.spec.floor)

    def _warn_without_progress(self, job: _Job, at: float) -> None:
        elapsed_s = at - job.submitted_at
        grace_s = max(self._periods.grace_s, self._periods.grace_frac * (job.spec.deadline_s or 0.0))
        silent = job.progress is None or (job.progress.steps_total is None and job.progress.steps_done == 0)
        if silent and not job.told_no_progress and elapsed_s > grace_s:
            job.told_no_progress = True
            text = f"no progress was reported in {elapsed_s:.0f} s; the job goes on at full speed"
            self._emit(WarnUser(at=at, job=job.spec.id, reason=Reason("no-progress", text)), job)

    def _warn_without_losses(self, job: _Job, at: float) -> None:
        grace_s = max(self._periods.grace_s, self._periods.grace_frac * (job.spec.deadline_s or 0.0))
        has_begun = job.progress is not None and job.progress.steps_done > 0
        silent = job.losses is not None and not job.losses.at_steps
        if silent and has_begun and not job.told_no_loss and at - job.submitted_at > grace_s:
            job.told_no_loss = True
            text = (
                "no loss was reported, and nobody can tell when the goal is reached; all declared steps are planned for"
            )
            self._emit(WarnUser(at=at, job=job.spec.id, reason=Reason("no-loss", text)), job)

    def _warn_of_unmeasured_phases(self, job: _Job, at: float) -> None:
        """A phase that comes only at the end is in no forecast until it is too late to make room for it."""
        steps_total = job.progress.steps_total if job.progress else None
        if job.told_unmeasured or not job.progress or not steps_total:
            return
        unknown = [phase.name for phase in job.phases if phase.units_planned and not phase.is_measured]
        if unknown and job.progress.steps_done > _UNMEASURED_FRAC * steps_total:
            job.told_unmeasured = True
            names = ", ".join(f"'{name}'" for name in unknown)
            text = f"what {names} will take is not known and not planned for; rehearse it, or declare its cost_steps"
            self._emit(WarnUser(at=at, job=job.spec.id, reason=Reason("unmeasured-phase", text)), job)

    def _warn_of_feasibility(self, job: _Job, at: float) -> None:
        forecast = job.demand.forecast if job.demand else None
        if forecast is None or forecast.feasible == job.feasible:
            return
        job.feasible = forecast.feasible
        deadline_s = job.spec.deadline_s or 0.0
        late_s = forecast.earliest_finish_s - deadline_s
        text = (
            f"the deadline can be met again, with {-late_s:.1f} s to spare at full speed"
            if forecast.feasible
            else f"the deadline cannot be met: at full speed the job lands {late_s:.1f} s after it"
        )
        facts = {"earliest_finish_s": forecast.earliest_finish_s, "deadline_s": deadline_s}
        reason = Reason("feasible" if forecast.feasible else "infeasible", text, facts)
        self._emit(WarnUser(at=at, job=job.spec.id, reason=reason), job)

    def _set_tick(self, job: _Job, at: float, after_s: float) -> None:
        if job.controller is not None and after_s < inf:
            self._emit(SetTimer(at=at, timer=Timer("tick", job.spec.id), fire_at=at + after_s), job)

    # Reconciling: what is wanted against what is in force.

    def _reconcile(self, at: float) -> None:
        self._request_plan(at)
        for id, job in tuple(self._unsettled.items()):
            if job.ended or not self._is_unsettled(job):
                del self._unsettled[id]
            elif job.stop_cause is not None:
                self._stop(job, at)
            elif job.status == "queued":
                self._launch(job, at)
            else:
                self._resize(job, at)

    def _is_unsettled(self, job: _Job) -> bool:
        if job.status == "queued":
            return bool(job.target)
        return job.stop_cause is not None or job.applied != (job.target, job.pacing())

    def _unsettle(self, job: _Job) -> None:
        """Look at the job at the end of this event, and after each until it has what it should have."""
        self._unsettled[job.spec.id] = job

    def _request_plan(self, at: float) -> None:
        if not self._plan_due or self._plan_in_flight or not self._ledger.nodes or at < self._plan_retry_at:
            return
        self._plan_due = False
        if not self._active:
            return
        self._plan_in_flight = True
        self._revision += 1
        self._emit(RequestPlan(at=at, revision=self._revision), None)

    def _launch(self, job: _Job, at: float) -> None:
        if not job.target or not self._may_ask(job, at):
            return
        self._become(job, "starting")
        request = self._ask(job, at)
        command = LaunchJob(
            at=at,
            job=job.spec.id,
            request=request,
            spec=job.spec,
            grant=job.target,
            reason=job.reason(),
            program=job.program,
            submitted_at=job.submitted_at,
        )
        self._emit(command, job)

    def _resize(self, job: _Job, at: float) -> None:
        if not self._may_ask(job, at):
            return
        if job.status == "starting" and job.target:  # the launch was not answered in time: say it again
            self._become(job, "queued")
            job.launched_again = True
            self._launch(job, at)
            return
        request = self._ask(job, at)
        command = ResizeJob(
            at=at, job=job.spec.id, request=request, grant=job.target, reason=job.reason(), pacing=job.pacing()
        )
        self._emit(command, job)

    def _stop(self, job: _Job, at: float) -> None:
        waiting = job.status == "stopping" and at < job.asked_at + self._periods.answer_s
        if waiting or job.stop_cause is None:
            return
        self._become(job, "stopping")
        job.asked_at = at
        self._emit(StopJob(at=at, job=job.spec.id, cause=job.stop_cause), job)
        self._set_answer_timer(job, at)

    def _may_ask(self, job: _Job, at: float) -> bool:
        unanswered = self._ledger.in_flight(job.spec.id) and at < job.asked_at + self._periods.answer_s
        return not unanswered and at >= job.retry_at and self._ledger.may_ask(job.spec.id, job.target)

    def _ask(self, job: _Job, at: float) -> int:
        job.n_requests += 1
        job.asked, job.asked_at = (job.target, job.pacing()), at
        job.applied = (
            None  # until the answer nobody knows which; and if it gets lost, the target may be the old one again
        )
        self._ledger.ask(job.spec.id, job.n_requests, job.target)
        self._set_answer_timer(job, at)
        return job.n_requests

    def _set_answer_timer(self, job: _Job, at: float) -> None:
        if self._periods.answer_s < inf:
            fire_at = at + self._periods.answer_s
            self._emit(SetTimer(at=at, timer=Timer("answer", job.spec.id), fire_at=fire_at), job)

    # Plans.

    def _changes(self, plan: Plan) -> list[tuple[_Job, Allocation]]:
        """The jobs that the plan decides on and that remain, with what it gives them."""
        named = plan.grants if plan.keeps_others else self._active
        jobs = [self._active[id] for id in named if id in self._active]
        return [(job, plan.grants.get(job.spec.id, {})) for job in jobs if job.submitted_revision < plan.revision]

    def _broken(self, plan: Plan, changes: list[tuple[_Job, Allocation]]) -> str:
        """Why the plan, which makes `changes`, cannot be used; empty if it can."""
        if plan.status == "infeasible":
            return "the policy found no valid plan"
        for job, grant in changes:
            broken = self._broken_grant(job, grant)
            if broken:
                return broken
        return self._overbooked(changes)

    def _overbooked(self, changes: list[tuple[_Job, Allocation]]) -> str:
        """The first node on which the changes do not fit beside what is planned for the others; empty if none."""
        booked: dict[NodeId, Resources] = {}
        for _, grant in changes:
            for node, amount in grant.items():
                booked[node] = booked.get(node, NOTHING) + amount
        decided = {job.spec.id for job, _ in changes}
        for node, amount in booked.items():
            # A node may have been lost since the snapshot; what lay there is dropped when the grant is asked for.
            if node not in self._ledger.nodes:
                continue
            total_on = amount + self._planned.others_on(node, decided)
            if not total_on.fits_in(self._ledger.nodes[node]):
                return f"{total_on} on node '{node}', which has {self._ledger.nodes[node]}"
        return ""

    def _broken_grant(self, job: _Job, grant: Allocation) -> str:
        amount, spec = total(grant.values()), job.spec
        if not amount:
            running = job.status in ("running", "starting")
            return (
                f"nothing for job '{spec.id}', which runs and may not be paused"
                if running and not spec.preemptible
                else ""
            )
        if not amount.fits_in(spec.ceiling):
            return f"{amount} for job '{spec.id}', over its ceiling of {spec.ceiling}"
        if not spec.floor.fits_in(amount):
            return f"{amount} for job '{spec.id}', under its floor of {spec.floor}"
        if spec.worker is not None and spec.parts_of(amount) is None:
            return f"{amount} for job '{spec.id}', which is no number of its workers that it can run with"
        return ""

    # Views.

    def _view(self, job: _Job) -> JobView:
        return JobView(
            spec=job.spec,
            status=job.status,
            submitted_at=job.submitted_at,
            done_steps=job.progress.steps_done if job.progress else 0.0,
            demand=job.wanted(),
            granted={} if job.ended else self._ledger.granted(job.spec.id),
            planned=job.target,
            started_at=job.started_at,
            granted_at=job.granted_at,
            progress_at=max(job.granted_at, job.progress.at if job.progress else 0.0),
            rate_sps=job.curve.rate_sps(job.shape) if job.curve and job.shape else 0.0,
            curve=job.curve,
            granted_core_s=job.granted_core_s,
            granted_gpu_s=job.granted_gpu_s,
            accrued_at=job.accrued_at,
        )

    def _accrue(self, job: _Job, at: float) -> None:
        """Add what was held since the last call to the integrals."""
        over_s = at - job.accrued_at
        job.granted_core_s += job.held.cores * over_s
        job.granted_gpu_s += job.held.gpus * over_s
        job.accrued_at = at

    def _emit(self, command: Command, job: _Job | None) -> None:
        self._commands.append(command)
        if job is not None:
            job.tell(command)


def _widened(demand: Demand, reading: Reading) -> Demand:
    """The demand with a forecast that also says how little is known of the number of steps."""
    forecast, steps_total = demand.forecast, reading.steps_total
    if forecast is None or steps_total is None or steps_total <= reading.steps_done:
        return demand
    step_s = (forecast.finish_s - reading.elapsed_s) / (steps_total - reading.steps_done)
    std_s = hypot(forecast.std_s, max(0.0, step_s) * reading.steps_total_std)
    return replace(demand, forecast=replace(forecast, std_s=std_s))


def _subject(event: Event) -> JobId:
    """The job an event is about; the empty name if it is about none."""
    if isinstance(event, SpecChanged):
        return event.spec.id
    return JobId(getattr(event, "job", ""))
