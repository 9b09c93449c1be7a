"""History of a cluster: the histories of its jobs, and what belongs to none of them: capacity, queue, plans."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from punctual.core.commands import LaunchJob, RejectJob, RequestPlan, ResizeJob, WarnUser
from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.core.events import JobSubmitted, Message, NodeJoined, NodeLost, PlanProposed, SteeringResumed
from punctual.core.ids import JobId, NodeId
from punctual.core.lifecycle import about, folds_in
from punctual.core.resources import Resources
from punctual.history.decisions import Decision, Gaps, decision_of, gap_frac
from punctual.history.job import Curves, JobHistory, JobRecord
from punctual.history.level import Level, LevelCourse
from punctual.history.summary import ClusterSummary, ClusterTotals, PrivateTime, summarize_cluster

__all__ = ["ClusterCourse", "ClusterHistory", "ClusterSummary", "JobRecord", "Segment"]


@dataclass(frozen=True, slots=True)
class Segment:
    """One bar of a Gantt chart: a job's unchanged grant from `from_at` to `until_at`."""

    job: JobId
    n_nodes: int
    n_devices: float
    cores: float
    from_at: float
    until_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCourse:
    """The cluster over time.

    Attributes
    ----------
    n_queued
        Jobs submitted, not ended, that hold nothing: new ones, paused ones, those that are started again.
    n_holding
        Jobs that hold something.
    devices, cores
        Held by all jobs.
    devices_capacity
        Offered by all nodes.
    """

    n_queued: LevelCourse
    n_holding: LevelCourse
    devices: LevelCourse
    cores: LevelCourse
    devices_capacity: LevelCourse


class ClusterHistory:
    """Histories of all jobs of a journal, live or simulated; a listener of an engine or a simulation (`add`).

    A message costs constant time (a lost node: time proportional to the jobs that hold something), and nothing of it
    is kept without one of the flags: memory is some hundred bytes per job.

    Parameters
    ----------
    details
        Keep every change of a job's grant, for a Gantt chart, and every decision. Memory then grows with their number.
    curves
        Keep all that `JobHistory` can tell; memory then grows with the number of messages.
    n_points
        Largest number of points of each course over time.

    Raises
    ------
    InvalidSpec
        `n_points` is not above zero.

    Notes
    -----
    *Time.* Amounts are integrated on the cluster's clock: the latest instant that any message has named. A message
    whose instant lies before it counts as of now; submission, start, landing and end keep the instants they name.
    """

    def __init__(self, *, details: bool = False, curves: bool = False, n_points: int = 1000) -> None:
        check_above_zero("a history of a cluster", n_points=n_points)
        #: The histories by job: of a name that was submitted again the last one.
        self.histories: dict[JobId, JobHistory] = {}
        #: All decisions; empty without `details`.
        self.decisions: list[Decision] = []
        self._curves = curves
        self._holding: dict[JobId, JobHistory] = {}
        self._nodes: dict[NodeId, Resources] = {}
        self._segments: list[Segment] | None = [] if details else None
        self._now = 0.0
        self._n_messages = 0
        #: Submitted and not ended; those of them that hold nothing; those that hold something.
        self._n_present, self._n_queued, self._n_holding = Level(n_points), Level(n_points), Level(n_points)
        self._devices, self._cores = Level(n_points), Level(n_points)
        self._devices_capacity, self._cores_capacity = Level(n_points), Level(n_points)
        #: Integral of the number of jobs in the system, at each submission; over its life for a job that has ended.
        self._present_s: dict[JobId, float] = {}
        #: Instant and capacity integrals (devices, cores) at the first submission, and at the last end.
        self._opened: tuple[float, float, float] | None = None
        self._closed = (0.0, 0.0, 0.0)
        self._requested_at: float | None = None
        self._n_rounds = self._n_proposed = self._n_plans_refused = 0
        self._decision_total_s = self._decision_max_s = 0.0
        #: Proven gap of the plan in force; plans, those with a proven gap, and the sum and the largest of these.
        self._gap_frac: float | None = None
        self._n_plans = self._n_proven = 0
        self._gap_total = self._gap_max = 0.0

    def add(self, message: Message) -> None:
        """Take the next message."""
        if message.at > self._now or not self._n_messages:
            self._now = message.at
        self._n_messages += 1
        if (fold := self._FOLDS.get(type(message))) is not None:
            fold(self, message)

    def jobs(self) -> list[JobRecord]:
        """Return the records of all submitted jobs, in the order of submission."""
        present_s = self._n_present.integral(self._now)
        return [self._record(job, present_s) for job in self.histories.values()]

    def job(self, id: JobId) -> JobRecord:
        """Return the record of one job; raise `KeyError` if it was not submitted."""
        return self._record(self.histories[id], self._n_present.integral(self._now))

    def gaps(self) -> Gaps:
        """Return the proven gaps of all plans so far."""
        mean = self._gap_total / self._n_proven if self._n_proven else None
        return Gaps(self._n_plans, self._n_proven, mean, self._gap_max if self._n_proven else None)

    def summary(
        self,
        *,
        alone_s: Mapping[JobId, float] | None = None,
        private_s: PrivateTime | None = None,
        least_device_s: Mapping[JobId, float] | None = None,
    ) -> ClusterSummary:
        """Summarise all jobs; for the arguments see `summarize_cluster`."""
        return summarize_cluster(
            self.jobs(), self._totals(), alone_s=alone_s, private_s=private_s, least_device_s=least_device_s
        )

    def course(self, n_points: int | None = None) -> ClusterCourse:
        """Return the cluster over time, each course in at most `n_points` points, thinned as in `Level`."""

        def of(level: Level) -> LevelCourse:
            return level.course(self._now, n_points)

        return ClusterCourse(
            n_queued=of(self._n_queued),
            n_holding=of(self._n_holding),
            devices=of(self._devices),
            cores=of(self._cores),
            devices_capacity=of(self._devices_capacity),
        )

    def segments(self) -> list[Segment]:
        """Return the grants of all jobs over time, in order of their ends; present ones come last.

        Raises
        ------
        InvalidSpec
            The history was made without `details`.
        """
        if self._segments is None:
            raise InvalidSpec(
                "a history must keep segments", "one without", "a history of a cluster", "Make it with `details=True`."
            )
        return [*self._segments, *(self._segment(job) for job in self._holding.values() if self._now > job.accrued_at)]

    # Folds.

    def _take_of_job(self, message: Message) -> None:
        if self._segments is not None and isinstance(message, LaunchJob | ResizeJob | RejectJob):
            self.decisions.append(decision_of(message, self._gap_frac))
        id = about(message)
        if id is not None and (job := self.histories.get(id)) is not None:
            self._take(job, message)

    def _take(self, job: JobHistory, message: Message) -> None:
        """Fold a message about the job, or one about all jobs, and the consequences for the cluster."""
        granted, end, devices, cores, since_at = job.granted, job.end, job.devices, job.cores, job.accrued_at
        job.fold(message, self._now)
        if job.granted is not granted:
            if self._segments is not None and granted and self._now > since_at:
                self._segments.append(Segment(job.id, len(granted), devices, cores, since_at, self._now))
            self._change_held(job, devices, cores)
        if job.end is not end:
            self._present_s[job.id] = self._n_present.integral(self._now) - self._present_s[job.id]
            self._count_present(-1)
            self._closed = self._mark()

    def _fold_job_submitted(self, event: JobSubmitted) -> None:
        id = event.spec.id
        known = self.histories.get(id)
        if known is not None and known.is_open:
            return  # a second job of the name is turned away
        self.histories[id] = job = JobHistory(id, Curves() if self._curves else None)
        job.take(event, self._now)
        self._present_s[id] = self._n_present.integral(self._now)
        self._opened = self._opened or self._mark()
        self._count_present(1)

    def _fold_node_joined(self, event: NodeJoined) -> None:
        self._nodes[event.node] = event.capacity
        self._set_capacity()

    def _fold_node_lost(self, event: NodeLost) -> None:
        self._nodes.pop(event.node, None)
        self._set_capacity()
        for job in [job for job in self._holding.values() if event.node in job.granted]:
            self._take(job, event)

    def _fold_steering_resumed(self, event: SteeringResumed) -> None:
        for job in [job for job in self.histories.values() if job.is_open]:
            self._take(job, event)

    def _fold_request_plan(self, command: RequestPlan) -> None:
        self._n_rounds += 1
        self._requested_at = command.at

    def _fold_plan_proposed(self, event: PlanProposed) -> None:
        if self._requested_at is not None:
            took_s = max(0.0, event.at - self._requested_at)
            self._requested_at = None
            self._n_proposed += 1
            self._decision_total_s += took_s
            self._decision_max_s = max(self._decision_max_s, took_s)
        if event.plan is None:
            return
        self._n_plans += 1
        self._gap_frac = gap_frac(event.plan)
        if self._gap_frac is not None:
            self._n_proven += 1
            self._gap_total += self._gap_frac
            self._gap_max = max(self._gap_max, self._gap_frac)

    def _fold_warn_user(self, command: WarnUser) -> None:
        self._n_plans_refused += command.reason.code == "plan-refused"
        self._take_of_job(command)

    _FOLDS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        **dict.fromkeys(JobHistory.KINDS, _take_of_job),
        **folds_in(vars()),
    }

    # Levels.

    def _change_held(self, job: JobHistory, devices: float, cores: float) -> None:
        """Count a changed grant; `devices` and `cores` are those of the one before."""
        if job.granted:
            self._holding[job.id] = job
        else:
            self._holding.pop(job.id, None)
        # All grants are empty: drop the rounding errors of earlier sums.
        self._cores.set(self._now, self._cores.value - cores + job.cores if self._holding else 0.0)
        self._devices.set(self._now, self._devices.value - devices + job.devices)
        self._n_holding.set(self._now, len(self._holding))
        self._count_present(0)

    def _count_present(self, change: int) -> None:
        self._n_present.set(self._now, self._n_present.value + change)
        self._n_queued.set(self._now, self._n_present.value - len(self._holding))

    def _segment(self, job: JobHistory) -> Segment:
        return Segment(job.id, len(job.granted), job.devices, job.cores, job.accrued_at, self._now)

    def _record(self, job: JobHistory, present_s: float) -> JobRecord:
        until_at = self._now if job.end is None else job.end.at
        over_life_s = self._present_s[job.id] if job.end is not None else present_s - self._present_s[job.id]
        life_s = until_at - job.submitted_at
        return job.record(self._now, max(1.0, over_life_s / life_s) if life_s > 0 else 1.0)

    def _set_capacity(self) -> None:
        self._devices_capacity.set(self._now, sum(capacity.gpus for capacity in self._nodes.values()))
        self._cores_capacity.set(self._now, sum(capacity.cores for capacity in self._nodes.values()))

    def _mark(self) -> tuple[float, float, float]:
        return self._now, self._devices_capacity.integral(self._now), self._cores_capacity.integral(self._now)

    def _totals(self) -> ClusterTotals:
        closed = self._mark() if self._n_present.value else self._closed
        opened = self._opened or closed
        makespan_s, device_s, core_s = (last - first for first, last in zip(opened, closed, strict=True))
        return ClusterTotals(
            makespan_s=makespan_s,
            capacity_device_s=device_s,
            capacity_core_s=core_s,
            n_rounds=self._n_rounds,
            n_plans_refused=self._n_plans_refused,
            decision_mean_s=self._decision_total_s / self._n_proposed if self._n_proposed else None,
            decision_max_s=self._decision_max_s,
        )
