"""Warnings about a running job, checked at every tick and given once each."""

from collections.abc import Iterator

from punctual.core.control import Forecast
from punctual.core.recent_messages import Reason
from punctual.core.scheduled_job import Periods, ScheduledJob
from punctual.core.units import span


def warnings_at_tick(job: ScheduledJob, periods: Periods) -> Iterator[Reason]:
    """Yield the new warnings about a running job; its grant must be accrued."""
    reasons = (
        _without_progress(job, periods),
        _without_total(job),
        _unmeasured_phases(job),
        _without_losses(job, periods),
    )
    for reason in reasons:
        if reason is not None:
            yield reason


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


def change_of_feasibility(job: ScheduledJob, forecast: Forecast | None) -> Reason | None:
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
