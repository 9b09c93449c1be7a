"""What the last plan gives each job, and what its user's changes leave of that."""

from collections.abc import Mapping

from punctual.core.ids import NodeId
from punctual.core.job import Allocation
from punctual.core.ledger import Bookings
from punctual.core.plan_check import fault_of_grant
from punctual.core.refitting import refitted
from punctual.core.resources import NOTHING, Resources
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.snapshot_cache import SnapshotCache


class Targets:
    """Keeps `ScheduledJob.target`, the bookings `planned` and the picture for policies in step."""

    def __init__(self, planned: Bookings, cache: SnapshotCache) -> None:
        self._planned = planned
        self._cache = cache

    def aim(self, job: ScheduledJob, grant: Allocation) -> None:
        """Make `grant` what the job is to have."""
        had_place = job.has_place
        self._cache.touch_nodes(job.target)
        self._cache.touch_nodes(grant)
        self._planned.remove(job.spec.id, job.target)
        job.target = {node: amount for node, amount in grant.items() if amount}
        self._planned.put(job.spec.id, job.target)
        self.show(job, had_place=had_place)

    def show(self, job: ScheduledJob, *, had_place: bool) -> None:
        """What policies see of the job has changed; `had_place`: whether it held something, or was to, before."""
        (self._cache.touch if had_place or not job.has_place else self._cache.begin)(job.spec.id)

    def refit(self, job: ScheduledJob, capacity: Mapping[NodeId, Resources]) -> bool:
        """Bring what the job is to have between the bounds that it has now; whether that is something else."""
        if not job.target or not fault_of_grant(job, job.target):
            return False

        def room(node: NodeId) -> Resources:
            others = self._planned.others_on(node, (job.spec.id,))
            has = capacity.get(node, NOTHING)
            return has - others if others.fits_in(has) else NOTHING

        self.aim(job, refitted(job.target, job.spec, room))
        return True
