"""Whole workers: at most two numbers of them, one after the other, and pacing for the landing."""

from dataclasses import dataclass, replace
from math import isfinite

from punctual.controllers import _step_time, _two_levels
from punctual.controllers._base import (
    SKIPPED_STEPS,
    blend,
    count_held,
    counts_within,
    is_another_run,
    largest_unit_steps,
    measured_since,
    reason_to_run_free,
    units_done,
    waiting_tick_s,
    with_declared,
    work,
    workers,
)
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
from punctual.controllers._step_time import Model, StepTime
from punctual.controllers._two_levels import CountPlan, WorkerProjection
from punctual.core.control import Demand, Forecast, PacingLine, Reading
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.units import counted, span

#: A sample spans at least this much time; the first with each number twice as much, but no more than so many steps.
_SAMPLE_S = 0.25
_FIRST_SAMPLE_STEPS = 8
#: After the start and after each change one step is skipped, instead of `SKIPPED_STEPS`, if it takes so long.
_LONG_STEP_S = 0.5
#: Seconds for which a number is held at least to see what it does, or this share of the time left.
_TRIAL_S, _TRIAL_FRAC = 3.0, 0.05
#: More workers are kept for this share of the time left, or as long as a trial.
_AHEAD_FRAC = 0.1
#: Once less time is left than this many stops take, a doubt changes nothing.
_LAST_STOPS = 8.0


#: Standard deviation of a landing by control, as a share of a step. Measured: bench/forecasts.py.
_LANDED_UNIT_FRAC = 0.38


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevelState(LandingState):
    """State between two readings.

    Attributes
    ----------
    held
        Number of workers at the last reading.
    is_tried
        Whether a sample was taken with the number that is held now.
    times
        Seconds of a step by number of workers; None until the first sample.
    stop_s
        Training time lost by a change of the number, as measured; None: none was yet.
    wanted, wanted_at_s
        The number demanded last, and since when.
    before
        The reading on which the last change was demanded, until that change was measured.
    n_changes
        Changes demanded under the deadline in force: each makes the next one dearer.
    ahead_until_s
        Instant before which no fewer workers are demanded, because more were a moment ago.
    """

    held: int = 0
    is_tried: bool = False
    times: StepTime | None = None
    stop_s: float | None = None
    wanted: int = 0
    wanted_at_s: float = 0.0
    before: Reading | None = None
    n_changes: int = 0
    ahead_until_s: float = 0.0

    def is_changing(self) -> bool:
        """Whether another number was demanded than is held."""
        return self.wanted not in (0, self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel(LandingController):
    """Give the job a whole number of workers that lands it on its deadline, and change it as rarely as possible.

    Use it for a job made of equal workers, each with a device or a fixed share of cores of its own. A job that is not
    made of workers is taken as one worker that holds its ceiling: only pacing steers it then, and `remaining-cost`
    does better.

    Parameters
    ----------
    margin_unit_frac
        The margin is no less than this share of the largest unit's time.
    sigmas_changed, sigmas_kept
        Standard deviations of the time of a step that a number of workers must make room for: to be changed to
        for the rest of the job, and to be kept.
    price_frac
        Least gain of a change, as a share of the worker-seconds that are left.
    wait_frac
        A job that holds too few workers waits with taking more until it needs them for this share of the time left.
    stop_s
        Training time lost by a change until one was measured, seconds, where the job declares none.
    answer_s
        Seconds without the demanded number after which the controller counts on its present one.
    The others are those of `LandingController`; the job is paced earlier if it is to hold one number to the end.

    Notes
    -----
    *Symbols.* W work left in steps, a unit of a phase counted as so many steps; T time left to the aim; t(n) seconds a
    step with n workers and sigma(n) its relative standard deviation; delta training time lost by a change; pi the
    least gain of a change in worker-seconds; m workers held.

    *Formula.* Of the plans "n to the end", "h until l is enough" and "m until h is needed" the cheapest in
    worker-seconds, where h then l takes ``s = (W - T' / t(l)) / (1 / t(h) - 1 / t(l))`` seconds with h, T' = T less
    delta for each change, and each change costs ``pi`` besides. For the last number of a plan
    ``t(l) exp(k sigma(l))`` stands for t(l), bounded by ``t(m) m / l`` from any m > l that was measured.

    *Source.* Own; docs/explanation/controllers/two-level.md.

    *Properties.* Deterministic; O(counts) a step. With exact rates it makes at most two changes, and its cost is that
    of the best mix of any numbers plus two stops.

    *Fails when* the speed depends on something else that changes faster than the job can be resized.
    """

    margin_unpaced_frac: float = 0.005
    margin_unit_frac: float = 0.25
    sigmas_changed: float = 1.5
    sigmas_kept: float = 0.6
    reserve_frac: float = 0.003
    price_frac: float = 0.01
    wait_frac: float = 0.5
    stop_s: float = 0.5
    answer_s: float = 10.0

    def init(self, spec: JobSpec) -> TwoLevelState:
        return TwoLevelState()

    def step(self, spec: JobSpec, state: TwoLevelState, reading: Reading) -> tuple[Demand, TwoLevelState]:
        """The demand after `reading`, and the state for the next one."""
        times, moved = self.learned(state, reading, state.times, _step_time.elsewhere)
        state = self.seen(replace(state, times=times, **moved), reading)
        state = _learn(state, reading, count_held(spec, reading), awaits=self._awaits(state, reading))
        if reading.deadline_s != state.deadline_s:
            state = replace(state, n_changes=0)
        free = reason_to_run_free(reading)
        if free is not None or state.times is None or _must_show_speed(state.times, reading):
            return self._run_free(spec, state, reading, free)
        outlook = self._outlook(spec, state, reading, state.times)
        state = replace(_judged(state, reading, outlook), deadline_s=reading.deadline_s)
        waits = state.feasible and self._must_wait(state, reading, outlook)
        plan = None if waits else self._plan(state, outlook)
        n_workers, reason = self._waiting(state, outlook) if waits else self._number(state, outlook, plan)
        state = self._demanded(replace(state, line=self._line(state, reading, outlook, plan)), reading, n_workers)
        forecast = self._forecast(state, reading, outlook, plan)
        demand = Demand(
            resources=workers(spec, reading, n_workers),
            next_tick_s=self._period_s(state, outlook, plan, self._awaits(state, reading)),
            reason=replace(reason, facts={**reason.facts, "finish_s": forecast.finish_s}),
            pacing=state.line,
            forecast=forecast,
        )
        return demand, state

    def _run_free(
        self, spec: JobSpec, state: TwoLevelState, reading: Reading, reason: Reason | None
    ) -> tuple[Demand, TwoLevelState]:
        """Demand the ceiling, unpaced, until the speed is known, or without a deadline; after the landing change nothing."""
        counts, is_due = counts_within(spec, reading), isfinite(reading.deadline_s)
        n_workers = state.wanted if reading.landed and state.wanted in counts else counts[-1]
        demand = Demand(
            resources=workers(spec, reading, n_workers),
            next_tick_s=waiting_tick_s(reading, 2.0 * self.tick_least_s, self.tick_long_s),
            reason=reason or Reason("warm-up", "the first steps are timed at the ceiling"),
            forecast=None if is_due else _free_forecast(state, reading, counts),
        )
        state = replace(state, line=None)
        if not is_due:
            state = replace(state, feasible=True, doubt_since_s=None)
        return demand, self._demanded(state, reading, n_workers)

    def _demanded(self, state: TwoLevelState, reading: Reading, n_workers: int) -> TwoLevelState:
        if n_workers == state.wanted:
            return state
        before = reading.to_remember() if n_workers != state.held else None
        n_changes, now_s = state.n_changes + (state.wanted != 0), reading.elapsed_s
        # Who took more because of a slow spell does not give them up at its end.
        takes_more = 0 < state.held < n_workers and isfinite(reading.deadline_s)
        ahead_s = max(_TRIAL_S, _AHEAD_FRAC * (reading.deadline_s - now_s)) if takes_more else 0.0
        return replace(
            state,
            wanted=n_workers,
            wanted_at_s=now_s,
            before=before,
            n_changes=n_changes,
            ahead_until_s=now_s + ahead_s,
        )

    def _aim_s(self, spec: JobSpec, state: TwoLevelState, reading: Reading) -> float:
        """Instant to land at: early by the margin and by the last unit's possible lateness."""
        margin_s = self.margin_s(spec, state, reading)
        if spec.margin_frac is None:
            step_s = state.times.now_s(state.held) if state.times else 0.0
            unit_s = min(largest_unit_steps(state.phase_steps) * step_s, reading.deadline_s)
            margin_s = max(margin_s, self.margin_unit_frac * unit_s)
        return reading.deadline_s - margin_s

    def _outlook(self, spec: JobSpec, state: TwoLevelState, reading: Reading, times: StepTime) -> WorkerProjection:
        time_s, counts = self._aim_s(spec, state, reading) - reading.elapsed_s, counts_within(spec, reading)
        held = state.held if state.held in counts else min(counts, key=lambda n: abs(n - state.held))
        total, done = work(state.phase_steps, reading)
        # A job that is late works longer than until its deadline.
        horizon_s = max(time_s, (total - done) * times.now_s(state.held))
        speeds = _step_time.speeds(times, counts, horizon_s, _model(reading))
        credit = (reading.elapsed_s - reading.unit_at_s) / speeds[held].step_s
        steps = max(0.0, total - done - min(max(credit, 0.0), largest_unit_steps(state.phase_steps)))
        stop_s = state.stop_s if state.stop_s is not None else max(spec.resize_cost_s, self.stop_s)
        return WorkerProjection(
            steps=steps, time_s=time_s, held=held, speeds=speeds, stop_s=stop_s,
            price_s=2.0 ** min(state.n_changes, 9) * held * (self.price_frac * max(time_s, 0.0) + stop_s),
            sigmas_kept=self.sigmas_kept, sigmas_changed=self.sigmas_changed,
            grace_s=0.5 * (reading.deadline_s - reading.elapsed_s - time_s),
            unit_s=largest_unit_steps(state.phase_steps) * speeds[held].step_s,
        )  # fmt: skip

    def _awaits(self, state: TwoLevelState, reading: Reading) -> bool:
        """Whether a change is under way; after a time without an answer others seem to prevent it."""
        return state.is_changing() and reading.elapsed_s - state.wanted_at_s < self.answer_s

    def _must_wait(self, state: TwoLevelState, reading: Reading, outlook: WorkerProjection) -> bool:
        """Whether a change is under way, still unmeasured, or made to get ahead."""
        since_s = reading.elapsed_s - state.wanted_at_s
        if state.is_changing():
            return self._awaits(state, reading)
        if not state.is_tried:
            return since_s < max(self.answer_s, _TRIAL_FRAC * outlook.time_s)
        return reading.elapsed_s < state.ahead_until_s and _two_levels.level(outlook, outlook.held) is not None

    def _waiting(self, state: TwoLevelState, outlook: WorkerProjection) -> tuple[int, Reason]:
        """Return the number that is on its way, or else the one that is held."""
        if state.is_changing() and state.wanted in outlook.speeds:
            return state.wanted, _reason("resize", "the number of workers is being changed", outlook)
        if state.is_tried:
            return outlook.held, _reason("ahead", f"{counted(outlook.held, 'worker')} to get ahead", outlook)
        return outlook.held, _reason(
            "trial", f"what {counted(outlook.held, 'worker')} can do is being measured", outlook
        )

    def _plan(self, state: TwoLevelState, outlook: WorkerProjection) -> CountPlan | None:
        if not state.feasible or outlook.time_s <= 0.0 or outlook.steps <= 0.0:
            return None
        if outlook.time_s < _LAST_STOPS * outlook.stop_s:
            return _two_levels.last(outlook)
        reserve_s = min(max(self.reserve_frac * state.deadline_s, 0.5 * outlook.unit_s), 0.1 * outlook.time_s)
        outlook = replace(outlook, time_s=outlook.time_s - reserve_s)
        allowed = [n for n in outlook.speeds if n != outlook.held and _may_be_tried(outlook, n)]
        return _two_levels.best(outlook, allowed, self.wait_frac)

    def _number(self, state: TwoLevelState, outlook: WorkerProjection, plan: CountPlan | None) -> tuple[int, Reason]:
        """The number to demand now, and why."""
        if plan is None:
            return self._number_without_plan(state, outlook)
        now = plan.second if plan.first_s <= 0.0 else plan.first
        if plan.is_level:
            return now, _reason("level", f"{counted(now, 'worker')} to the end", outlook)
        text = f"{counted(plan.first, 'worker')} for {span(plan.first_s)}, then {plan.second}"
        return now, _reason("two-level", text, outlook)

    def _number_without_plan(self, state: TwoLevelState, outlook: WorkerProjection) -> tuple[int, Reason]:
        if outlook.steps <= 0.0 or (state.feasible and outlook.time_s <= 0.0):
            return outlook.held, Reason("end", "the last unit of work is under way")
        fastest = min(outlook.speeds, key=lambda n: (outlook.end_s(n), n))
        if state.feasible:
            return fastest, _reason("catch-up", f"no plan has room for doubt: {counted(fastest, 'worker')}", outlook)
        return fastest, Reason(
            "infeasible", f"the deadline cannot be met: {counted(fastest, 'worker')}, the fastest there is"
        )

    def _line(
        self, state: TwoLevelState, reading: Reading, outlook: WorkerProjection, plan: CountPlan | None
    ) -> PacingLine | None:
        """Return the pacing line; the present one while it leads to the end of the work."""
        if outlook.steps <= 0.0 or outlook.time_s <= 0.0:
            return state.line
        if not reading.can_pace or not state.feasible:
            return None
        landing = self.is_landing(outlook.time_s, reading, outlook.unit_s)
        settled = plan is not None and plan.is_level and plan.first == outlook.held
        ahead_first = plan is not None and plan.second < outlook.held
        if not landing and (ahead_first or not (settled or state.line)):
            return None
        end_s = reading.elapsed_s + outlook.time_s
        is_whole = all(_is_on(state.line, name) for name, steps in state.phase_steps.items() if steps > 0.0)
        if is_whole and is_kept(state.line, end_s, 0.05 * outlook.unit_s + 1e-6, reading):
            return state.line
        end_work, done = work(state.phase_steps, reading)
        s_per_step = (1.0 + LEAD_FRAC) * outlook.time_s / max(end_work - done, 1e-9)
        return line_to(end_s, s_per_step, state.phase_steps, reading)

    def _forecast(
        self, state: TwoLevelState, reading: Reading, outlook: WorkerProjection, plan: CountPlan | None
    ) -> Forecast:
        earliest_s, speed = _earliest_s(reading, outlook), outlook.speeds[outlook.held]
        finish_s = earliest_s if not state.feasible else max(reading.elapsed_s + outlook.time_s, earliest_s)
        # While there is room the plan corrects what the times do, and a unit of the number it lands with is the finest.
        last = speed if plan is None else outlook.speeds[plan.second]
        std_s = _LANDED_UNIT_FRAC * max(speed.step_s, last.step_s)
        earliest_std_s = speed.error_frac * max(earliest_s - reading.elapsed_s, 0.0)
        std_s = landing_std_s(std_s, finish_s, earliest_s, earliest_std_s)
        return Forecast(finish_s=finish_s, std_s=std_s, earliest_finish_s=earliest_s, feasible=state.feasible)

    def _period_s(self, state: TwoLevelState, outlook: WorkerProjection, plan: CountPlan | None, awaits: bool) -> float:
        longest_s = self.longest_tick_s(outlook.time_s)
        if awaits or not state.is_tried:
            longest_s = 2.0 * self.tick_least_s
        if plan is not None and not plan.is_level:
            longest_s = min(longest_s, max(plan.first_s, self.tick_least_s))
        return min(max(0.1 * outlook.time_s, self.tick_least_s), longest_s)


def _free_forecast(state: TwoLevelState, reading: Reading, counts: tuple[int, ...]) -> Forecast | None:
    """Return the landing of a job without a deadline, with what it holds and with most; None: its speed is not known."""
    if state.times is None or reading.steps_total is None or reading.landed:
        return None
    total, done = work(state.phase_steps, reading)
    horizon_s = (total - done) * state.times.now_s(state.held)
    speeds = _step_time.speeds(state.times, counts, horizon_s, _model(reading))
    held = speeds.get(state.held, speeds[counts[-1]])
    left_s, earliest_s = (max(0.0, total - done) * each.step_s for each in (held, speeds[counts[-1]]))
    since_s = min(max(0.0, reading.elapsed_s - reading.unit_at_s), held.step_s)
    return Forecast(
        finish_s=reading.elapsed_s + max(0.0, left_s - since_s),
        std_s=left_s * held.error_frac,
        earliest_finish_s=reading.elapsed_s + max(0.0, min(left_s, earliest_s) - since_s),
        feasible=True,
    )


def _model(reading: Reading) -> Model:
    """Return the job's performance model, on nodes like its own."""

    def step_time(n_workers: int) -> tuple[float, float] | None:
        if reading.curve is None or reading.shape is None or reading.shape.n_workers < 1:
            return None
        now = reading.shape
        shape = replace(
            now,
            n_workers=n_workers,
            n_nodes=min(now.n_nodes, n_workers),
            cores=now.cores * n_workers / now.n_workers,
            n_servers=n_workers if now.n_servers else 0,
        )
        rate_sps, std_sps = reading.curve.rate_sps(shape), reading.curve.std_sps(shape)
        if not (rate_sps > 0.0 and isfinite(rate_sps) and isfinite(std_sps)):
            return None
        return 1.0 / rate_sps, std_sps / rate_sps

    return step_time


def _must_show_speed(times: StepTime, reading: Reading) -> bool:
    """Whether the job's model does not know the present shape yet; it learns only from unpaced steps."""
    if reading.curve is None or reading.shape is None or isfinite(reading.curve.std_sps(reading.shape)):
        return False
    # Seconds for which the job is timed unpaced at most, or this share of the time left, for a performance model that
    # knows nothing of what the job holds: policies promise nothing to a job whose speed is not known.
    return times.seen_s < min(5.0, 0.05 * (reading.deadline_s - reading.elapsed_s))


def _may_be_tried(outlook: WorkerProjection, n: int) -> bool:
    """Whether a number that was never held can be given up again in time, should it be no better than it must be."""
    known = [m for m, speed in outlook.speeds.items() if speed.is_seen]
    if outlook.speeds[n].is_seen or not known:
        return True
    trial_s = max(_TRIAL_S, _TRIAL_FRAC * outlook.time_s)
    done = trial_s / outlook.speeds[n].safe_s(outlook.sigmas_changed)
    fastest_s = min(outlook.speeds[m].step_s for m in known)
    return 2.0 * outlook.stop_s + trial_s + max(0.0, outlook.steps - done) * fastest_s <= outlook.time_s


def _judged(state: TwoLevelState, reading: Reading, outlook: WorkerProjection) -> TwoLevelState:
    speed, seen_s = outlook.speeds[outlook.held], state.times.seen_s if state.times else 0.0
    doubt_s = speed.std_frac * max(outlook.time_s, 0.0) + 0.5 * speed.step_s
    return judged(state, reading, earliest_s=_earliest_s(reading, outlook), doubt_s=doubt_s, seen_s=seen_s)


def _earliest_s(reading: Reading, outlook: WorkerProjection) -> float:
    return reading.elapsed_s + min(outlook.end_s(n) for n in outlook.speeds)


def _reason(code: str, text: str, outlook: WorkerProjection) -> Reason:
    facts = {"work_left_steps": outlook.steps, "time_left_s": outlook.time_s, "stop_s": outlook.stop_s}
    return Reason(code, f"{text} ({outlook.steps:.0f} steps of work in {span(max(0.0, outlook.time_s))})", facts)


# Learning from a reading.


def _learn(state: TwoLevelState, reading: Reading, held: int, *, awaits: bool) -> TwoLevelState:
    """Learn times of steps and phases since the mark; a sample moves the mark."""
    mark, model, reading = state.mark, _model(reading), reading.to_remember()
    if mark is None or held != state.held or is_another_run(mark, reading) or reading.steps_done <= 0:
        # Another number, another process or training, or a pause: what is under way belongs to neither.
        is_tried = state.is_tried and held == state.held
        return replace(state, held=held, mark=reading, warm=False, is_tried=is_tried)
    steps, over_s = reading.steps_done - mark.steps_done, reading.unit_at_s - mark.unit_at_s
    if not state.warm:
        skipped = 1 if steps > 0 and over_s >= _LONG_STEP_S * steps else SKIPPED_STEPS
        return replace(state, mark=reading, warm=True) if steps >= skipped else state
    if units_done(reading) != units_done(mark):
        return replace(_learn_phases(state, reading, mark, held), mark=reading)
    # A paced job shows how fast it may be, not how fast it is; and one that is being resized, when it last stood still.
    if awaits or waits(state.line, mark) or waits(state.line, reading):
        return replace(state, mark=reading)
    if steps <= 0 or over_s <= 0.0 or over_s < _least_sample_s(state, over_s / steps):
        return state
    return replace(_learn_time(state, reading, mark, held, model), mark=reading, is_tried=True)


def _least_sample_s(state: TwoLevelState, step_s: float) -> float:
    """The first sample with each number spans half a second, but no more than eight steps where these are long."""
    return _SAMPLE_S if state.is_tried else min(2.0 * _SAMPLE_S, max(_FIRST_SAMPLE_STEPS * step_s, _SAMPLE_S))


def _is_on(line: PacingLine | None, phase: str) -> bool:
    """Whether units of the phase have time of their own on the line."""
    return line is not None and line.phase_cost_steps.get(phase, 0.0) > 0.0


def _learn_time(state: TwoLevelState, reading: Reading, mark: Reading, held: int, model: Model) -> TwoLevelState:
    steps, over_s = reading.steps_done - mark.steps_done, reading.unit_at_s - mark.unit_at_s
    if state.times is None:
        times = _step_time.first(held, over_s / steps, steps, over_s)
        return _learn_phases(replace(state, times=times), reading, None, held)
    times = _step_time.updated(state.times, held, over_s / steps, steps, over_s, model)
    state = replace(state, times=times)
    return state if state.before is None else _learn_stop(state, state.before, mark, held)


def _learn_stop(state: TwoLevelState, before: Reading, mark: Reading, held: int) -> TwoLevelState:
    """Training time lost between the last unit before a change and the mark after it."""
    state = replace(state, before=None)
    if units_done(before) != units_done(mark) or is_another_run(before, mark) or state.times is None:
        return state
    step_s = state.times.now_s(held)
    lost_s = mark.unit_at_s - before.unit_at_s - (mark.steps_done - before.steps_done) * step_s
    seen_s = max(0.0, lost_s)
    return replace(state, stop_s=seen_s if state.stop_s is None else 0.5 * (state.stop_s + seen_s))


def _learn_phases(state: TwoLevelState, reading: Reading, mark: Reading | None, held: int) -> TwoLevelState:
    """Learn the cost of a unit of each phase in steps: declared, then measured since the mark."""
    steps = with_declared(state.phase_steps, reading)
    if state.times is None or held not in state.times.offsets:  # the time of a step is not known
        return replace(state, phase_steps=steps)
    for phase, n_units, _, wall_s in measured_since(mark, reading):
        if not _is_on(state.line, phase.name):  # a unit that has its time on a line waits because it was told to
            steps[phase.name] = blend(steps, phase, wall_s / state.times.now_s(held), n_units)
    return replace(state, phase_steps=steps)
