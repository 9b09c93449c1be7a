"""Checks of jobs between events: watch for passed deadlines and missing steps, warn, and stop or restart jobs."""

from math import inf

from punctual.core.control import Forecast
from punctual.core.events import ProgressReported
from punctual.core.job import DUE, LATE, STOP_GRACE_S
from punctual.core.outbox import Outbox
from punctual.core.reason import Reason
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
        is_to_stop = job.spec.ends.at_deadline == "stop" and job.stop_cause is None
        may_leave = not is_to_stop and _may_be_leaving(job)
        if (job.has_landed or may_leave) and at < job.deadline_at + _LEAVING_S:
            self._outbox.set_timer(at, "deadline", job, job.deadline_at + _LEAVING_S - at)
            return ""
        if job.has_landed:
            if job.progress is not None and job.progress.unit_at == job.landed_at <= job.deadline_at:
                text = "all declared steps were done before the deadline, but the program works on after it"
                self._tell(job, at, Reason("deadline-passed", text))
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
        for warning in (
            _without_progress(job, self._periods),
            _without_total(job),
            _unmeasured_phases(job),
            _without_losses(job, self._periods),
        ):
            if warning is not None:
                self._tell(job, at, warning)
        silence = _silence(job, self._periods)
        if "stalled" in job.told and silence is None:
            job.told -= {"stalled"}
            self._outbox.warn(at, job, Reason("steps-go-on", f"steps go on, {_count(job)}"))
        if silence is None:
            return
        text, is_to_end = silence
        if "stalled" not in job.told:
            self._tell(job, at, Reason("stalled", text))
        if is_to_end and job.spec.ends.on_stall != "tell":
            job.stop_cause, job.restarts = text, job.spec.ends.on_stall == "retry"

    def judge(self, job: ScheduledJob, at: float, forecast: Forecast | None) -> None:
        """Report the deadline's feasibility after a tick; stop the job if it must be done by then and will not be."""
        if job.stop_cause is not None:
            return
        if not _may_be_leaving(job) and (change := _change_of_feasibility(job, forecast)) is not None:
            self._outbox.warn(at, job, change)
        if _is_due_to_stop(job, at, forecast):
            job.stop_cause = LATE

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


def _silence(job: ScheduledJob, periods: Periods) -> tuple[str, bool] | None:
    """Return for how long a job that has begun to train has made no steps, and whether that is long enough to act on.

    None: it makes steps, or is not expected to.
    """
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
    lasted = f"no step for {span(lasted_s)}" + ("" if step_s is None else f"; they took {span(step_s)}")
    text = lasted if progress.steps_done > 0 else f"the first step has not ended after {span(lasted_s)}"
    patience_s = patience_s if used_frac < _IDLE_FRAC else busy_patience_s
    return text, lasted_s > _ENDED * (patience_s + waits_s)


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


# Warnings about a running job, checked at every tick and given once each.


def _is_overdue(job: ScheduledJob, periods: Periods) -> bool:
    deadline_s = job.spec.deadline_s
    if deadline_s is None:
        return job.ran_s > periods.grace_s
    # Loading PyTorch takes so many seconds on a busy machine.
    return job.ran_s > max(periods.grace_frac * deadline_s, min(10.0, 0.5 * deadline_s))


def _without_progress(job: ScheduledJob, periods: Periods) -> Reason | None:
    if job.is_training or "no-progress" in job.told or not _is_overdue(job, periods):
        return None
    return Reason(
        "no-progress",
        f"no progress was reported in {span(job.ran_s)}, nor read from the output; the job goes on at full speed",
    )


def _without_total(job: ScheduledJob) -> Reason | None:
    """Warn that a program counts steps without a total, so that no remaining work can be planned for.

    Where the output is read, the executor warns instead.
    """
    is_counted = job.progress is not None and job.progress.steps_done > 0 and not job.progress.is_read
    is_declared = job.spec.work_steps is not None or (job.progress is not None and job.progress.steps_total is not None)
    if not is_counted or is_declared or job.spec.deadline_s is None or "no-total" in job.told:
        return None
    text = (
        "the program does not say how many steps there are, so the job goes on at full speed and its deadline is not "
        "worked towards; start it with `--steps N`"
    )
    return Reason("no-total", text)


def _without_losses(job: ScheduledJob, periods: Periods) -> Reason | None:
    silent = job.losses is not None and not job.losses.at_steps
    has_begun = job.progress is not None and job.progress.steps_done > 0
    if not silent or not has_begun or "no-loss" in job.told or not _is_overdue(job, periods):
        return None
    text = "no loss was reported, so nobody can tell when the goal is reached; all declared steps are planned for"
    return Reason("no-loss", text)


def _unmeasured_phases(job: ScheduledJob) -> Reason | None:
    """Warn of a phase that comes only at the end: no forecast contains it until it is too late to make room.

    A phase is often announced when it begins for the first time: it is measured before another step is done.
    """
    steps_total = job.progress.steps_total if job.progress else None
    if "unmeasured-phase" in job.told or not job.progress or not steps_total or job.phases_at_steps is None:
        return None
    unknown = [phase.name for phase in job.phases if phase.units_planned and not phase.is_measured]
    # Share of the steps after which a declared phase that was never seen is pointed out.
    if not unknown or job.progress.steps_done <= max(job.phases_at_steps, 0.25 * steps_total):
        return None
    names = " and ".join(f"`{name}`" for name in unknown)
    has = "has" if len(unknown) == 1 else "have"
    text = (
        f"{names} {has} not been done yet, so no forecast has time for it; do a part before the first step "
        f'(`with punctual.phase("{unknown[0]}", rehearsal=True):`), or declare its cost '
        f'(`phases={{"{unknown[0]}": punctual.Phase(cost_steps=20)}}`)'
    )
    return Reason("unmeasured-phase", text)


def lateness_text(forecast: Forecast, deadline_s: float) -> str:
    """Return a text that says by how much the deadline is missed at full speed."""
    late_s = forecast.earliest_finish_s - deadline_s
    return f"the deadline cannot be met: at full speed the job lands {span(late_s)} after it"


def _change_of_feasibility(job: ScheduledJob, forecast: Forecast | None) -> Reason | None:
    """Return a warning that the deadline has become infeasible or feasible again; None without a change."""
    if forecast is None or forecast.feasible == job.feasible:
        return None
    job.feasible = forecast.feasible
    if (deadline_s := job.spec.deadline_s) is None:  # it was removed
        return None
    late_s = forecast.earliest_finish_s - deadline_s
    if not forecast.feasible:
        text = lateness_text(forecast, deadline_s)
    elif late_s <= 0:
        text = f"the deadline can be met again, with {span(-late_s)} to spare at full speed"
    else:
        text = f"the deadline can perhaps be met: at full speed the job lands about {span(late_s)} after it"
    facts = {"earliest_finish_s": forecast.earliest_finish_s, "deadline_s": deadline_s}
    return Reason("feasible" if forecast.feasible else "infeasible", text, facts)
