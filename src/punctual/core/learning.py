"""Learn a job's speed from its reports."""

from math import inf

from punctual.core.events import ProgressReported
from punctual.core.scheduled_job import Mark, ScheduledJob
from punctual.core.slots import maker
from punctual.core.speed import RateCurve, SeenRate

_mark, _seen_rate, _rate_curve = maker(Mark), maker(SeenRate), maker(RateCurve)


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
            _check_rate(curve.rate_sps(seen.shape))
            job.curve = curve
    # Until the first step `unit_at` is only the beginning of a step if it is the report's own instant.
    begun_at = event.unit_at if event.steps_done or event.unit_at == event.at else inf
    runs_free = job.is_applied and job.asked is not None and job.asked[1] is None
    job.mark = _mark(begun_at, event.steps_done, job.phases, runs_free)


def _is_alike_since(mark: Mark, event: ProgressReported, job: ScheduledJob) -> bool:
    """Whether the job has only done steps since, unpaced, under the same request as at the mark."""
    unchanged = event.unit_at <= job.asked_at or (job.is_applied and job.asked_at <= mark.begun_at)
    return mark.runs_free and unchanged and mark.phases == job.phases


def _check_rate(rate_sps: float) -> None:
    if not 0.0 <= rate_sps < inf:
        raise ValueError(f"a speed of {rate_sps} steps per second")
