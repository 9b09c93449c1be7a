"""Whether a plan can be used: the kernel checks what policies propose."""

from collections.abc import Collection, Iterable, Mapping
from math import inf, isfinite

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, awaits_promise
from punctual.core.ledger import Bookings
from punctual.core.plan import Plan
from punctual.core.recent_messages import Reason
from punctual.core.resources import Resources, total
from punctual.core.scheduled_job import ScheduledJob

#: Jobs that a plan decides on, with what it gives them.
Changes = list[tuple[ScheduledJob, Allocation]]


def checked(
    plan: Plan,
    revision: int,
    active: Mapping[JobId, ScheduledJob],
    capacity: Mapping[NodeId, Resources],
    planned: Bookings,
) -> tuple[Changes, str]:
    """Return the changes of a plan, and the reason why it cannot be used; the reason is empty if it can.

    Parameters
    ----------
    revision
        Revision that was requested.
    active
        The jobs that have not ended.
    planned
        Amounts of the last plan, by node.
    """
    if plan.revision != revision:
        return [], f"it is of revision {plan.revision}, and was requested as {revision}"
    try:
        changes = _changes_of(plan, active)
        return changes, _fault_of(plan, changes, capacity, planned)
    except Exception as error:  # noqa: BLE001 -- a policy may propose anything
        return [], f"it is no plan: {type(error).__name__}: {error}"


def _changes_of(plan: Plan, active: Mapping[JobId, ScheduledJob]) -> Changes:
    """Return the plan's changes to known, unfinished jobs that may hold something.

    One that is to run only with a promise gets nothing before it has one: also of a policy that stands in for another.
    """
    named, promises = plan.grants if plan.keeps_others else active, plan.promises or {}
    jobs = [active[job] for job in named if job in active and not active[job].is_withheld]
    return [
        (job, {} if _lacks_promise(job, promises) else plan.grants.get(job.spec.id, {}))
        for job in jobs
        if job.submitted_revision < plan.revision
    ]


def _lacks_promise(job: ScheduledJob, promises: Collection[JobId]) -> bool:
    return job.spec.id not in promises and awaits_promise(job.spec, job.status, job.started_at)


def _fault_of(plan: Plan, changes: Changes, capacity: Mapping[NodeId, Resources], planned: Bookings) -> str:
    if plan.status == "infeasible":
        return "the policy found no valid plan"
    if plan.promises and not all(map(isfinite, plan.promises.values())):
        return "it promises an end that is no instant"
    for job, grant in changes:
        fault = fault_of_grant(job, grant)
        if fault:
            return fault
    return _overbooked(changes, capacity, planned)


def fault_of_size(spec: JobSpec, capacity: Resources) -> Reason | None:
    """Return why a job can never run on a cluster of `capacity`; None if it may, or if no node has joined yet."""
    if not capacity or spec.floor.fits_in(capacity):
        return None
    return Reason("too-large", f"its floor of {spec.floor} does not fit in what there is: {capacity}")


def fault_of_grant(job: ScheduledJob, grant: Allocation) -> str:
    """Return why the job cannot have `grant`; empty if it can."""
    amount, spec = total(grant.values()), job.spec
    if not amount:
        may_pause = spec.preemptible or job.status not in ("running", "starting") or job.leaves_at < inf
        return "" if may_pause else f"nothing for job '{spec.id}', which runs and may not be paused"
    if not amount.fits_in(spec.ceiling):
        return f"{amount} for job '{spec.id}', over its ceiling of {spec.ceiling}"
    if not spec.floor.fits_in(amount):
        return f"{amount} for job '{spec.id}', under its floor of {spec.floor}"
    if spec.worker is not None and spec.parts_of(amount) is None:
        return f"{amount} for job '{spec.id}', which is no number of its workers that it can run with"
    return ""


def _overbooked(changes: Changes, capacity: Mapping[NodeId, Resources], planned: Bookings) -> str:
    """Return the first node on which the changes do not fit beside the others' plans; empty if none."""
    booked: dict[NodeId, Resources] = {}
    for _, grant in changes:
        for node, amount in grant.items():
            booked[node] = booked[node] + amount if node in booked else amount
    decided = {job.spec.id for job, _ in changes}
    for node, amount in booked.items():
        # A node may have been lost since the snapshot; what lay there is dropped when the grant is asked for.
        if node not in capacity:
            continue
        total_on = amount + planned.others_on(node, decided)
        if not total_on.fits_in(capacity[node]):
            return f"{total_on} on node '{node}', which has {capacity[node]}"
    return ""


def takes_any(changes: Changes) -> bool:
    """Whether a job is to have less than before on some node."""
    for job, grant in changes:
        for node, amount in job.target.items():
            if node not in grant or not amount.fits_in(grant[node]):
                return True
    return False


def has_room(jobs: Iterable[ScheduledJob], capacity: Mapping[NodeId, Resources], planned: Bookings) -> bool:
    """Whether the plan in force leaves enough for one of the jobs to which it gives nothing."""
    waiting = {_least(job.spec) for job in jobs if not (job.target or job.is_withheld or job.stop_cause)}
    left = [amount - planned.total_on(node) for node, amount in capacity.items()] if waiting else []
    # Any amount will do for a job without a floor.
    return any(
        sum(amount.n_times(unit) if unit else bool(amount) for amount in left) >= n_units for unit, n_units in waiting
    )


def _least(spec: JobSpec) -> tuple[Resources, int]:
    """Return an amount, and how many of it a job needs at least, on one node or several."""
    return (spec.floor, 1) if spec.unit is None else (spec.unit, spec.worker_counts()[0])
