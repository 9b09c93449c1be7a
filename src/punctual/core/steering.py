"""Ask a job's controller for its demand: build the reading, and check the answer."""

from collections.abc import Mapping
from dataclasses import replace
from math import hypot, inf, isfinite
from typing import Any

from punctual.core.control import CoreWork, Demand, Forecast, PacingLine, Reading
from punctual.core.job import MARGIN_FRAC, JobSpec
from punctual.core.recent_messages import Reason
from punctual.core.resources import Resources, largest
from punctual.core.scheduled_job import ScheduledJob

#: Types of a demand's fields, for the check of a controller's answer.
_KINDS: tuple[tuple[str, Any], ...] = (
    ("resources", Resources), ("reason", Reason), ("pacing", PacingLine | None), ("forecast", Forecast | None),
    ("work", CoreWork | None),
)  # fmt: skip
#: Shortest time between two readings, in seconds.
_SOONEST_TICK_S = 0.01
_NO_DEADLINE = Reason("no-deadline", "no deadline is set: the job runs at its ceiling")
_LANDED = Reason("landed", "all declared work is done: the process may leave at full speed")
_QUARANTINED = Reason("controller-failed", "its controller failed: the job runs at its ceiling")


def next_demand(job: ScheduledJob, at: float, idle_tick_s: float, node_sizes: Mapping[Resources, int]) -> Demand:
    """Return the job's demand from `at` on, as its controller says; without a deadline the ceiling, with the controller's forecast.

    Parameters
    ----------
    idle_tick_s
        Seconds until the next tick of a job that is not steered.
    node_sizes
        Number of nodes of each capacity.

    Raises
    ------
    ValueError
        The controller's answer is no demand. What the controller raises passes through.
    """
    if job.has_landed:
        if job.spec.worker is not None and job.demand is not None:  # starting workers would only delay the others
            return replace(job.demand, next_tick_s=idle_tick_s, reason=_LANDED, pacing=None)
        return Demand(resources=job.spec.ceiling, next_tick_s=idle_tick_s, reason=_LANDED)
    free = at_ceiling(job, idle_tick_s)
    if job.controller is None:
        return free
    reading = _reading(job, at, ceiling_of(job.spec, node_sizes))
    demand, state = job.controller.step(job.spec, job.controller_state, reading)
    demand = _checked(demand, job.spec)
    if job.spec.deadline_s is None:
        demand = replace(free, forecast=demand.forecast)
    elif demand.work is None and job.spec.worker is None:
        demand = replace(demand, work=_work_left(job, reading))
    job.controller_state = state
    return demand if not reading.steps_total_std else _widened(demand, reading)


def at_ceiling(job: ScheduledJob, idle_tick_s: float) -> Demand:
    """Return the demand of a job without steering, its ceiling."""
    reason = _QUARANTINED if job.is_quarantined else _NO_DEADLINE
    return Demand(resources=job.spec.ceiling, next_tick_s=idle_tick_s, reason=reason)


def ceiling_of(spec: JobSpec, node_sizes: Mapping[Resources, int]) -> Resources:
    """Return the upper bound of a grant, given the number of nodes of each size; only workers span several nodes."""
    worker = spec.worker
    if worker is not None and spec.server is None:
        n_workers = sum(n_nodes * capacity.n_times(worker) for capacity, n_nodes in node_sizes.items())
        return spec.ceiling.at_most(worker * n_workers).at_least(spec.floor)
    return spec.ceiling.at_most(largest(tuple(node_sizes))).at_least(spec.floor)


def _reading(job: ScheduledJob, at: float, ceiling: Resources) -> Reading:
    progress = job.progress
    steps, steps_std = job.steps_total()
    return Reading(
        elapsed_s=at - job.submitted_at,
        deadline_s=inf if job.spec.deadline_s is None else job.spec.deadline_s,
        held_since_s=job.held_since_at - job.submitted_at,
        granted=job.held,
        granted_core_s=job.granted_core_s,
        used_core_s=progress.used_core_s if progress else 0.0,
        in_flight_core_s=progress.in_flight_core_s if progress else 0.0,
        unit_at_s=progress.unit_at - job.submitted_at if progress else 0.0,
        steps_done=progress.steps_done if progress else 0.0,
        steps_total=steps,
        steps_total_std=steps_std,
        ceiling=ceiling,
        phases=job.phases,
        landed=job.has_landed,
        can_pace=job.can_pace and not (progress is not None and progress.is_read),
        can_cap=job.can_cap,
        shape=job.shape,
        curve=job.curve,
        report_age_s=max(0.0, at - progress.at) if progress and job.held else 0.0,
        busy_s=progress.busy_s if progress else 0.0,
        device_s=progress.device_s if progress else 0.0,
        active_s=progress.active_s if progress else 0.0,
    )


def _work_left(job: ScheduledJob, reading: Reading) -> CoreWork | None:
    """Return the job's work on a share of cores at the cost of its steps so far, due a margin early; None: unknown."""
    spec, steps = job.spec, reading.steps_total
    if steps is None or job.begun is None:
        return None
    n_steps = reading.steps_done - job.begun[0]
    used_core_s = reading.used_core_s - reading.in_flight_core_s - job.begun[1]
    if n_steps <= 0 or used_core_s <= 0:
        return None
    core_s = used_core_s / n_steps * max(0.0, steps - reading.steps_done)
    margin_frac = MARGIN_FRAC if spec.margin_frac is None else spec.margin_frac
    return CoreWork(
        core_s=core_s,
        # Relative standard deviation of a step's mean cost, for controllers that do not state the remaining work.
        std_core_s=core_s * 0.05,
        usable_cores=reading.ceiling.cores,
        due_s=reading.deadline_s * (1.0 - margin_frac),
        slack_s=reading.deadline_s * margin_frac,
    )


def _checked(demand: Any, spec: JobSpec) -> Demand:
    """Return `demand` within the job's bounds.

    Raises
    ------
    ValueError
        It is no demand.
    """
    is_whole = isinstance(demand, Demand) and all(isinstance(getattr(demand, name), kind) for name, kind in _KINDS)
    if not (is_whole and 0.0 < demand.next_tick_s < inf and _is_sound(demand.work, spec.deadline_s)):
        raise ValueError(f"it demands {demand!r}")
    checked: Demand = demand
    if checked.next_tick_s < _SOONEST_TICK_S:
        checked = replace(checked, next_tick_s=_SOONEST_TICK_S)
    return checked if checked.resources.fits_in(spec.ceiling) else replace(checked, resources=spec.ceiling)


def _is_sound(work: CoreWork | None, deadline_s: float | None) -> bool:
    if work is None or deadline_s is None:  # it is due at no instant, and not used
        return True
    amounts = (work.core_s, work.std_core_s, work.usable_cores, work.slack_s)
    return isfinite(work.due_s) and all(0.0 <= amount < inf for amount in amounts)


def _widened(demand: Demand, reading: Reading) -> Demand:
    """Return the demand with the uncertainty of the number of steps in its forecast and its work."""
    forecast, work, steps = demand.forecast, demand.work, reading.steps_total
    if steps is None or steps <= reading.steps_done:
        return demand
    std_frac = reading.steps_total_std / (steps - reading.steps_done)
    if work is not None:
        work = replace(work, std_core_s=hypot(work.std_core_s, work.core_s * std_frac))
    if forecast is not None:
        left_s = max(0.0, forecast.finish_s - reading.elapsed_s)
        forecast = replace(forecast, std_s=hypot(forecast.std_s, left_s * std_frac))
    return replace(demand, forecast=forecast, work=work)
