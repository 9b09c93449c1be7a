"""Figures of one job among many."""

from dataclasses import dataclass, field
from typing import Literal

from punctual.core.fast_init import fast_init
from punctual.core.ids import JobId
from punctual.core.job import Allocation, EndState, JobSpec

#: Outcome of a job; *unfinished*: the record ends before the job does.
Outcome = Literal[EndState, "unfinished"]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Figures of one job. Instants in seconds; "so far" for a job that is unfinished.

    Attributes
    ----------
    submitted_at, started_at, landed_at, ended_at
        Submission, first start, landing, end of its process; None: not yet, or never.
    deadline_s, weight
        Values in force at landing (or its end, or now); later changes do not count.
    jct_s
        Job completion time: landing − submission; None for a job that has not landed.
    on_time
        ``landed_at - submitted_at <= deadline_s``. A job that ended without landing, or is past its deadline, is not
        on time; None: no deadline, or still undecided.
    tardiness_s
        ``max(0, landed_at - submitted_at - deadline_s)``; None without landing or deadline.
    queued_s
        First start − submission; None if it never started.
    waiting_s
        All time between submission and end in which it held nothing: `queued_s`, and every pause and restart.
    device_s, core_s
        Integral of the devices, the cores, it held until its end.
    n_resizes
        How often what it held changed to something else, a move to another node included. Starting, pausing, going on
        and ending are none.
    n_preemptions
        Number of resizes to nothing while it ran.
    n_failures
        Ends of its process that were no success, the last included, and losses of every node it was on.
    n_grants_failed
        Launches and resizes that had no effect.
    steps_done, steps_total
        Last reported values; `steps_total` is the declared work before a report names it, None: never declared.
    work_lost_steps
        Steps that had to be done again: the sum of all drops of the reported count. What was redone before the first
        report after a restart is not seen.
    n_present
        Jobs in the system (submitted, not ended) on average over its life, itself included.
    """

    id: JobId
    status: Outcome
    submitted_at: float
    started_at: float | None
    landed_at: float | None
    ended_at: float | None
    deadline_s: float | None
    weight: float
    jct_s: float | None
    on_time: bool | None
    tardiness_s: float | None
    queued_s: float | None
    waiting_s: float
    device_s: float
    core_s: float
    n_resizes: int
    n_preemptions: int
    n_failures: int
    n_grants_failed: int
    steps_done: float
    steps_total: float | None
    work_lost_steps: float
    n_present: float

    @property
    def training_s(self) -> float | None:
        """First start to landing, with every pause between."""
        if self.landed_at is None or self.started_at is None:
            return None
        return self.landed_at - self.started_at

    @property
    def done_frac(self) -> float:
        """Share of its work that is done; 0 if unknown."""
        if self.landed_at is not None:
            return 1.0
        return min(1.0, self.steps_done / self.steps_total) if self.steps_total else 0.0


@dataclass(slots=True)
class JobCourse:
    """State folded from the messages about one job, for `ClusterRecord`."""

    id: JobId
    submitted_at: float
    deadline_s: float | None
    weight: float
    steps_total: float | None
    #: Until when amounts and waiting are counted: the last change of what it holds.
    accrued_at: float
    #: Integral of the number of jobs in the system, at submission; then over its life.
    present_before_s: float
    present_s: float | None = None
    status: Outcome = "unfinished"
    started_at: float | None = None
    landed_at: float | None = None
    ended_at: float | None = None
    #: Whether it has a process: from a start to a failure. Answers about one that is gone change nothing.
    alive: bool = False
    #: Its process went with its node, and its failure is counted already.
    lost: bool = False
    #: Number of the last answer; a late one has a lower number.
    request: int = 0
    granted: Allocation = field(default_factory=dict)
    devices: float = 0
    cores: float = 0.0
    device_s: float = 0.0
    core_s: float = 0.0
    waiting_s: float = 0.0
    n_resizes: int = 0
    n_preemptions: int = 0
    n_failures: int = 0
    n_grants_failed: int = 0
    steps_done: float = 0.0
    work_lost_steps: float = 0.0
    #: Earlier deadlines and weights with the instant until which they were in force, oldest first.
    earlier: tuple[tuple[float, float | None, float], ...] = ()

    def declare(self, at: float, spec: JobSpec) -> None:
        """Record a changed declaration."""
        if (spec.deadline_s, spec.weight) != (self.deadline_s, self.weight):
            self.earlier = (*self.earlier, (at, self.deadline_s, self.weight))
            self.deadline_s, self.weight = spec.deadline_s, spec.weight

    def accrue(self, at: float) -> None:
        """Add its grant up to `at` to the integrals."""
        self.waiting_s, self.device_s, self.core_s = self._amounts(at)
        self.accrued_at = at

    def hold(self, at: float, granted: Allocation) -> None:
        """Record that it holds `granted` from `at` on."""
        self.accrue(at)
        if self.granted and granted and differs(self.granted, granted):
            self.n_resizes += 1
        self.granted = granted
        self.devices = sum([amount.gpus for amount in granted.values()])
        self.cores = sum([amount.cores for amount in granted.values()], 0.0)

    def report(self, steps_done: float, steps_total: float | None) -> None:
        """Record the reported counts of steps."""
        if steps_done < self.steps_done:
            self.work_lost_steps += self.steps_done - steps_done
        self.steps_done = steps_done
        if steps_total is not None:
            self.steps_total = steps_total

    def record(self, now: float, present_s: float) -> JobRecord:
        """Return the job's figures; `present_s` is the integral of the number of jobs in the system up to `now`."""
        deadline_s, weight = self._in_force(self._judged_at(now))
        waiting_s, device_s, core_s = self._amounts(now)
        jct_s = None if self.landed_at is None else self.landed_at - self.submitted_at
        late_s = None if jct_s is None or deadline_s is None else jct_s - deadline_s
        return JobRecord(
            id=self.id,
            status=self.status,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            landed_at=self.landed_at,
            ended_at=self.ended_at,
            deadline_s=deadline_s,
            weight=weight,
            jct_s=jct_s,
            on_time=None if deadline_s is None else self._on_time(now, deadline_s, late_s),
            tardiness_s=None if late_s is None else max(0.0, late_s),
            queued_s=None if self.started_at is None else self.started_at - self.submitted_at,
            waiting_s=waiting_s,
            device_s=device_s,
            core_s=core_s,
            n_resizes=self.n_resizes,
            n_preemptions=self.n_preemptions,
            n_failures=self.n_failures,
            n_grants_failed=self.n_grants_failed,
            steps_done=self.steps_done,
            steps_total=self.steps_total,
            work_lost_steps=self.work_lost_steps,
            n_present=self._n_present(now, present_s),
        )

    def _amounts(self, at: float) -> tuple[float, float, float]:
        """Seconds without anything, device-seconds and core-seconds, up to `at` or the end."""
        if self.ended_at is not None:
            return self.waiting_s, self.device_s, self.core_s
        by_s = at - self.accrued_at
        if not self.granted:
            return self.waiting_s + by_s, self.device_s, self.core_s
        return self.waiting_s, self.device_s + self.devices * by_s, self.core_s + self.cores * by_s

    def _judged_at(self, now: float) -> float:
        if self.landed_at is not None:
            return self.landed_at
        return now if self.ended_at is None else self.ended_at

    def _in_force(self, at: float) -> tuple[float | None, float]:
        for until_at, deadline_s, weight in self.earlier:
            if at < until_at:
                return deadline_s, weight
        return self.deadline_s, self.weight

    def _on_time(self, now: float, deadline_s: float, late_s: float | None) -> bool | None:
        if late_s is not None:
            return late_s <= 0
        undecided = self.ended_at is None and now - self.submitted_at <= deadline_s
        return None if undecided or self.status == "stopped" else False

    def _n_present(self, now: float, present_s: float) -> float:
        life_s = (now if self.ended_at is None else self.ended_at) - self.submitted_at
        over_life_s = present_s - self.present_before_s if self.present_s is None else self.present_s
        return max(1.0, over_life_s / life_s) if life_s > 0 else 1.0


def differs(before: Allocation, after: Allocation) -> bool:
    """Whether the two lie on other nodes, or differ by more than rounding."""
    if before.keys() != after.keys():
        return True
    return any(not (amount.fits_in(after[node]) and after[node].fits_in(amount)) for node, amount in before.items())
