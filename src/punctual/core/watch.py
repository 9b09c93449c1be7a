"""Checks of jobs between events: watch for passed deadlines and missing steps, warn, and stop or restart jobs."""

from dataclasses import dataclass
from math import inf

from punctual.core.control import Forecast
from punctual.core.events import ProgressReported
from punctual.core.job import DUE, LATE, STOP_GRACE_S
from punctual.core.job_warnings import change_of_feasibility, warnings_at_tick
from punctual.core.outbox import Outbox
from punctual.core.recent_messages import Reason
from punctual.core.resources import TOLERANCE
from punctual.core.scheduled_job import Periods, ScheduledJob
from punctual.core.units import span

#: A job stands still once no step has come for so many times a step's usual time, and for `_AGAIN` times its longest step: the longest
#: so far, or what that would take with what the job holds now.
_STEPS = 10.0
#: A pause that was seen once, as for an evaluation or a checkpoint, may come again and take so many times as long.
_AGAIN = 2.0
#: It is stopped or retried once it has stood still for so many times as long, if it used less than this share of its grant.
_ENDED, _IDLE_FRAC = 2.0, 0.05
#: A program that has its results takes a second or so to leave.
_LEAVING_S = 2.0
#: Share of a notice, however short, in which a plan may give a job other nodes before it has to save; the rest is for a checkpoint that
#: was never measured. In 12 simulated markets of a job of 12 hours, where saving is short, 0 cost 0.1 % (notice of 30 s) and 0.3 %
#: (120 s) more than this, and 0.95 cost 0.2 % and 1.0 % less: too little to risk the checkpoint for.
_PLAN_FRAC = 0.25
#: Share of the deadline reserved for an unmeasured checkpoint.
_CHECKPOINT_FRAC = 0.1


class Watch:
    """Checks a job at each tick and at its deadline, warns its user, and stops it if its user wants that."""

    def __init__(self, outbox: Outbox, periods: Periods) -> None:
        self._outbox = outbox
        self._periods = periods

    def look_in(self, job: ScheduledJob, at: float, after_s: float) -> None:
        """Set a timer for the job's next check in `after_s` seconds, if it has a controller."""
        if job.spec.controller is not None:
            self._outbox.set_timer(at, "tick", job, after_s)

    def expect_deadline(self, job: ScheduledJob, at: float) -> None:
        """Set a timer that calls `deadline_passed` at the deadline of a job that is checked."""
        if job.spec.controller is not None and job.deadline_at is not None:
            self._outbox.set_timer(at, "deadline", job, max(0.0, job.deadline_at - at))

    def expect_to_leave(self, job: ScheduledJob, at: float, ends_at: float) -> None:
        """Note how long the job works on when its nodes are taken away at `ends_at` and it has no others.

        A running job works on until there is just time for a step, a checkpoint and a stop that is lost and repeated. Of a short
        notice it has a part for a plan to come. A job that is starting or paused saves at once.
        """
        if job.status != "running":
            job.leaves_at = at
            return
        saved_at = ends_at - (_step_s(job) or 0.0) - _checkpoint_s(job, inf) - self._periods.answer_s
        job.leaves_at = min(job.leaves_at, max(saved_at, at + _PLAN_FRAC * max(0.0, ends_at - at)))
        self.set_leave_timer(job, at)

    def set_leave_timer(self, job: ScheduledJob, at: float) -> None:
        """Set a timer for the instant at which the job may no longer work on, if there is one."""
        if job.leaves_at < inf:
            self._outbox.set_timer(at, "leave", job, max(0.0, job.leaves_at - at))

    def deadline_passed(self, job: ScheduledJob, at: float) -> str:
        """Warn that the deadline has passed; return why the job is to be stopped, or nothing if it is not."""
        if job.deadline_at is None or at < job.deadline_at or "deadline-passed" in job.told:
            return ""
        if job.has_landed:
            self._look_for_more(job, at, job.deadline_at)
            return ""
        is_to_stop = job.spec.ends.at_deadline == "stop" and job.stop_cause is None
        may_leave = not is_to_stop and _may_be_leaving(job)
        if may_leave and at < job.deadline_at + _LEAVING_S:
            self._outbox.set_timer(at, "deadline", job, job.deadline_at + _LEAVING_S - at)
            return ""
        text = f"the deadline has passed{_where(job)}"
        text += (
            f", and the program works on; `--like {job.spec.id}` tells the next run of that"
            if may_leave
            else _lateness(job)
        )
        self._tell(job, at, Reason("deadline-passed", text))
        return DUE if is_to_stop else ""

    def look(self, job: ScheduledJob, at: float) -> None:
        """Give the warnings of a tick, before the controller is asked; the job's grant must be accrued."""
        if job.stop_cause is not None:  # it is not expected to train on
            return
        for warning in warnings_at_tick(job, self._periods):
            self._tell(job, at, warning)
        silence = _silence(job, self._periods)
        if "stalled" in job.told and silence is None:
            job.told -= {"stalled"}
            self._outbox.warn(at, job, Reason("steps-go-on", f"steps go on, {_count(job)}"))
        elif silence is not None and "stalled" not in job.told:
            self._tell(job, at, Reason("stalled", silence.text()))
        if silence is not None and job.spec.ends.on_stall != "tell" and silence.is_to_end():
            job.stop_cause, job.restarts = silence.text(), job.spec.ends.on_stall == "retry"

    def judge(self, job: ScheduledJob, at: float, forecast: Forecast | None) -> None:
        """Report the deadline's feasibility after a tick; stop the job if it must be done by then and will not be."""
        if job.stop_cause is not None:
            return
        if not _may_be_leaving(job) and (change := change_of_feasibility(job, forecast)) is not None:
            self._outbox.warn(at, job, change)
        if _is_due_to_stop(job, at, forecast):
            job.stop_cause = LATE

    def _look_for_more(self, job: ScheduledJob, at: float, deadline_at: float) -> None:
        """Warn that a program works on after all its steps and its deadline, once it has had time to leave."""
        if at < deadline_at + _LEAVING_S:
            self._outbox.set_timer(at, "deadline", job, deadline_at + _LEAVING_S - at)
        elif job.progress is not None and job.progress.unit_at == job.landed_at <= deadline_at:
            text = "all declared steps were done before the deadline, but the program works on after it"
            self._tell(job, at, Reason("deadline-passed", text))

    def _tell(self, job: ScheduledJob, at: float, reason: Reason) -> None:
        job.told |= {reason.code}
        self._outbox.warn(at, job, reason)


def _where(job: ScheduledJob) -> str:
    """Return the end of a sentence about a missed deadline: the job's progress."""
    if job.started_at is None:
        return " before the job was started"
    state = {"queued": ", and the job waits to be started again", "paused": ", and the job is paused"}
    return f"{state.get(job.status, '')}{',' if job.status in state else ''} {_count(job)}"


def _lateness(job: ScheduledJob) -> str:
    """Return how late the job is to be by now, to follow the news that its deadline has passed."""
    forecast, deadline_s = job.demand.forecast if job.demand else None, job.spec.deadline_s or 0.0
    if forecast is None or job.status != "running" or forecast.earliest_finish_s <= deadline_s:
        return ""
    return f": at full speed the job lands {span(forecast.earliest_finish_s - deadline_s)} after it"


def _count(job: ScheduledJob) -> str:
    progress = job.progress
    if progress is None or not job.is_training:
        return "with no step reported"
    total = "" if progress.steps_total is None else f" of {progress.steps_total:.12g}"
    return f"at step {progress.steps_done:.12g}{total}"


def _has_all_steps(job: ScheduledJob) -> bool:
    """Whether all steps are done, be it that the job has landed or not."""
    progress = job.progress
    return progress is not None and progress.steps_total is not None and progress.steps_done >= progress.steps_total > 0


def _may_be_leaving(job: ScheduledJob) -> bool:
    """Whether a program that is only read has counted all its steps: it lands with its end, which may not be known yet."""
    return job.progress is not None and job.progress.is_read and _has_all_steps(job)


@dataclass(frozen=True, slots=True)
class _Silence:
    """Time without a step, and the times up to which that is usual, idle or computing; seconds.

    `has_begun`: whether a step was made. `step_s`: expected time of a step; None: unknown. `used_frac`: share of its
    grant that the job used meanwhile.
    """

    lasted_s: float
    patience_s: float
    busy_patience_s: float
    has_begun: bool
    step_s: float | None
    used_frac: float

    def text(self) -> str:
        if not self.has_begun:
            return f"the first step has not ended after {span(self.lasted_s)}"
        return f"no step for {span(self.lasted_s)}" + (
            "" if self.step_s is None else f"; they took {span(self.step_s)}"
        )

    def is_to_end(self) -> bool:
        """Whether it has lasted long enough to act on."""
        patience_s = self.patience_s if self.used_frac < _IDLE_FRAC else self.busy_patience_s
        return self.lasted_s > _ENDED * patience_s


def _silence(job: ScheduledJob, periods: Periods) -> _Silence | None:
    """Return the silence of a job that has begun to train and makes no steps; None if it makes steps."""
    progress, deadline_s = job.progress, job.spec.deadline_s
    if progress is None or progress.landed or job.status != "running" or not (job.held and job.is_training):
        return None
    if _has_all_steps(job):
        return None  # a program that is only read evaluates or saves, as far as anybody knows
    lasted_s, step_s = progress.at - max(progress.unit_at, job.held_since_at), _step_s(job)
    share_s = inf if deadline_s is None else periods.grace_frac * deadline_s
    expected_s = share_s if step_s is None else max(min(periods.grace_s, share_s), min(_STEPS * step_s, share_s))
    held_cores = max(job.held.cores, TOLERANCE)
    longest_s = max(job.longest_unit_s, job.dearest_unit_core_s / held_cores, step_s or 0.0)
    patience_s = max(expected_s, _AGAIN * longest_s)
    # One that computes may do undeclared work: it has a fifth of its deadline, or so many times as long.
    busy_patience_s = 10.0 * patience_s if deadline_s is None else max(patience_s, share_s)
    used_frac = progress.in_flight_core_s / (lasted_s * held_cores) if lasted_s > 0.0 else 0.0
    if used_frac >= _IDLE_FRAC:  # with a part of its ceiling such work takes so many times as long
        n_times = job.spec.ceiling.cores / (held_cores * max(1.0, used_frac))
        patience_s = min(max(1.0, n_times) * patience_s, busy_patience_s)
    waits_s = _paced_wait_s(job, progress)
    if not lasted_s - waits_s > patience_s:
        return None
    return _Silence(
        lasted_s=lasted_s,
        patience_s=patience_s + waits_s,
        busy_patience_s=busy_patience_s + waits_s,
        has_begun=progress.steps_done > 0,
        step_s=step_s,
        used_frac=used_frac,
    )


def _paced_wait_s(job: ScheduledJob, progress: ProgressReported) -> float:
    """Seconds since the last step in which the pacing line did not allow another one, nor a part of any phase."""
    line, since_at = job.pacing(), max(progress.unit_at, job.held_since_at)
    if line is None:
        return 0.0
    done = line.work_done(progress.steps_done, job.phases)
    allowed_at = job.submitted_at + line.allows_s(done + max([1.0, *line.phase_cost_steps.values()]))
    return max(0.0, min(allowed_at, progress.at) - since_at)


def _step_s(job: ScheduledJob) -> float | None:
    """Expected seconds of a step with the present grant: the largest of its mean, its cost and its pacing line."""
    progress, begun, pacing = job.progress, job.begun, job.pacing()
    if progress is None or begun is None or progress.steps_done <= begun[0]:
        return None
    n_steps = progress.steps_done - begun[0]
    cost_s = (progress.used_core_s - progress.in_flight_core_s - begun[1]) / n_steps / max(job.held.cores, TOLERANCE)
    return max((progress.unit_at - begun[2]) / n_steps, cost_s, 0.0 if pacing is None else pacing.s_per_step)


def _is_due_to_stop(job: ScheduledJob, at: float, forecast: Forecast | None) -> bool:
    """Whether a job that must be done at its deadline will not be, and a checkpoint takes all the remaining time."""
    deadline_s = job.spec.deadline_s
    if job.spec.ends.at_deadline != "stop" or deadline_s is None or job.has_landed or job.deadline_at is None:
        return False
    left_s = job.deadline_at - at
    if forecast is not None and forecast.earliest_finish_s <= deadline_s:
        return False
    return left_s <= (_step_s(job) or 0.0) + _checkpoint_s(job, deadline_s)


def _checkpoint_s(job: ScheduledJob, deadline_s: float) -> float:
    """Seconds to allow for a checkpoint."""
    made = [phase for phase in job.phases if phase.is_checkpoint and phase.units_measured]
    known = [phase.wall_s / phase.units_measured for phase in made]
    if known:
        return _AGAIN * max(known)
    return min(_CHECKPOINT_FRAC * deadline_s, STOP_GRACE_S if job.spec.ends.grace_s is None else job.spec.ends.grace_s)
