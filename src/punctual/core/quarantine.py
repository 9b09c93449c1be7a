"""Calls to the plug-ins of jobs: a failure costs only its own job its controller or its model."""

from collections.abc import Mapping

from punctual.core import steering
from punctual.core.control import Demand
from punctual.core.errors import InvariantBroken
from punctual.core.events import LossReported, ProgressReported
from punctual.core.learning import learn_speed
from punctual.core.outbox import Outbox
from punctual.core.plug_ins import Failure, told_of_failure
from punctual.core.resources import Resources
from punctual.core.scheduled_job import Periods, ScheduledJob
from punctual.core.snapshot_cache import SnapshotCache


class Quarantine:
    """Calls controllers and models, and drops a job's plug-in once it has failed.

    Parameters
    ----------
    strict
        Raise `InvariantBroken` when one fails (tests). Otherwise the user is warned.
    """

    def __init__(self, cache: SnapshotCache, outbox: Outbox, periods: Periods, *, strict: bool) -> None:
        self._cache = cache
        self._outbox = outbox
        self._periods = periods
        self._strict = strict

    def impose(self, job: ScheduledJob, at: float, failure: Failure) -> None:
        """Drop the job's plug-in that failed, and warn its user."""
        reason = told_of_failure(job, failure)
        if self._strict:
            raise InvariantBroken(f"job '{job.spec.id}': {reason}", job.so_far()) from failure[1]
        if reason.code == "controller-failed":
            job.controller, job.controller_state, job.is_quarantined = None, None, True
        else:
            job.curve, job.losses = None, None
            self._cache.touch(job.spec.id)
        self._outbox.warn(at, job, reason)

    def learn_speed(self, job: ScheduledJob, event: ProgressReported) -> None:
        """Show `event` to the job's performance model; call it before `event` becomes the job's progress."""
        try:
            learn_speed(job, event, self._periods.learn_s)
        except Exception as error:  # noqa: BLE001 -- see above
            self.impose(job, event.at, ("model-failed", error))

    def learn_losses(self, job: ScheduledJob, event: LossReported) -> None:
        """Show the job's convergence model, if it has one, the losses of `event`."""
        if job.losses is None:
            return
        try:
            job.losses = job.losses.after(event.losses)
            job.losses.steps_total(None)
        except Exception as error:  # noqa: BLE001 -- see above
            self.impose(job, event.at, ("model-failed", error))

    def next_demand(self, job: ScheduledJob, at: float, node_sizes: Mapping[Resources, int]) -> Demand:
        """Return the job's demand from `at` on; `node_sizes` as in `punctual.core.steering.next_demand`."""
        idle_s = self._periods.idle_tick_s
        try:
            return steering.next_demand(job, at, idle_s, node_sizes)
        except Exception as error:  # noqa: BLE001 -- see above
            self.impose(job, at, ("controller-failed", error))
            return steering.at_ceiling(job, idle_s)
