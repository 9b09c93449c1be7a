"""Receding-horizon control by the cost of the remaining work."""

from dataclasses import dataclass, field, replace
from math import hypot, inf, isfinite, log

from punctual.controllers import _cost
from punctual.controllers._base import (
    SKIPPED_STEPS,
    blend,
    core_bounds,
    is_another_run,
    largest_unit_steps,
    measured_since,
    units_done,
    waiting_tick_s,
    wanted,
    with_declared,
    work,
)
from punctual.controllers._cost import Cost, DearSteps, SlowMean, Span, drifted
from punctual.controllers._landing import (
    LEAD_FRAC,
    LandingController,
    LandingState,
    is_kept,
    judged,
    landing_std_s,
    line_to,
    waits,
)
from punctual.controllers._own_time import OwnTime, own_reading, own_spec
from punctual.core.control import INTERVAL_SIGMAS, CoreWork, Demand, Forecast, PacingLine, Reading
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import LEAST_CORES, TOLERANCE
from punctual.core.units import span

#: A cost sample needs at least this much CPU, because the clocks behind it tick.
_SAMPLE_CORE_S = 0.08
#: Wall seconds over which delivery (and what the job can use at all) is averaged.
_DELIVERY_S = 2.0
#: The same for the delivery by which the work left is told. Promises rest on it, and jobs that start beside this one take cores
#: only for seconds.
_LASTING_DELIVERY_S = 15.0
#: Spread of the usable cores until they were seen to vary, as a share of what the job does not use of its ceiling: neighbours
#: that take it may come and go.
_UNUSED_FRAC = 0.5
#: A demand of this part of a job's usable cores becomes all of them: a quota a little below only costs precision.
_NEARLY_ALL_FRAC = 0.97
#: Where only pacing slows a job, its line leads to the deadline as long as the job holds what it demands, within this
#: share; otherwise to the end of what it holds, and that line is kept while its end moves by less than the second share.
_GRANT_BAND_FRAC, _LINE_BAND_FRAC = 0.1, 0.02
#: A line that leaves time for a dear step is kept while that time is right within this share.
_DEAR_BAND_FRAC = 0.2
#: A job under a quota is at most a few slices of some 20 ms behind where its average rate would have it.
_SLICES_S = 0.15
#: Units that were timed before the first step count as waiting only if they waited longer than this together.
_REHEARSED_WAIT_S = 1.0
#: No step is skipped if one costs this much.
_LONG_STEP_CORE_S = 0.5
#: What waits for a disk differs from time to time: the last unit of a phase has as much time again as it is expected to
#: take, but no more than this share of the time left. It waits for the line if it does not need it.
_SPARE_FRAC = 0.02


#: A job that uses less than this where it may use a core does not compute most of the time. Leaving is computation.
_EXIT_CORES_LEAST = 0.5

#: How exactly a job lands that only its quota holds: a standard deviation as a share of its largest unit. Measured:
#: bench/forecasts.py.
_LANDED_UNIT_FRAC = 0.2


@dataclass(frozen=True, slots=True)
class _StepCostSample:
    """Cost of `n_steps` steps until `steps_done`: `step_s` core-seconds each."""

    step_s: float
    n_steps: float
    core_s: float
    wall_s: float
    steps_done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingCostState(LandingState):
    """State between two readings.

    Attributes
    ----------
    cost
        Cost of one step; None until the first sample.
    dear, held
        Steps that cost far more than the others; and the last sample if it may hold one. If the next is as dear the cost
        has changed, and both are learned from.
    phase_wait_s
        Time that one unit takes beside its CPU time (waiting for the disk), seconds.
    usable_cores
        Usable cores, as its last seconds at its ceiling showed, or seconds in which it used more than this; None: it
        has never held its ceiling. Demand and earliest landing rest on it and follow at once what the job does.
    lasting_cores
        The same over `_LASTING_DELIVERY_S`. Policies get this one, so that a few seconds in which neighbours took
        cores cost no promise.
    most_cores
        The highest `usable_cores` so far. Below its ceiling a job does not show what it could use: both others go back to this
        then, so that what neighbours took is forgotten.
    cores
        Slow mean of `usable_cores` and how it varies, for the interval of the forecast.
    delivery, lasting_delivery
        Used over granted while the grant held the job back: lately, and over a longer time.
    begun
        Steps and CPU time at the first report of a step; None: there was none yet.
    steps_done, report_steps
        Steps at the reading before, and by how many they grew when they did so last and the time before: an output tells
        of every tenth step, or of epochs.
    own
        Whether the job is steered in its own time, and what that needs of cores. All of the above is in own seconds then.
    """

    cost: Cost | None = None
    dear: DearSteps = field(default_factory=DearSteps)
    held: _StepCostSample | None = None
    phase_wait_s: dict[str, float] = field(default_factory=dict)
    usable_cores: float | None = None
    lasting_cores: float | None = None
    most_cores: float = 0.0
    cores: SlowMean | None = None
    delivery: float = 1.0
    lasting_delivery: float = 1.0
    demanded_cores: float | None = None
    front_loading: bool = False
    begun: tuple[float, float] | None = None
    steps_done: float = 0.0
    report_steps: tuple[float, float] = (1.0, 1.0)
    own: OwnTime = field(default_factory=OwnTime)


@dataclass(frozen=True, slots=True)
class _Projection:
    """Remaining work, from the present state.

    `work_left` counts dear steps that are still expected; `paced_left` does not, as lines do not. The last of them may be
    the last step, and take `dear_wall_s` longer than another.
    `need_core_s` is what the work left is expected to cost; `safe_core_s` takes a cost above its mean for lasting.
    The demand rests on the latter: if the cost falls again the job is early and pacing holds it back, but a job that
    waited for a rise to pass may find that nothing can make up for it.
    """

    work_left: float
    paced_left: float
    need_core_s: float
    safe_core_s: float
    wait_s: float
    aim_s: float
    time_s: float
    risk_frac: float
    usable_cores: float
    unit_core_s: float
    unit_wall_s: float
    dear_wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingCost(LandingController):
    """Give the job what its remaining work costs, over the time that remains.

    Use it for any job whose progress is reported and whose CPU use is measured; it needs no tuning. A job that computes on
    a device, or mostly waits, is steered in its own time (`punctual.controllers._own_time`).

    Parameters
    ----------
    exit_core_s, exit_frac
        A job that only the quota steers has landed when its process has ended, and no step tells of its leaving. A process
        leaves by what it came with: modules and memory. This share of the CPU time before its first step is added to its
        margin, but at most so many core-seconds: before its first step it may also have read its data.
    deadband_frac, deadband_unpaced_frac
        A demand closer than this to the last one is not made. What a wide band leaves open the pacing line closes;
        where the quota lands the job alone it must be narrow.
    risk_sigmas
        Standard deviations of the cost's forecast that must fit under the ceiling; otherwise the job runs at its
        ceiling while it can ("front-loading").
    The others are those of `LandingController`.

    Notes
    -----
    *Symbols.* V work in steps, with a unit of phase i counted as rho_i steps; c core-seconds per step; D deadline;
    m margin; t now; w waiting time in the phases left; a core-seconds already spent on the unit in flight; eta
    delivered over granted cores; p cores that the job can use.

    *Formula.* ``u = (max(c_f, c) (V_total - V) - a) / (eta (D - m - t - w))``, with c_f the forecast of c over the
    time left (`punctual.controllers._cost`), bounded by floor and ceiling; the ceiling is demanded when u comes near p.

    *Source.* Own; the measurements behind each term are in docs/explanation/controllers/remaining-cost.md.

    *Properties.* Deterministic; O(phases) a step. On the plant dV/dt = eta u / c with constant c the closed loop lands
    at D - m from any state from which that is possible, because the law is exact there: see the derivation.

    *Fails when* neither CPU time nor a device nor waiting that is always the same limits the job.
    """

    exit_core_s: float = 1.0
    exit_frac: float = 0.5
    deadband_frac: float = 0.05
    deadband_unpaced_frac: float = 0.01
    risk_sigmas: float = 2.5

    def init(self, spec: JobSpec) -> RemainingCostState:
        return RemainingCostState()

    def step(self, spec: JobSpec, state: RemainingCostState, reading: Reading) -> tuple[Demand, RemainingCostState]:
        """The demand after `reading`, and the state for the next one."""
        tells_time = spec.worker is None and reading.can_pace and reading.busy_s > 0.0
        own = state.own.seen(reading) if tells_time else OwnTime()
        if own.applies != state.own.applies:  # what was learned is in other units
            state = RemainingCostState(margin=state.margin, feasible=state.feasible, deadline_s=state.deadline_s)
        state = replace(state, own=own)
        if not own.applies:
            demand, state = self._steered(spec, state, reading)
            if own.is_doubted and demand.work is not None:
                demand = replace(demand, work=replace(demand.work, is_steady=False))
            return demand, state
        demand, state = self._steered(own_spec(spec), state, own_reading(spec, reading, state.demanded_cores))
        cores = own.cores_for(spec, reading, demand.resources.cores)
        reason = demand.reason if demand.forecast is None else _reason_to_pace(demand, reading, cores)
        return replace(
            demand, resources=wanted(spec, reading, cores), reason=reason, work=_own_work(demand, cores)
        ), state

    def _steered(self, spec: JobSpec, state: RemainingCostState, reading: Reading) -> tuple[Demand, RemainingCostState]:
        cost, moved = self.learned(state, reading, state.cost, _cost.elsewhere)
        state = _learn(self.seen(replace(state, cost=cost, **moved), reading), reading)
        state = _learn_reports(state, reading)
        if state.cost is None or reading.steps_total is None:
            return self._warm_up(spec, state, reading)
        outlook = self._outlook(spec, state, reading, state.cost)
        if not isfinite(reading.deadline_s):
            return self._run_free(spec, state, reading, outlook)
        state = judged(
            state,
            reading,
            earliest_s=_earliest_s(reading, outlook),
            doubt_s=_doubt_s(outlook),
            seen_s=state.cost.seen_s,
        )
        state = replace(state, front_loading=self._front_loading(state, outlook), deadline_s=reading.deadline_s)
        state = replace(state, line=self._line(state, reading, outlook))
        cores, reason = self._cores(spec, state, reading, outlook)
        forecast = self._forecast(spec, state, reading, outlook, cores)
        demand = Demand(
            resources=wanted(spec, reading, cores),
            next_tick_s=self._period_s(outlook),
            reason=replace(reason, facts={**reason.facts, "finish_s": forecast.finish_s}),
            pacing=state.line,
            forecast=forecast,
            work=self._work_left(spec, state, reading, outlook),
        )
        return demand, replace(state, demanded_cores=cores)

    def _warm_up(self, spec: JobSpec, state: RemainingCostState, reading: Reading) -> tuple[Demand, RemainingCostState]:
        if reading.steps_done <= 0:
            reason = Reason("start-up", "the job starts up at its ceiling: no step has been reported yet")
        elif reading.steps_total is None:
            reason = Reason("no-total", "the number of steps is not known, so the job runs at its ceiling")
        else:
            reason = Reason("warm-up", "the first steps are timed at the ceiling")
        resources = wanted(spec, reading, reading.ceiling.cores)
        next_tick_s = waiting_tick_s(reading, 2.0 * self.tick_least_s, self.tick_long_s)
        demand = Demand(resources=resources, next_tick_s=next_tick_s, reason=reason)
        return demand, replace(state, demanded_cores=resources.cores)

    def _run_free(
        self, spec: JobSpec, state: RemainingCostState, reading: Reading, outlook: _Projection
    ) -> tuple[Demand, RemainingCostState]:
        """Demand the ceiling of a job without a deadline, and forecast its landing at what it holds."""
        cores = outlook.usable_cores
        if reading.can_cap and reading.granted.cores > 0.0:
            cores = min(cores, state.lasting_delivery * reading.granted.cores)
        left_s = outlook.wait_s + outlook.need_core_s / cores
        forecast = Forecast(
            finish_s=reading.elapsed_s + left_s,
            std_s=left_s * _error_frac(state, left_s),
            earliest_finish_s=_earliest_s(reading, outlook),
            feasible=True,
        )
        reason = Reason("no-deadline", "no deadline is set: the job runs at its ceiling")
        resources = wanted(spec, reading, reading.ceiling.cores)
        demand = Demand(resources=resources, next_tick_s=self.tick_long_s, reason=reason, forecast=forecast)
        return demand, replace(
            state,
            feasible=True,
            doubt_since_s=None,
            front_loading=False,
            line=None,
            deadline_s=inf,
            demanded_cores=resources.cores,
        )

    def _margin_s(self, spec: JobSpec, state: RemainingCostState, reading: Reading) -> float:
        # It leaves on one core, or on what neighbours leave of that.
        cores = max(min(1.0, reading.ceiling.cores, state.usable_cores or 1.0), _EXIT_CORES_LEAST)
        exit_core_s = self._exit_core_s(state, reading) if spec.margin_frac is None else 0.0
        # What is declared to come after the steps counts the leaving as well.
        exit_core_s = max(0.0, exit_core_s - _after_steps_core_s(spec, state, reading))
        return self.margin_s(spec, state, reading) + exit_core_s / cores

    def _exit_core_s(self, state: RemainingCostState, reading: Reading) -> float:
        """CPU time that the process is expected to take for leaving; 0 where it has landed before."""
        return 0.0 if reading.can_pace else min(self.exit_core_s, self.exit_frac * _start_core_s(state))

    def _outlook(self, spec: JobSpec, state: RemainingCostState, reading: Reading, cost: Cost) -> _Projection:
        has_deadline = isfinite(reading.deadline_s)
        aim_s = reading.deadline_s - (self._margin_s(spec, state, reading) if has_deadline else 0.0)
        work_total, work_done = work(state.phase_steps, reading)
        usable_cores = max(min(reading.ceiling.cores, state.usable_cores or reading.ceiling.cores), LEAST_CORES)
        wait_s = _waiting_left_s(state, reading) + _after_steps_core_s(spec, state, reading) / usable_cores
        time_s = aim_s - reading.elapsed_s - wait_s
        paced_left = max(0.0, work_total - work_done)
        # A program that is only read lands after what follows its last step, as an evaluation that seems to be of the next.
        is_followed = state.dear.n > 1 and not reading.can_pace
        last_step = (reading.steps_total or 0.0) + is_followed * max(state.report_steps)
        n_expected, n_most = state.dear.left(reading.steps_done, last_step)
        work_left = paced_left + n_expected * state.dear.mean_steps
        most_left = paced_left + n_most * state.dear.mean_steps
        dear_steps = state.dear.most_steps if n_most >= 0.5 else 0.0
        # A job that is late works longer than until its deadline.
        horizon_s = max(time_s if has_deadline else 0.0, work_left * cost.mean / usable_cores)
        step_s = cost.forecast_s(horizon_s)
        # More than one unit can never be in flight: what is beyond was spent elsewhere (a helper process, say). Of an output
        # that is a whole report.
        report_steps = 1.0 if reading.can_pace else max(state.report_steps)
        unit_core_s = step_s * max(largest_unit_steps(state.phase_steps), report_steps + dear_steps)
        credit_s = min(reading.in_flight_core_s, unit_core_s)
        granted_cores = max(min(reading.granted.cores, usable_cores), 1e-3)
        return _Projection(
            work_left=work_left,
            paced_left=paced_left,
            need_core_s=max(step_s * work_left - credit_s, 0.0),
            safe_core_s=max(max(step_s, cost.now_s) * most_left - credit_s, 0.0),
            wait_s=wait_s,
            aim_s=aim_s,
            time_s=time_s,
            risk_frac=cost.risk_frac(horizon_s),
            usable_cores=usable_cores,
            unit_core_s=unit_core_s,
            unit_wall_s=unit_core_s / granted_cores,
            dear_wall_s=step_s * dear_steps / usable_cores,
        )

    def _work_left(
        self, spec: JobSpec, state: RemainingCostState, reading: Reading, outlook: _Projection
    ) -> CoreWork | None:
        """Remaining work in core-seconds as granted; None for a job made of workers.

        A cost that is above its mean just now, as while others start beside the job, is a deviation of what is left and
        not the expectation: no promise is given up for it.
        """
        if spec.worker is not None:
            return None
        core_s = outlook.need_core_s / state.lasting_delivery
        above_mean_core_s = (outlook.safe_core_s - outlook.need_core_s) / state.lasting_delivery
        lasting_cores = max(state.lasting_cores or outlook.usable_cores, outlook.usable_cores)
        due_s = outlook.aim_s - outlook.wait_s - self._reserve_s(state, reading)
        return CoreWork(
            core_s=core_s,
            std_core_s=max(outlook.risk_frac * core_s, above_mean_core_s),
            usable_cores=min(lasting_cores / min(state.lasting_delivery, 1.0), core_bounds(spec, reading)[1]),
            due_s=due_s,
            slack_s=max(0.0, reading.deadline_s - outlook.wait_s - due_s),
            delivered_frac=state.lasting_delivery,
        )

    def _reserve_s(self, state: RemainingCostState, reading: Reading) -> float:
        """Seconds by which the job aims earlier than the end of its line while no line holds it back."""
        return self.reserve_frac * reading.deadline_s if reading.can_pace and state.line is None else 0.0

    def _front_loading(self, state: RemainingCostState, outlook: _Projection) -> bool:
        """Whether so little room is left above the demand that the job should run ahead while it can."""
        padded_core_s = outlook.need_core_s * (1.0 + self.risk_sigmas * outlook.risk_frac)
        room = _NEARLY_ALL_FRAC if state.front_loading else 1.0
        return padded_core_s > room * outlook.usable_cores * outlook.time_s

    def _line(self, state: RemainingCostState, reading: Reading, outlook: _Projection) -> PacingLine | None:
        """Return the pacing line; the present one while it leads to the end of the work."""
        left_s = outlook.aim_s - reading.elapsed_s
        landing = self.is_landing(left_s, reading, outlook.unit_wall_s)
        # If nothing else slows the job, pacing must do it all the way.
        due = landing or not reading.can_cap
        if outlook.paced_left <= 0.0 or outlook.time_s <= 0.0:
            return state.line
        if not reading.can_pace or not due:
            return None
        if _is_held_otherwise(state, reading):
            return _line_of_grant(state, reading, outlook)
        if state.front_loading and not landing:
            return None
        reserve_s = 0.0 if landing else min(self.reserve_frac * reading.deadline_s, 0.5 * outlook.time_s)
        # Nothing makes up for a dear step that is the last.
        reserve_s += min(outlook.dear_wall_s, 0.9 * (outlook.time_s - reserve_s))
        end_s = outlook.aim_s - reserve_s
        if is_kept(state.line, end_s, _DEAR_BAND_FRAC * outlook.dear_wall_s + 1e-9, reading):
            return state.line
        s_per_step = (1.0 + LEAD_FRAC) * (outlook.time_s - reserve_s) / outlook.paced_left
        return _line_to(end_s, s_per_step, state, reading)

    def _cores(
        self, spec: JobSpec, state: RemainingCostState, reading: Reading, outlook: _Projection
    ) -> tuple[float, Reason]:
        least, most = core_bounds(spec, reading)
        if not state.feasible:
            return most, Reason("infeasible", "the deadline cannot be met: the job runs at its ceiling")
        # An output may end before its count does: what is in flight has cost what all that is left would, and the process leaves.
        is_spent = not reading.can_pace and outlook.need_core_s <= 0.0
        if outlook.time_s <= 0.0 or outlook.work_left <= 0.0 or is_spent:
            return most, Reason("end", "the last unit of work may end at full speed")
        if state.front_loading:
            return most, _reason("front-load", "little room is left: the job runs ahead while it can", outlook)
        needed = self._needed_cores(state, reading, outlook)
        if needed > _NEARLY_ALL_FRAC * outlook.usable_cores:
            return most, _reason("ceiling", "the remaining work needs all that the job can use", outlook)
        last, band = state.demanded_cores, self.deadband_frac if reading.can_pace else self.deadband_unpaced_frac
        # While the job lands, a higher demand is made at once.
        band_up = 0.0 if state.line is not None and reading.can_cap else band
        if last is not None and -band * last <= needed - last <= band_up * last:
            needed = last
        cores = min(max(needed, least), most)
        if needed < least:
            return cores, _reason("floor", f"{cores:.2f} cores are the least that the job may hold", outlook)
        return cores, _reason("track", f"{cores:.2f} cores bring the job to its deadline", outlook)

    def _needed_cores(self, state: RemainingCostState, reading: Reading, outlook: _Projection) -> float:
        if state.line is None or not reading.can_cap:
            time_s = max(outlook.time_s - self._reserve_s(state, reading), 1e-3)
            needed = outlook.safe_core_s / (state.delivery * time_s)
            if outlook.time_s > self.tick_least_s:
                return needed
            # Before the next tick the work may be done: the process is to leave at once, on one core.
            return max(needed, min(self._exit_core_s(state, reading) / self.tick_least_s, 1.0))
        # The line does the fine work. The quota lets the job be done some slices before the end of the line, so that it can
        # make up for cores that neighbours take; for the last units it opens.
        time_s = outlook.time_s - _SLICES_S
        if time_s < outlook.unit_core_s / outlook.usable_cores:
            return reading.ceiling.cores
        return 1.1 * outlook.safe_core_s / (state.delivery * time_s) + 0.02

    def _forecast(
        self, spec: JobSpec, state: RemainingCostState, reading: Reading, outlook: _Projection, cores: float
    ) -> Forecast:
        earliest_s = _earliest_s(reading, outlook)
        left_s = max(earliest_s - reading.elapsed_s, 0.0)
        earliest_std_s = left_s * _error_frac(state, left_s)
        at_ceiling = cores >= _NEARLY_ALL_FRAC * outlook.usable_cores
        if at_ceiling and not state.front_loading and state.line is None:
            finish_s, std_s = earliest_s, earliest_std_s
        else:
            # While there is room the loop corrects what the cost does; where a line lands it, with the margin it will learn.
            margin_s = reading.deadline_s - outlook.aim_s
            if reading.can_pace and spec.margin_frac is None and state.margin.margin_s is None:
                margin_s = min(margin_s, self.margin_least_s)
            finish_s = max(reading.deadline_s - margin_s, earliest_s)
            landed_std_s = self.landed_std_s if reading.can_pace else _LANDED_UNIT_FRAC * outlook.unit_wall_s
            at_least_s = self._at_least_s(spec, state, reading, outlook)
            if at_least_s < finish_s:  # with the least that it may hold it is done before its deadline
                finish_s = max(at_least_s, earliest_s)
                landed_std_s = max(landed_std_s, (finish_s - reading.elapsed_s) * _error_frac(state, left_s))
            std_s = landing_std_s(landed_std_s, finish_s, earliest_s, earliest_std_s)
        return Forecast(finish_s=finish_s, std_s=std_s, earliest_finish_s=earliest_s, feasible=state.feasible)

    def _at_least_s(self, spec: JobSpec, state: RemainingCostState, reading: Reading, outlook: _Projection) -> float:
        """Expected landing with the least amount it may hold; infinite if a line holds it back."""
        least_cores = max(core_bounds(spec, reading)[0] * state.lasting_delivery, TOLERANCE)
        left_s = outlook.wait_s + outlook.need_core_s / min(least_cores, outlook.usable_cores)
        is_paced = state.line is not None or not reading.can_cap
        if is_paced or (reading.can_pace and self.is_landing(outlook.time_s - left_s, reading, outlook.unit_wall_s)):
            return inf
        return reading.elapsed_s + left_s

    @property
    def landed_std_s(self) -> float:
        """Standard deviation of a landing on a line: its margin is the least, or still the first."""
        return (self.margin_first_s - self.margin_least_s) / INTERVAL_SIGMAS

    def _period_s(self, outlook: _Projection) -> float:
        return min(max(0.1 * outlook.time_s, self.tick_least_s), self.longest_tick_s(outlook.time_s))


def _own_work(demand: Demand, cores: float) -> CoreWork | None:
    """Return the work of a job in its own time: `cores` for as long as it takes. No promise rests on it."""
    work = demand.work
    if work is None:
        return None
    core_s, std_core_s = (cores * own_s / work.usable_cores for own_s in (work.core_s, work.std_core_s))
    return replace(work, core_s=core_s, std_core_s=std_core_s, usable_cores=cores, delivered_frac=1.0, is_steady=False)


def _reason_to_pace(demand: Demand, reading: Reading, cores: float) -> Reason:
    """Return the reason for the demand of a job in its own time."""
    what = "computes on a device" if reading.device_s > 0.0 else "mostly waits, and cores do not make it faster"
    text = f"the job {what}: {cores:.2f} cores are enough, and pacing brings it to its deadline"
    if demand.reason.code in ("infeasible", "ceiling", "end", "front-load"):
        text = f"the job {what}: {cores:.2f} cores are enough, and it runs as fast as it can"
    return Reason(f"own-{demand.reason.code}", text, demand.reason.facts)


def _is_held_otherwise(state: RemainingCostState, reading: Reading) -> bool:
    """Whether the job is given less than it demands, or more, and nothing but pacing holds it to that."""
    if reading.can_cap or state.demanded_cores is None:
        return False
    return abs(reading.granted.cores - state.demanded_cores) > _GRANT_BAND_FRAC * state.demanded_cores


def _line_to(end_s: float, s_per_step: float, state: RemainingCostState, reading: Reading) -> PacingLine:
    """The line of this slope on which the work ends at `end_s`."""
    costs = {}
    for phase in reading.phases:
        steps = state.phase_steps.get(phase.name, 0.0) + state.phase_wait_s.get(phase.name, 0.0) / s_per_step
        is_last = phase.units_planned - phase.units_done <= 1
        spare_s = min(steps * s_per_step, _SPARE_FRAC * (end_s - reading.elapsed_s)) if is_last else 0.0
        costs[phase.name] = steps + max(0.0, spare_s) / s_per_step
    return line_to(end_s, s_per_step, costs, reading)


def _line_of_grant(state: RemainingCostState, reading: Reading, outlook: _Projection) -> PacingLine | None:
    """Return the line of a job that uses all of its grant."""
    if outlook.need_core_s <= 0:  # the unit under way is all that is left, and dearer than expected
        return state.line
    time_s = outlook.need_core_s / max(min(reading.granted.cores, outlook.usable_cores), 1e-3)
    end_s = reading.elapsed_s + outlook.wait_s + time_s
    if state.line is not None and is_kept(state.line, end_s, _LINE_BAND_FRAC * time_s, reading):
        return state.line
    return _line_to(end_s, time_s / outlook.paced_left, state, reading)


def _reason(code: str, text: str, outlook: _Projection) -> Reason:
    facts = {"work_left_steps": outlook.work_left, "need_core_s": outlook.need_core_s, "time_left_s": outlook.time_s}
    return Reason(code, f"{text} ({outlook.need_core_s:.1f} core-s of work in {span(max(0.0, outlook.time_s))})", facts)


def _waiting_left_s(state: RemainingCostState, reading: Reading) -> float:
    """Seconds that the phases left will wait without computing."""
    return sum(
        state.phase_wait_s.get(phase.name, 0.0) * max(phase.units_planned - phase.units_done, 0.0)
        for phase in reading.phases
    )


def _earliest_s(reading: Reading, outlook: _Projection) -> float:
    return reading.elapsed_s + outlook.wait_s + outlook.need_core_s / outlook.usable_cores


def _error_frac(state: RemainingCostState, left_s: float) -> float:
    """Return the relative error of the remaining cost and the cores that the job can use for it."""
    cost_frac = state.cost.error_frac(left_s) if state.cost else 0.0
    return hypot(cost_frac, state.cores.error_frac(left_s, _DELIVERY_S)) if state.cores else cost_frac


def _doubt_s(outlook: _Projection) -> float:
    """Seconds of doubt in the earliest landing: the unit in flight may be cheaper, or be done and wait for its line."""
    return outlook.risk_frac * max(outlook.time_s, 0.0) + 0.5 * outlook.unit_core_s / outlook.usable_cores


def _learn_reports(state: RemainingCostState, reading: Reading) -> RemainingCostState:
    """Return the state with how many steps a report tells of, and what came before the first."""
    begun, grown = state.begun, reading.steps_done - state.steps_done
    if begun is None and reading.steps_done > 0:
        begun = reading.steps_done, _unit_core_s(reading)
    reports = (grown, state.report_steps[0]) if grown > 0 else state.report_steps
    return replace(state, begun=begun, steps_done=reading.steps_done, report_steps=reports)


def _after_steps_core_s(spec: JobSpec, state: RemainingCostState, reading: Reading) -> float:
    """Declared CPU time of a program that is only read, for what comes after its last step: an evaluation, a model to write."""
    if reading.can_pace or spec.work_core_s is None or state.cost is None or reading.steps_total is None:
        return 0.0
    steps_core_s, done_core_s = (steps * state.cost.mean for steps in work(state.phase_steps, reading))
    spent_core_s = max(0.0, done_core_s + reading.in_flight_core_s - steps_core_s)
    return max(0.0, spec.work_core_s - _start_core_s(state) - steps_core_s - spent_core_s)


def _start_core_s(state: RemainingCostState) -> float:
    """CPU time that the process took before its first step."""
    if state.begun is None or state.cost is None:
        return 0.0
    steps, core_s = state.begun
    start_core_s = core_s - steps * state.cost.mean
    # Where the steps would have cost far more than there was, an earlier process has taken them.
    return max(start_core_s, 0.0) if start_core_s > -core_s else core_s


def _learn(state: RemainingCostState, reading: Reading) -> RemainingCostState:
    """Learn cost, phases and delivery since the mark; a sample moves the mark."""
    mark, reading = state.mark, reading.to_remember()
    if mark is None or is_another_run(mark, reading) or (reading.steps_done == mark.steps_done and not state.warm):
        # Nothing was trained yet, or what was belongs to another run.
        goes_on = mark is None or reading.steps_done >= mark.steps_done
        dear = state.dear if goes_on else DearSteps(reading.steps_done)
        return replace(state, mark=reading, warm=False, dear=dear, held=None)
    core_s = _unit_core_s(reading) - _unit_core_s(mark)
    steps = reading.steps_done - mark.steps_done
    if not state.warm:
        return _learn_first(state, reading, steps, core_s)
    if units_done(reading) != units_done(mark):
        return replace(_learn_phases(state, reading, mark), mark=reading)
    if steps <= 0 or core_s / steps <= 1e-12:
        return state
    if core_s < (_SAMPLE_CORE_S if state.cost else _first_sample_core_s(core_s / steps)):
        return state
    state = _learn_cost(state, reading, core_s / steps, steps, core_s)
    return replace(_learn_delivery(state, reading, mark), mark=reading)


def _learn_first(state: RemainingCostState, reading: Reading, steps: float, core_s: float) -> RemainingCostState:
    """The first steps set up kernels and caches and do not count, unless they are so long that this is little."""
    if core_s / steps >= _LONG_STEP_CORE_S:
        if state.mark is None or state.mark.unit_at_s <= state.mark.held_since_s:
            # CPU time before the first report went into starting the process, not into steps: a sample begins here.
            return replace(state, mark=reading)
        state = _learn_cost(state, reading, core_s / steps, steps, core_s)
    elif steps < SKIPPED_STEPS:
        return state
    return replace(state, mark=reading, warm=True)


def _first_sample_core_s(step_core_s: float) -> float:
    """CPU that the first sample must span: half a second, but no more than eight steps where these are long."""
    return min(0.5, max(8.0 * step_core_s, _SAMPLE_CORE_S))


def _unit_core_s(reading: Reading) -> float:
    """CPU time used when the last unit was completed."""
    return reading.used_core_s - reading.in_flight_core_s


def _learn_cost(
    state: RemainingCostState, reading: Reading, sample_s: float, steps: float, core_s: float
) -> RemainingCostState:
    if state.cost is None:
        state = replace(state, cost=_cost.first(sample_s, steps), dear=DearSteps(reading.steps_done))
        return _learn_phases(state, reading, None)
    wall_s = max(reading.unit_at_s - state.mark.unit_at_s, 0.0) if state.mark else 0.0
    sample, held = _StepCostSample(sample_s, steps, core_s, wall_s, reading.steps_done), state.held
    cost, dear = state.cost, state.dear
    if held is not None and abs(log(sample_s / held.step_s)) < 0.5 * log(held.step_s / cost.now_s):
        return replace(state, cost=_updated(_updated(cost, held), sample), held=None)
    if held is not None:
        at = Span(held.steps_done - held.n_steps + 1.0, held.steps_done)
        dear = dear.seen(_extra_steps(cost, held), at)
    if _cost.is_dear(cost, sample_s) and dear.is_one(_extra_steps(cost, sample)):
        return replace(state, dear=dear, held=sample)
    return replace(state, cost=_updated(cost, sample), dear=dear, held=None)


def _extra_steps(cost: Cost, sample: _StepCostSample) -> float:
    return sample.core_s / cost.now_s - sample.n_steps


def _updated(cost: Cost, sample: _StepCostSample) -> Cost:
    return _cost.updated(cost, sample.step_s, sample.n_steps, sample.core_s, sample.wall_s)


def _learn_phases(state: RemainingCostState, reading: Reading, mark: Reading | None) -> RemainingCostState:
    """Learn the cost of a unit of each phase: declared, then measured since the mark."""
    steps, waits = with_declared(state.phase_steps, reading), dict(state.phase_wait_s)
    if state.cost is None:
        return replace(state, phase_steps=steps)
    for phase, n_units, core_s, wall_s in measured_since(mark, reading):
        steps[phase.name] = blend(steps, phase, core_s / state.cost.now_s, n_units)
        if state.line is None:  # a paced unit waits because it was told to
            # A rehearsal may have waited for other jobs that start, under another grant, or for a few slices.
            wait_s = _unit_wait_s(reading, state, core_s, wall_s)
            known_s = wait_s if mark is not None or n_units * wait_s > _REHEARSED_WAIT_S else 0.0
            waits[phase.name] = blend(waits, phase, known_s, n_units)
    return replace(state, phase_steps=steps, phase_wait_s=waits)


def _unit_wait_s(reading: Reading, state: RemainingCostState, core_s: float, wall_s: float) -> float:
    """Seconds of a unit that no CPU grant explains; small parts count as scheduling noise."""
    cores = max(min(reading.granted.cores, state.usable_cores or reading.granted.cores), 0.01)
    wait_s = wall_s - core_s / cores
    return wait_s if wait_s > max(0.5 * wall_s, 0.005) else 0.0


def _learn_delivery(state: RemainingCostState, reading: Reading, mark: Reading) -> RemainingCostState:
    """Learn the job's use of its grant, and the cores it can use if the grant does not limit it."""
    wall_s = reading.reported_s - mark.reported_s
    granted_core_s = reading.reported_granted_core_s - mark.reported_granted_core_s
    if wall_s <= 0.0 or granted_core_s <= 0.0:
        return state
    used_cores, granted_cores = (reading.used_core_s - mark.used_core_s) / wall_s, granted_core_s / wall_s
    share, lasting_share = min(1.0, wall_s / _DELIVERY_S), min(1.0, wall_s / _LASTING_DELIVERY_S)
    usable = state.usable_cores
    # Below its ceiling a job may use less because others take cores, which does not show what it can use.
    is_free = not reading.can_cap or granted_cores >= 0.98 * reading.ceiling.cores
    if state.line is not None and (not is_free or waits(state.line, mark) or waits(state.line, reading)):
        return state
    if is_free or (usable is not None and used_cores > usable):
        seen = min(used_cores, reading.ceiling.cores)
        # One look is not enough to plan with less than the ceiling for good: others may just have taken the cores.
        lasting = reading.ceiling.cores if state.lasting_cores is None else state.lasting_cores
        usable = seen if usable is None else usable + share * (seen - usable)
        return replace(
            state,
            usable_cores=usable,
            cores=_varied(state.cores, usable, reading.ceiling.cores, wall_s),
            lasting_cores=lasting + lasting_share * (seen - lasting),
            most_cores=max(state.most_cores, usable),
        )
    seen = min(max(used_cores / granted_cores, 0.5), 1.3)
    if usable is not None and state.lasting_cores is not None:
        usable += lasting_share * (state.most_cores - usable)
        lasting = state.lasting_cores + lasting_share * (state.most_cores - state.lasting_cores)
        state = replace(state, usable_cores=usable, lasting_cores=lasting)
    return replace(
        state,
        delivery=state.delivery + share * (seen - state.delivery),
        lasting_delivery=state.lasting_delivery + lasting_share * (seen - state.lasting_delivery),
    )


def _varied(cores: SlowMean | None, usable_cores: float, ceiling_cores: float, wall_s: float) -> SlowMean:
    if cores is None:
        unused_frac = 1.0 - usable_cores / max(ceiling_cores, LEAST_CORES)
        cores = SlowMean(mean=usable_cores, spread=_UNUSED_FRAC * unused_frac)
    difference = usable_cores - cores.mean
    return drifted(cores, difference, difference / max(cores.mean, LEAST_CORES), wall_s)
