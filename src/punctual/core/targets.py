"""The amount that each job is to have, and what is asked for until it has it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.control import PacingLine
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, stop_code
from punctual.core.ledger import Bookings, Ledger
from punctual.core.outbox import Outbox
from punctual.core.planning import fault_of_grant
from punctual.core.resources import NOTHING, Resources
from punctual.core.scheduled_job import Periods, ScheduledJob
from punctual.core.snapshot_cache import SnapshotCache


@dataclass(slots=True)
class Targets:
    """Sets `ScheduledJob.target`, and asks for launches, resizes and stops until each job has its target.

    The bookings `planned` and the snapshot for policies follow from the targets. Only jobs whose target may differ from what is
    in force are looked at.
    """

    _ledger: Ledger
    _planned: Bookings
    _cache: SnapshotCache
    _periods: Periods
    _outbox: Outbox
    _unsettled: dict[JobId, ScheduledJob] = field(default_factory=dict)

    def set_target(self, job: ScheduledJob, grant: Allocation) -> None:
        """Make `grant` the job's target."""
        had_place = job.has_place
        self._cache.touch_nodes((*job.target, *grant))
        self._planned.remove(job.spec.id, job.target)
        job.target = {node: amount for node, amount in grant.items() if amount}
        self._planned.put(job.spec.id, job.target)
        self.show(job, had_place=had_place)

    def show(self, job: ScheduledJob, *, had_place: bool) -> None:
        """Note that the job's view has changed; `had_place`: whether it held something, or was to, before."""
        (self._cache.touch if had_place or not job.has_place else self._cache.begin)(job.spec.id)

    def refit(self, job: ScheduledJob, capacity: Mapping[NodeId, Resources]) -> bool:
        """Bring the job's target between its present bounds; return whether that changed it."""
        if not job.target or not fault_of_grant(job, job.target):
            return False

        def room(node: NodeId) -> Resources:
            others = self._planned.others_on(node, (job.spec.id,))
            has = capacity.get(node, NOTHING)
            return has - others if others.fits_in(has) else NOTHING

        self.set_target(job, refitted(job.target, job.spec, room))
        return True

    def mark_dirty(self, job: ScheduledJob) -> None:
        """Reconcile the job at the end of this event, and of each later one until it has its target."""
        self._unsettled[job.spec.id] = job

    def drop(self, job: JobId, at: float) -> None:
        """Remove a job that has ended, and retry one that waits for a shortage to end."""
        self._unsettled.pop(job, None)
        waiting = next((other for other in self._unsettled.values() if other.n_shortages and other.retry_at > at), None)
        if waiting is not None:
            waiting.retry_at = at

    def reconcile(self, at: float) -> None:
        """Ask for everything that differs and may be asked for now."""
        if not self._unsettled:
            return
        for name, job in tuple(self._unsettled.items()):
            if job.is_settled():
                del self._unsettled[name]
            elif job.stop_cause is not None:
                self._stop(job, at)
            elif self._may_ask(job, at) and self._ledger.ask(name, job.n_requests + 1, job.target):
                self._ask(job, at)

    def unsettled(self) -> list[JobId]:
        """Return the jobs that are still to be reconciled, in order."""
        return list(self._unsettled)

    def _ask(self, job: ScheduledJob, at: float) -> None:
        """Ask for the target, which is booked."""
        if job.status == "queued":
            self._launch(job, at)
        elif job.target and (job.status == "starting" or job.is_relaunched):  # the last launch was not answered
            job.is_relaunched = True
            self._launch(job, at)
        else:
            self._resize(job, at)

    def _launch(self, job: ScheduledJob, at: float) -> None:
        job.status = "starting"
        job.forget_waiting()
        self._cache.touch(job.spec.id)
        command = LaunchJob(
            at=at,
            job=job.spec.id,
            spec=job.spec,
            program=job.program,
            submitted_at=job.submitted_at,
            **self._asked(job, at, None),
        )
        self._outbox.put(command, job)

    def _resize(self, job: ScheduledJob, at: float) -> None:
        pacing = job.pacing()
        command = ResizeJob(at=at, job=job.spec.id, pacing=pacing, **self._asked(job, at, pacing))
        self._outbox.put(command, job)

    def _stop(self, job: ScheduledJob, at: float) -> None:
        waiting = job.status == "stopping" and at < job.asked_at + self._periods.answer_s
        if waiting or job.stop_cause is None:
            return
        job.status, job.asked_at = "stopping", at
        self._cache.touch(job.spec.id)
        is_due = stop_code(job.stop_cause) == "due"
        how = {"restarts": job.restarts, "moves": job.moves, "interrupts": job.interrupts, "is_due": is_due}
        stop = StopJob(at=at, job=job.spec.id, cause=job.stop_cause, **how)
        self._outbox.put(stop, job)
        self._outbox.set_timer(at, "answer", job, self._periods.answer_s)

    def _may_ask(self, job: ScheduledJob, at: float) -> bool:
        if job.may_work_on and at < job.leaves_at:
            return False
        unanswered = self._ledger.in_flight(job.spec.id) and at < job.asked_at + self._periods.answer_s
        return not unanswered and at >= job.retry_at

    def _asked(self, job: ScheduledJob, at: float, pacing: PacingLine | None) -> dict[str, Any]:
        """Note a request for the target with this line. Returns the fields common to launch and resize."""
        job.n_requests += 1
        job.asked, job.asked_at = (job.target, pacing), at
        job.is_applied = False  # also if the target was in force: if the answer is lost nobody knows what is
        self._outbox.set_timer(at, "answer", job, self._periods.answer_s)
        return {"request": job.n_requests, "grant": job.target, "reason": job.reason()}


def refitted(target: Allocation, spec: JobSpec, room: Callable[[NodeId], Resources]) -> Allocation:
    """Return the allocation nearest to `target` that `spec` allows, on the same nodes; empty if none is.

    Parameters
    ----------
    room
        Amount of a node that no other job is to have.
    """
    if spec.worker is None:
        return _refitted_share(target, spec, room)
    return {} if spec.server is not None else _refitted_workers(target, spec, spec.worker, room)


def _refitted_share(target: Allocation, spec: JobSpec, room: Callable[[NodeId], Resources]) -> Allocation:
    if len(target) != 1:
        return {}
    ((node, amount),) = target.items()
    wanted = amount.at_most(spec.ceiling).at_least(spec.floor)
    return {node: wanted} if wanted.fits_in(room(node)) else {}


def _refitted_workers(
    target: Allocation, spec: JobSpec, worker: Resources, room: Callable[[NodeId], Resources]
) -> Allocation:
    n_on = {node: amount.n_times(worker) for node, amount in target.items()}
    n_now, allowed = sum(n_on.values()), spec.worker_counts()
    n_wanted = max((n for n in allowed if n <= n_now), default=allowed[0])
    for node in reversed(n_on):
        n_others = sum(n_on.values()) - n_on[node]
        n_on[node] = max(0, min(n_wanted - n_others, room(node).n_times(worker)))
    if not n_now or sum(n_on.values()) != n_wanted:
        return {}
    return {node: worker * n for node, n in n_on.items() if worker * n != NOTHING}
