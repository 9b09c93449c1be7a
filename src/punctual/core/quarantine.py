"""Calls to the plug-ins of jobs: a failure costs only its own job its controller or its model."""

from collections.abc import Mapping
from math import inf

from punctual.core import steering
from punctual.core.control import Demand
from punctual.core.errors import InvariantBroken
from punctual.core.events import LossReported, ProgressReported
from punctual.core.fast_init import unchecked_constructor
from punctual.core.outbox import Outbox
from punctual.core.plug_ins import Failure, failure_warning
from punctual.core.resources import Resources
from punctual.core.scheduled_job import Periods, ScheduledJob, SpeedSample
from punctual.core.snapshot_cache import SnapshotCache
from punctual.core.speed import RateCurve, SeenRate

_mark, _seen_rate, _rate_curve = (
    unchecked_constructor(SpeedSample),
    unchecked_constructor(SeenRate),
    unchecked_constructor(RateCurve),
)


def learn_speed(job: ScheduledJob, event: ProgressReported, learn_s: float) -> None:
    """Show the model the speed since the mark, if the job held the same and only did steps all the time.

    A paced job shows how fast it may be, not how fast it is. To be called before `event` becomes the job's progress.

    Parameters
    ----------
    learn_s
        Least seconds over which a speed is measured.

    Raises
    ------
    ValueError
        The model says afterwards that the job has a speed that none can have. What the model raises passes through.
    """
    if job.curve is None or job.shape is None:
        return
    mark = job.mark
    if mark is not None and mark.begun_at >= job.granted_at and _is_alike_since(mark, event, job):
        steps, over_s = event.steps_done - mark.steps_done, event.unit_at - mark.begun_at
        # A later unit without a step more: a change held the job up until then, which says nothing about its speed.
        is_held_up = over_s > 0 and steps == 0
        if 0 <= over_s < learn_s and not is_held_up:
            return
        if steps > 0 and over_s > 0:
            seen = _seen_rate(shape=job.shape, rate_sps=steps / over_s, over_s=over_s)
            curve = _rate_curve(job.curve.model, job.curve.model.update(job.curve.state, seen))
            rate_sps = curve.rate_sps(seen.shape)
            if not 0.0 <= rate_sps < inf:
                raise ValueError(f"a speed of {rate_sps} steps per second")
            job.curve = curve
    # Until the first step `unit_at` is only the beginning of a step if it is the report's own instant.
    begun_at = event.unit_at if event.steps_done or event.unit_at == event.at else inf
    runs_free = job.is_applied and job.asked is not None and job.asked[1] is None
    job.mark = _mark(begun_at, event.steps_done, job.phases, runs_free)


def _is_alike_since(mark: SpeedSample, event: ProgressReported, job: ScheduledJob) -> bool:
    """Whether the job has only done steps since, unpaced, under the same request as at the mark."""
    unchanged = event.unit_at <= job.asked_at or (job.is_applied and job.asked_at <= mark.begun_at)
    return mark.runs_free and unchanged and mark.phases == job.phases


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

    def disable_plug_in(self, job: ScheduledJob, at: float, failure: Failure) -> None:
        """Drop the job's plug-in that failed, and warn its user."""
        reason = failure_warning(job, failure)
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
            self.disable_plug_in(job, event.at, ("model-failed", error))

    def learn_losses(self, job: ScheduledJob, event: LossReported) -> None:
        """Show the job's convergence model, if it has one, the losses of `event`."""
        if job.losses is None:
            return
        try:
            job.losses = job.losses.after(event.losses)
            job.losses.steps_total(None)
        except Exception as error:  # noqa: BLE001 -- see above
            self.disable_plug_in(job, event.at, ("model-failed", error))

    def next_demand(self, job: ScheduledJob, at: float, node_sizes: Mapping[Resources, int]) -> Demand:
        """Return the job's demand from `at` on; `node_sizes` as in `punctual.core.steering.next_demand`."""
        idle_s = self._periods.idle_tick_s
        try:
            return steering.next_demand(job, at, idle_s, node_sizes)
        except Exception as error:  # noqa: BLE001 -- see above
            self.disable_plug_in(job, at, ("controller-failed", error))
            return steering.at_ceiling(job, idle_s)
