"""The declaration of a job, and a policy's view of it."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import lt
from typing import Literal, NoReturn, get_args

from punctual.core.control import CoreWork
from punctual.core.errors import InvalidSpec
from punctual.core.fast_init import fast_init
from punctual.core.ids import JobId, NodeId
from punctual.core.loss import LossGoal
from punctual.core.resources import NOTHING, TOLERANCE, Resources, same_amount, total
from punctual.core.speed import RateCurve, SeenRate, Shape, made_shape
from punctual.core.utility import Sigmoid

#: A job without a process is *queued*: it was not launched yet, or its process is gone and it is launched again. It is
#: *starting* once its launch was asked for, *running* while its process holds something, *paused* while its process
#: holds nothing, *stopping* once it was asked to stop. From its end on it is *finished*; *failed*; *stopped*, if it was
#: asked to end before its work was done; or *turned away*, if it never ran because it may not or cannot.
EndState = Literal["finished", "failed", "stopped", "turned away"]
JobState = Literal["queued", "starting", "running", "paused", "stopping", EndState]
#: States of jobs that have ended.
ENDED: tuple[EndState, ...] = get_args(EndState)

#: Assumptions about work that no controller estimates: its margin, as a share of the deadline, and the relative
#: standard deviation of work that the user declared: trainings that share a machine cost up to a fifth more than alone.
MARGIN_FRAC, DECLARED_STD_FRAC = 0.003, 0.2
#: The largest weight that a user may give: no sum or ratio of them is infinite.
WEIGHT_MAX = 1e9

#: Default time to end after a request to stop.
STOP_GRACE_S = 60.0

#: Why a job is stopped that is to be done at its deadline: that has come, or will before the job is done.
DUE, LATE = "its deadline has come", "it would not be done by its deadline"


def stop_code(cause: str) -> str:
    """Return the code of a stop with this cause: ``due`` where that is the job's deadline."""
    return "due" if cause in (DUE, LATE) else "stopped"


#: A job's grant by node: node -> amount. Empty: the job holds nothing.
Allocation = dict[NodeId, Resources]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRules:
    """Rules for ending a job before its work is done, and the time allowed for that.

    Attributes
    ----------
    at_deadline
        Whether it trains on after its deadline, or is asked to stop in time to have made a checkpoint by then.
    on_stall
        Treatment of a job that makes no more steps: warn its user, stop it, or start it again.
    grace_s
        Seconds for its checkpoint and its handlers after the request to stop; None: the executor's default.
    """

    at_deadline: Literal["train-on", "stop"] = "train-on"
    on_stall: Literal["tell", "stop", "retry"] = "tell"
    grace_s: float | None = None


_END_RULES = EndRules()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as its user declared it.

    Attributes
    ----------
    work_steps
        Steps the job will do; None until its training loop declares them.
    goal
        Goal at which the job ends before all its steps; None: no goal.
    convergence
        Registered name of the convergence model that learns from the losses when that will be.
    deadline_s
        Seconds from submission to the deadline; None: no deadline, the job runs at its ceiling.
    floor, ceiling
        Least and most the job may hold while it runs. Of memory it holds what it has asked for, and may use no more where
        that can be enforced; none: it has not asked.
    memory_most_bytes
        Where it is started again with twice as much memory each time that it has run out of what it asked for: the most,
        of each worker for a job made of workers. None: it is not.
    expected_memory_bytes
        Memory that all its processes are expected to hold, of a job that has not asked for any; 0: not known.
    worker
        Amount of one worker, for a job made of equal workers: its grants are whole multiples of it. None: any amount
        between floor and ceiling will do.
    server
        Amount of one parameter server, for a job that has some beside its workers: its grants are whole numbers of
        both, at least one of each. Not a multiple of `worker`, so that an amount says how many there are of each.
    counts
        Numbers of workers the job can run with, ascending; empty: all whose amount lies between floor and ceiling.
        A rigid job has one.
    weight
        Weight of the job against others, above zero.
    utility
        Utility of an early end, for policies that use it; None: they derive it from the weight
        and the deadline.
    resize_cost_s
        Training time lost by one resize, in seconds.
    startup_s
        Seconds from a launch, or from a pause's end, to the first step, as far as known beforehand.
    preemptible
        Whether a policy may take everything away from the job while it runs.
    controller
        Registered name of the controller that turns its readings into demand; None: the job is never looked at
        between events and demands its ceiling.
    model
        Registered name of the performance model that learns the job's speed from its reports; None: no model.
    profile
        Speeds measured before the job was submitted.
    margin_frac
        Fraction of the deadline the controller aims to be early; None: the controller's own rule.
    n_retries
        Number of launches in a row after failures, without a new step between; None: as often as
        the scheduler does it for all jobs.
    guarantee
        Whether the job is to run only if its deadline is promised; otherwise it is turned away before it starts.
    work_core_s
        Core-seconds that the whole job takes, as far as known beforehand, of a job on a share of cores; None: it shows
        while it runs.
    budget_usd
        Dollars that it may cost on machines of pools, whatever becomes of its deadline; None: it may cost any number.
    after
        Jobs that must have finished before it is started. Its deadline counts from its submission all the same. One of
        them that ends otherwise ends it too.
    ends
        Rules for ending it before its work is done.
    """

    id: JobId
    ceiling: Resources
    floor: Resources = NOTHING
    worker: Resources | None = None
    server: Resources | None = None
    counts: tuple[int, ...] = ()
    work_steps: float | None = None
    goal: LossGoal | None = None
    convergence: str = "inverse-power"
    deadline_s: float | None = None
    weight: float = 1.0
    utility: Sigmoid | None = None
    resize_cost_s: float = 0.0
    startup_s: float = 0.0
    preemptible: bool = False
    controller: str | None = "remaining-cost"
    model: str | None = None
    profile: tuple[SeenRate, ...] = ()
    margin_frac: float | None = None
    n_retries: int | None = None
    guarantee: bool = False
    work_core_s: float | None = None
    budget_usd: float | None = None
    after: tuple[JobId, ...] = ()
    ends: EndRules = _END_RULES
    memory_most_bytes: int | None = None
    expected_memory_bytes: int = 0

    def __post_init__(self) -> None:
        # Texts of errors are built only when they are raised: traces have hundreds of thousands of jobs.
        if not self.id:
            self._refuse("`id` must not be empty", repr(self.id), "Give the job a name.")
        if self.work_steps is not None and not self.work_steps > 0:
            must, remedy = "`work_steps` must be above zero", "Declare how many steps the job will do."
            self._refuse(must, f"{self.work_steps} steps", remedy, "steps")
        if self.deadline_s is not None and not 0 < self.deadline_s < inf:
            must = "`deadline` must be later than the submission"
            remedy = "Give a duration (`--deadline 90m`) or a later time."
            self._refuse(must, f"{self.deadline_s} s", remedy, "deadline")
        if not self.ceiling:
            self._refuse("`ceiling` must not be empty", self.ceiling, "Allow some cores.", "cores")
        if not self.floor.fits_in(self.ceiling):
            got = f"{self.floor} over {self.ceiling}"
            self._refuse("`floor` must fit in `ceiling`", got, "Lower the floor.", "cores")
        if not self.weight > 0:
            self._refuse("`weight` must be above zero", self.weight, "Give a positive weight.", "weight")
        if self.id in self.after:
            self._refuse("`after` must name other jobs", "the job itself", "Leave its own name out.", "after")
        if self.n_retries is not None and self.n_retries < 0:
            remedy = "Give a number of retries; 0 launches a job once."
            self._refuse("`n_retries` must be 0 or more", self.n_retries, remedy, "retries")
        self._check_promise()
        self._check_workers()

    def _check_promise(self) -> None:
        if self.margin_frac is not None and not 0 <= self.margin_frac < 0.5:
            remedy = "Give a share of the deadline, as 0.001."
            self._refuse("`margin` must be from 0 to below 0.5", self.margin_frac, remedy, "margin")
        if self.guarantee and self.deadline_s is None:
            remedy = "Give a deadline (`--deadline 90m`), or leave `--guarantee` out."
            self._refuse("`guarantee` needs a deadline", "none", remedy, "guarantee")
        if self.work_core_s is not None and not 0 < self.work_core_s < inf:
            must, remedy = "`work` must be finite and above zero", "Give the core time of the whole job (`--work 30m`)."
            self._refuse(must, f"{self.work_core_s} core-s", remedy, "work")

        if self.budget_usd is not None and not 0 < self.budget_usd < inf:
            remedy = "Give dollars (`--budget 40`), or leave it out."
            self._refuse("`budget` must be finite and above zero", f"${self.budget_usd:g}", remedy, "budget_usd")
        if self.budget_usd is not None and not self.preemptible:
            must, remedy = "`budget` needs a job that may be paused once it is spent", "Give `--preemptible` too."
            self._refuse(must, "one that may not", remedy, "budget_usd")

    def _check_workers(self) -> None:
        if self.counts and self.worker is None:
            self._refuse("`counts` needs `worker`", "no worker", "Say what one worker holds.")
        if self.server is not None and (self.worker is None or not self.server):
            must = "`server` must hold something, and needs `worker`"
            self._refuse(must, self.server, "Say what a worker and a server hold.")
        if self.worker is None:
            return
        if not self.worker:
            self._refuse("`worker` must hold something", self.worker, "Give it a core or a GPU.")
        if self.counts and not (self.counts[0] > 0 and all(map(lt, self.counts, self.counts[1:]))):
            self._refuse("`counts` must be above zero and ascending", self.counts, "Sort them and leave out 0.")
        if not self.worker_counts():
            must = "a number of workers must lie between floor and ceiling"
            remedy = "Make floor and ceiling multiples of `worker`."
            self._refuse(must, f"{self.floor} to {self.ceiling}", remedy)

    def with_memory(self, memory_bytes: int) -> "JobSpec":
        """Return the same job, asking for `memory_bytes` of memory, for each worker if it has workers."""
        n_least = n_most = 1
        worker, unit = self.worker, self.unit
        if worker is not None and unit is not None:
            n_least, n_most = self.floor.n_times(worker), self.ceiling.n_times(unit)
            worker = replace(worker, memory_bytes=memory_bytes)
        floor = replace(self.floor, memory_bytes=memory_bytes * n_least)
        ceiling = replace(self.ceiling, memory_bytes=memory_bytes * n_most)
        return replace(self, worker=worker, floor=floor, ceiling=ceiling)

    def with_more_memory(self) -> "JobSpec | None":
        """Return the job to start again after it ran out of memory; None: do not start it again."""
        if self.memory_most_bytes is None or self.asked_memory_bytes >= self.memory_most_bytes:
            return None
        return self.with_memory(min(2 * self.asked_memory_bytes, self.memory_most_bytes))

    @property
    def asked_memory_bytes(self) -> int:
        """Memory that the job asks for, for each worker if it has workers; 0: it does not ask."""
        return (self.worker or self.floor).memory_bytes

    @property
    def unit(self) -> Resources | None:
        """Unit in which the job is counted without weighing workers against servers: a worker, with a server if any."""
        return self.worker if self.worker is None or self.server is None else self.worker + self.server

    def worker_counts(self) -> tuple[int, ...]:
        """Return the numbers of workers the job can run with, ascending; empty for a job without workers."""
        if self.worker is None:
            return ()
        worker, largest = self.worker, self.ceiling.n_times(self.worker)
        counts: Sequence[int] = self.counts or range(1, largest + 1)
        if counts and counts[-1] > largest:
            counts = [n for n in counts if n <= largest]
        if counts and self.floor.fits_in(worker * counts[0]):
            return tuple(counts)
        # If one number of workers reaches the floor, so do all larger ones.
        return tuple(counts[bisect_left(counts, True, key=lambda n: self.floor.fits_in(worker * n)) :])

    def parts_of(self, amount: Resources) -> tuple[int, int] | None:
        """Return the workers and servers in `amount`; None if the job cannot run with such numbers."""
        if self.worker is None:
            return None
        if self.server is None:  # asked at every plan for every job: no need to try all numbers
            n = _multiple(amount, NOTHING, self.worker)
            is_listed = n is not None and (not self.counts or n in self.counts)
            return (n, 0) if n and is_listed and self._bounds_allow(self.worker * n) else None
        for n_workers in self.worker_counts():
            n_servers = _multiple(amount, self.worker * n_workers, self.server)
            if n_servers is not None:
                return n_workers, n_servers
        return None

    def _bounds_allow(self, amount: Resources) -> bool:
        return self.floor.fits_in(amount) and amount.fits_in(self.ceiling)

    def _refuse(self, must: str, got: object, remedy: str, option: str | None = None) -> NoReturn:
        raise InvalidSpec(must, str(got), f"job '{self.id}'", remedy, option=option)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as a policy sees it; instants in seconds on the scheduler's clock.

    Attributes
    ----------
    demand
        Demand of the job's controller; without a controller, or before its first tick, the job's ceiling.
    granted, planned
        Amounts that the job holds now, and that the last plan gives it.
    started_at
        Instant of its first start; None: it has not run yet.
    granted_at
        Instant from which it has held this amount.
    done_steps, progress_at
        Steps done at the last report, or at the last checkpoint while the job does not train, and the instant of the report.
    steps_before
        Steps that its process before had done, as long as the present one has reported none; 0: it has, or it is the first.
    steps_total, steps_total_std
        Steps in total that the training declared, or that are expected until its goal, and their standard deviation;
        None: those of the spec are all that is known.
    landed
        Whether all its work is done; its process has still to end.
    work
        Remaining work of a job on a share of cores, at instant `accrued_at`; None: unknown. See `core_s_left`.
    promised_until_at
        Deadline that a plan has promised; None: no promise.
    resident
        Memory that it holds on each node, or is taken to hold, also while it is paused; empty: nothing is known.
    expected_memory_bytes
        Memory that a job is expected to hold once it is started, if it has not asked for any; 0: not known.
    rate_sps
        Expected steps per second with its present grant; 0 if unknown.
    curve
        Its speed with other amounts; None for a job without a performance model.
    granted_core_s, granted_gpu_s
        Core-seconds and device-seconds the job has held so far, up to `accrued_at`.
    """

    spec: JobSpec
    status: JobState
    submitted_at: float
    done_steps: float
    demand: Resources
    granted: Allocation
    planned: Allocation = field(default_factory=dict)
    started_at: float | None = None
    granted_at: float = 0.0
    progress_at: float = 0.0
    rate_sps: float = 0.0
    curve: RateCurve | None = None
    granted_core_s: float = 0.0
    granted_gpu_s: float = 0.0
    accrued_at: float = 0.0
    steps_total: float | None = None
    steps_total_std: float = 0.0
    landed: bool = False
    work: CoreWork | None = None
    promised_until_at: float | None = None
    steps_before: float = 0.0
    resident: Mapping[NodeId, int] = field(default_factory=dict)
    expected_memory_bytes: int = 0

    @property
    def id(self) -> JobId:
        return self.spec.id

    @property
    def deadline_at(self) -> float | None:
        """Instant of the deadline; None without one."""
        return None if self.spec.deadline_s is None else self.submitted_at + self.spec.deadline_s

    def remaining_steps(self, at: float) -> float | None:
        """Return the steps expected to remain at instant `at`; None if the job has not said its total."""
        steps_total = self.spec.work_steps if self.steps_total is None else self.steps_total
        if steps_total is None:
            return None
        over_s = at - self.progress_at
        left = steps_total - self.done_steps - (self.rate_sps * over_s if over_s > 0 else 0.0)
        return left if left > 0 else 0.0  # not by `max`: policies ask this of all jobs at every plan

    def with_deadline(self, deadline_s: float) -> "JobView":
        """Return the job with another deadline, in seconds from its submission, and without a promise.

        The time before the deadline at which its work is due grows with the deadline. It shrinks only if the work is that
        declared: a controller's margin may be a constant or a share of the deadline.
        """
        before_s, work = self.spec.deadline_s, self.work
        spec = replace(self.spec, deadline_s=deadline_s)
        if work is None or work == declared_work(self.spec, self.granted_core_s):
            work = declared_work(spec, self.granted_core_s)
        elif before_s is not None:
            slack_s = work.slack_s * max(1.0, deadline_s / before_s)
            waits_s = before_s - work.due_s - work.slack_s
            work = replace(work, due_s=deadline_s - waits_s - slack_s, slack_s=slack_s)
        return replace(self, spec=spec, work=work, promised_until_at=None)

    def core_s_left(self, at: float) -> float | None:
        """Return the core-seconds that the job still needs from instant `at` on; None if unknown."""
        if self.work is None:
            return None
        held_cores = total(self.granted.values()).cores
        return max(0.0, self.work.core_s - held_cores * max(0.0, at - self.accrued_at))


def awaits_promise(spec: JobSpec, status: JobState, started_at: float | None) -> bool:
    """Whether a job may run only once its deadline is promised, and has not run yet (it may have the promise)."""
    return spec.guarantee and status == "queued" and started_at is None


def declared_work(spec: JobSpec, granted_core_s: float) -> CoreWork | None:
    """Return the declared work that remains after `granted_core_s`, on a share of cores; None if it is unknown."""
    if spec.work_core_s is None or spec.deadline_s is None or granted_core_s >= spec.work_core_s:
        return None
    margin_frac = MARGIN_FRAC if spec.margin_frac is None else spec.margin_frac
    core_s = spec.work_core_s - granted_core_s
    return CoreWork(
        core_s=core_s,
        std_core_s=DECLARED_STD_FRAC * core_s,
        usable_cores=spec.ceiling.cores,
        due_s=spec.deadline_s * (1.0 - margin_frac) - spec.startup_s,
        slack_s=spec.deadline_s * margin_frac,
    )


def shape_of(spec: JobSpec, allocation: Allocation, devices: Mapping[NodeId, str]) -> Shape:
    """Return the shape of `allocation` for a job; `devices` is the kind of device of each node."""
    amount = total(allocation.values())
    kinds = {devices[node] for node in allocation if devices.get(node)}
    n_workers, n_servers = _parts(spec, amount)
    return made_shape(
        n_workers=n_workers,
        cores=amount.cores,
        n_nodes=max(1, len(allocation)),
        device="+".join(sorted(kinds)) if len(kinds) > 1 else next(iter(kinds), ""),
        n_servers=n_servers,
    )


def _parts(spec: JobSpec, amount: Resources) -> tuple[int, int]:
    """Return workers and servers; of an amount that a lost node left incomplete, as many workers as fit in it."""
    worker = spec.worker
    if worker is None:
        return 1, 0
    if spec.server is not None:
        return spec.parts_of(amount) or (0, 0)
    if worker.gpus:
        return int((amount.gpus + TOLERANCE) // worker.gpus), 0
    return round(amount.ratio_to(worker)), 0


def _multiple(amount: Resources, base: Resources, part: Resources) -> int | None:
    """Return how many `part`s `amount` holds beside `base`, at least 1; None if it is no multiple."""
    if not base.fits_in(amount):
        return None
    rest = amount - base
    n = round(rest.ratio_to(part))
    return n if n >= 1 and same_amount(rest, part * n) else None
