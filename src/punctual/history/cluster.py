"""Record of a cluster: reads a journal message by message, and gives figures of each job and of all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from punctual.core.commands import RejectJob, RequestPlan, WarnUser
from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.lifecycle import end_state
from punctual.core.protocols import Message
from punctual.core.resources import Resources
from punctual.history.job import JobCourse, JobRecord
from punctual.history.level import Level, LevelCourse
from punctual.history.summary import ClusterSummary, ClusterTotals, PrivateTime, summarize_cluster

__all__ = ["ClusterCourse", "ClusterRecord", "ClusterSummary", "JobRecord", "Segment"]


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
    devices_capacity, cores_capacity
        Offered by all nodes.
    """

    n_queued: LevelCourse
    n_holding: LevelCourse
    devices: LevelCourse
    cores: LevelCourse
    devices_capacity: LevelCourse
    cores_capacity: LevelCourse


class ClusterRecord:
    """Folds messages, live or simulated, into figures; a listener of an engine or a simulation (`add`).

    A message costs constant time (a lost node: time proportional to the jobs that hold something), and nothing of it
    is kept: memory is some hundred bytes per job.

    Parameters
    ----------
    segments
        Keep every change of a job's grant, for a Gantt chart. Memory then grows with the number of changes.
    n_points
        Largest number of points of each course over time.

    Raises
    ------
    InvalidSpec
        `n_points` is not above zero.

    Notes
    -----
    *Time.* Amounts are integrated on the record's clock: the latest instant that any message has named. A message
    whose instant lies before it counts as of now; submission, start, landing and end keep the instants they name.

    *What a job holds* is what the answers say (`JobStarted`, `GrantApplied`, `GrantFailed`), never what was asked for;
    a lost node takes what lay there. An answer about a process that is gone, or with a lower request number than one
    before it, changes nothing.

    *When a job ends.* See `punctual.core.lifecycle.ended_by`: a failure that may be retried ends nothing, and the job
    waits until it is launched again, or a `RejectJob` follows.
    """

    def __init__(self, *, segments: bool = False, n_points: int = 1000) -> None:
        check_above_zero("a record of a cluster", n_points=n_points)
        self._jobs: dict[JobId, JobCourse] = {}
        self._holding: dict[JobId, JobCourse] = {}
        self._nodes: dict[NodeId, Resources] = {}
        self._segments: list[Segment] | None = [] if segments else None
        self._now = 0.0
        self._n_messages = 0
        #: Submitted and not ended; those of them that hold nothing; those that hold something.
        self._n_present, self._n_queued, self._n_holding = Level(n_points), Level(n_points), Level(n_points)
        self._devices, self._cores = Level(n_points), Level(n_points)
        self._devices_capacity, self._cores_capacity = Level(n_points), Level(n_points)
        #: Instant and capacity integrals (devices, cores) at the first submission, and at the last end.
        self._opened: tuple[float, float, float] | None = None
        self._closed = (0.0, 0.0, 0.0)
        self._requested_at: float | None = None
        self._n_rounds = self._n_plans = self._n_plans_refused = 0
        self._decision_total_s = self._decision_max_s = 0.0
        self._folds: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            SpecChanged: self._spec_changed,
            JobStarted: self._job_started,
            GrantApplied: self._grant_applied,
            GrantFailed: self._grant_failed,
            ProgressReported: self._progress_reported,
            JobFinished: self._job_finished,
            JobFailed: self._job_failed,
            SteeringResumed: self._steering_resumed,
            NodeJoined: self._node_joined,
            NodeLost: self._node_lost,
            PlanProposed: self._plan_proposed,
            RejectJob: self._job_rejected,
            RequestPlan: self._plan_requested,
            WarnUser: self._user_warned,
        }

    def add(self, message: Message) -> None:
        """Take the next message."""
        if message.at > self._now or not self._n_messages:
            self._now = message.at
        self._n_messages += 1
        fold = self._folds.get(type(message))
        if fold is not None:
            fold(message)

    def jobs(self) -> list[JobRecord]:
        """Return the records of all submitted jobs, in the order of submission."""
        present_s = self._n_present.integral(self._now)
        return [job.record(self._now, present_s) for job in self._jobs.values()]

    def job(self, id: JobId) -> JobRecord:
        """Return the record of one job; raise `KeyError` if it was not submitted."""
        return self._jobs[id].record(self._now, self._n_present.integral(self._now))

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
            cores_capacity=of(self._cores_capacity),
        )

    def segments(self) -> list[Segment]:
        """Return the grants of all jobs over time, in order of their ends; present ones come last.

        Raises
        ------
        InvalidSpec
            The record was made without `segments`.
        """
        if self._segments is None:
            raise InvalidSpec(
                "a record must keep segments", "one without", "a record of a cluster", "Make it with `segments=True`."
            )
        held = (self._segment(job) for job in self._holding.values())
        return [*self._segments, *(segment for segment in held if segment.until_at > segment.from_at)]

    # Folds of events.

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec = event.spec
        known = self._jobs.get(spec.id)
        if known is not None and known.ended_at is None:
            return  # a second job of the name is turned away
        job = JobCourse(
            id=spec.id,
            submitted_at=event.at,
            deadline_s=spec.deadline_s,
            weight=spec.weight,
            steps_total=spec.work_steps,
            accrued_at=self._now,
            present_before_s=self._n_present.integral(self._now),
        )
        self._jobs[spec.id] = job
        self._opened = self._opened or self._mark()
        self._enter(job)

    def _spec_changed(self, event: SpecChanged) -> None:
        job = self._jobs.get(event.spec.id)
        if job is not None:
            job.declare(event.at, event.spec)

    def _job_started(self, event: JobStarted) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.ended_at is not None or event.request < job.request:
            return
        if job.started_at is None:
            job.started_at = event.at
        job.alive, job.lost = True, False
        self._answered(job, event)

    def _grant_applied(self, event: GrantApplied) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._answered(job, event)

    def _grant_failed(self, event: GrantFailed) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.n_grants_failed += 1
            self._answered(job, event)

    def _answered(self, job: JobCourse, event: JobStarted | GrantApplied | GrantFailed) -> None:
        if not job.alive or event.request < job.request:
            return
        job.request = event.request
        held = bool(job.granted)
        self._hold(job, event.granted)
        job.n_preemptions += held and not job.granted

    def _progress_reported(self, event: ProgressReported) -> None:
        job = self._jobs.get(event.job)
        if job is None or job.ended_at is not None:
            return
        job.report(event.steps_done, event.steps_total)
        if not event.landed:
            job.landed_at = None  # a job that lands and then goes on has not landed yet
        elif job.landed_at is None:
            job.landed_at = event.unit_at

    def _job_finished(self, event: JobFinished) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.ended_at is None:
            job.landed_at = event.landed_at
            self._end(job, event)

    def _job_failed(self, event: JobFailed) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.ended_at is None:
            job.n_failures += not job.lost
            if event.retryable:
                self._lose_process(job)
            else:
                self._end(job, event)

    def _node_joined(self, event: NodeJoined) -> None:
        self._nodes[event.node] = event.capacity
        self._set_capacity()

    def _node_lost(self, event: NodeLost) -> None:
        self._nodes.pop(event.node, None)
        self._set_capacity()
        for job in [job for job in self._holding.values() if event.node in job.granted]:
            self._hold(job, {node: amount for node, amount in job.granted.items() if node != event.node})
            if not job.granted:
                job.n_failures += 1
                self._lose_process(job)
                job.lost = True

    def _steering_resumed(self, event: SteeringResumed) -> None:
        """Record grants after a gap in the steering; a job that is not named has no process."""
        for job in [job for job in self._jobs.values() if job.alive]:
            if job.id in event.granted:
                self._hold(job, event.granted[job.id])
            else:
                self._lose_process(job)

    def _plan_proposed(self, event: PlanProposed) -> None:
        if self._requested_at is None:
            return
        took_s = max(0.0, event.at - self._requested_at)
        self._requested_at = None
        self._n_plans += 1
        self._decision_total_s += took_s
        self._decision_max_s = max(self._decision_max_s, took_s)

    # Folds of commands: only those that say what no event does.

    def _job_rejected(self, command: RejectJob) -> None:
        job = self._jobs.get(command.job)
        if job is not None and job.ended_at is None:
            self._end(job, command)

    def _plan_requested(self, command: RequestPlan) -> None:
        self._n_rounds += 1
        self._requested_at = command.at

    def _user_warned(self, command: WarnUser) -> None:
        self._n_plans_refused += command.reason.code == "plan-refused"

    # Consequences for jobs and levels.

    def _lose_process(self, job: JobCourse) -> None:
        """Record the loss of a job's process; answers about it no longer count."""
        self._hold(job, {})
        job.alive = False
        job.request += 1

    def _enter(self, job: JobCourse) -> None:
        self._n_present.set(self._now, self._n_present.value + 1)
        self._count_queued()

    def _end(self, job: JobCourse, end: JobFinished | JobFailed | RejectJob) -> None:
        self._hold(job, {})
        job.accrue(self._now)
        self._n_present.set(self._now, self._n_present.value - 1)
        self._count_queued()
        job.present_s = self._n_present.integral(self._now) - job.present_before_s
        job.status, job.ended_at, job.alive = end_state(end) or "failed", end.at, False
        self._closed = self._mark()

    def _hold(self, job: JobCourse, granted: Allocation) -> None:
        granted = {node: amount for node, amount in granted.items() if amount}
        if granted == job.granted:
            return
        self._keep_segment(job)
        devices, cores = self._devices.value - job.devices, self._cores.value - job.cores
        job.hold(self._now, granted)
        if granted:
            self._holding[job.id] = job
        else:
            self._holding.pop(job.id, None)
        # All grants are empty: drop the rounding errors of earlier sums.
        self._cores.set(self._now, cores + job.cores if self._holding else 0.0)
        self._devices.set(self._now, devices + job.devices)
        self._n_holding.set(self._now, len(self._holding))
        self._count_queued()

    def _count_queued(self) -> None:
        self._n_queued.set(self._now, self._n_present.value - len(self._holding))

    def _keep_segment(self, job: JobCourse) -> None:
        if self._segments is not None and job.granted and self._now > job.accrued_at:
            self._segments.append(self._segment(job))

    def _segment(self, job: JobCourse) -> Segment:
        return Segment(job.id, len(job.granted), job.devices, job.cores, job.accrued_at, self._now)

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
            n_plans=self._n_plans,
            decision_total_s=self._decision_total_s,
            decision_max_s=self._decision_max_s,
        )
