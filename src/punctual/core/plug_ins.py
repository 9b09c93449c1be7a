"""The plug-ins of jobs: found by name, asked for a demand or shown a speed, and dropped once they have failed.

A failure costs only its own job its controller or its model.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import hypot, inf, isfinite
from typing import Any, TypeVar

from punctual.core.control import CoreWork, Demand, Forecast, PacingLine, Reading
from punctual.core.errors import InvalidSpec, InvariantBroken
from punctual.core.events import LossReported, ProgressReported
from punctual.core.job import MARGIN_FRAC, JobSpec
from punctual.core.loss import LossCurve
from punctual.core.outbox import Outbox
from punctual.core.protocols import Controller, ConvergenceModel, PerfModel
from punctual.core.reason import Reason
from punctual.core.resources import Resources, largest
from punctual.core.scheduled_job import Periods, ScheduledJob, SpeedSample, new_story
from punctual.core.snapshot_cache import SnapshotCache
from punctual.core.speed import RateCurve, SeenRate

P = TypeVar("P")

#: Source of a family's plug-ins: all of them by name; or a function that makes the one of a name, and raises
#: `InvalidSpec` for an unknown name.
Source = Mapping[str, P] | Callable[[str], P]

#: Failure of a job's plug-in: its code, and the exception.
Failure = tuple[str, Exception]


_TEXTS = {
    "controller-failed": "its controller '{name}' failed, so the job runs at its ceiling: {error}",
    "model-failed": "a model that learns from it failed, so nothing more is learned: {error}",
}


class PlugIns:
    """The plug-ins that jobs name, each made once."""

    def __init__(
        self,
        controllers: Source[Controller[Any]],
        models: Source[PerfModel[Any]],
        convergences: Source[ConvergenceModel[Any]],
    ) -> None:
        self._sources: dict[str, Source[Any]] = {
            "controllers": controllers, "models": models, "convergence models": convergences,
        }  # fmt: skip
        self._made: dict[tuple[str, str], Any] = {}

    def equip(self, job: ScheduledJob) -> list[Failure]:
        """Give a new job its plug-ins; return the failures of those without which it has to do.

        Raises
        ------
        InvalidSpec
            It cannot run at all: a name is unknown, or a plug-in refuses what the job declares.
        """
        failures: list[Failure] = []
        for code, begin in (("controller-failed", self._begin_steering), ("model-failed", self._begin_learning)):
            try:
                begin(job)
            except InvalidSpec:
                raise
            except Exception as error:  # noqa: BLE001 -- a plug-in that fails costs its own job only
                failures.append((code, error))
        return failures

    def _begin_steering(self, job: ScheduledJob) -> None:
        name = job.spec.controller
        if name is not None:
            controller = self._find("controllers", name, job.spec)
            job.controller, job.controller_state = controller, controller.init(job.spec)

    def _begin_learning(self, job: ScheduledJob) -> None:
        spec = job.spec
        if spec.model is not None:
            model = self._find("models", spec.model, spec)
            job.curve = RateCurve(model, model.init(spec))
        if spec.goal is not None:
            convergence = self._find("convergence models", spec.convergence, spec)
            job.losses = LossCurve(convergence, spec.goal, convergence.init())

    def restore(self, job: ScheduledJob) -> list[Failure]:
        """Give the record of `ScheduledJob.without_plug_ins` its plug-ins; return the failures of missing ones."""
        spec, curve, losses = job.spec, job.curve, job.losses
        job.curve, job.losses, job.story = None, None, new_story()
        failures: list[Failure] = []
        try:
            if not job.is_quarantined:
                job.controller = self._find("controllers", spec.controller, spec)
        except InvalidSpec as error:
            failures.append(("controller-failed", error))
        try:
            if curve is not None:
                job.curve = RateCurve(self._find("models", spec.model, spec), curve.state)
            if losses is not None:
                job.losses = replace(losses, model=self._find("convergence models", spec.convergence, spec))
        except InvalidSpec as error:
            failures.append(("model-failed", error))
        return failures

    def _find(self, family: str, name: str | None, spec: JobSpec) -> Any:
        if name is None:
            return None
        plug_in = self._made.get((family, name))
        if plug_in is None:
            plug_in = self._made[family, name] = self._make(family, name, spec)
        return plug_in

    def _make(self, family: str, name: str, spec: JobSpec) -> Any:
        source = self._sources[family]
        try:
            return source[name] if isinstance(source, Mapping) else source(name)
        except InvalidSpec:
            raise
        except Exception as error:
            known = f"Known are: {', '.join(sorted(source)) or 'none'}." if isinstance(source, Mapping) else str(error)
            raise InvalidSpec(
                f"the name must be one of the {family} there are", f"'{name}'", f"job '{spec.id}'", known
            ) from error


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
    if job.controller is None:
        return at_ceiling(job, idle_tick_s)
    reading = _reading(job, at, ceiling_of(job.spec, node_sizes))
    demand, state = job.controller.step(job.spec, job.controller_state, reading)
    demand = _checked(demand, job.spec)
    if job.spec.deadline_s is None:
        demand = replace(at_ceiling(job, idle_tick_s), forecast=demand.forecast)
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
    return spec.ceiling.at_most(largest(node_sizes)).at_least(spec.floor)


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
            seen = SeenRate(shape=job.shape, rate_sps=steps / over_s, over_s=over_s)
            curve = RateCurve(job.curve.model, job.curve.model.update(job.curve.state, seen))
            rate_sps = curve.model.rate_sps(curve.state, seen.shape)  # `RateCurve` would make 0 of an invalid one
            if not 0.0 <= rate_sps < inf:
                raise ValueError(f"a speed of {rate_sps} steps per second")
            job.curve = curve
    # Until the first step `unit_at` is only the beginning of a step if it is the report's own instant.
    begun_at = event.unit_at if event.steps_done or event.unit_at == event.at else inf
    runs_free = job.is_applied and job.asked is not None and job.asked[1] is None
    job.mark = SpeedSample(begun_at, event.steps_done, job.phases, runs_free)


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
        code, error = failure
        text = _TEXTS[code].format(name=job.spec.controller, error=f"{type(error).__name__}: {error}")
        if self._strict:
            raise InvariantBroken(f"job '{job.spec.id}': {text}", job.so_far()) from error
        if code == "controller-failed":
            job.controller, job.controller_state, job.is_quarantined = None, None, True
        else:
            job.curve, job.losses = None, None
            self._cache.touch(job.spec.id)
        self._outbox.warn(at, job, Reason(code, text))

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
        """Return the job's demand from `at` on; `node_sizes` as in the function `next_demand`."""
        idle_s = self._periods.idle_tick_s
        try:
            return next_demand(job, at, idle_s, node_sizes)
        except Exception as error:  # noqa: BLE001 -- see above
            self.disable_plug_in(job, at, ("controller-failed", error))
            return at_ceiling(job, idle_s)
