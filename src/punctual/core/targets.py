"""The amount that each job is to have: the last plan's, within the bounds that its user changes."""

from collections.abc import Callable, Mapping

from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.ledger import Bookings
from punctual.core.plan_check import fault_of_grant
from punctual.core.resources import NOTHING, Resources
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.snapshot_cache import SnapshotCache


class Targets:
    """Keeps `ScheduledJob.target`, the bookings `planned` and the snapshot for policies consistent."""

    def __init__(self, planned: Bookings, cache: SnapshotCache) -> None:
        self._planned = planned
        self._cache = cache

    def set_target(self, job: ScheduledJob, grant: Allocation) -> None:
        """Make `grant` the job's target."""
        had_place = job.has_place
        self._cache.touch_nodes(job.target)
        self._cache.touch_nodes(grant)
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
