"""Textbook proportional-integral control of progress, its gains scheduled by the cost of a step."""

from dataclasses import dataclass, replace
from math import exp

from punctual.controllers._base import (
    check_parameters,
    clamp,
    core_bounds,
    reason_to_run_free,
    wanted,
)
from punctual.core.control import Demand, PhaseProgress, Reading
from punctual.core.errors import check_fraction
from punctual.core.job import JobSpec
from punctual.core.reason import Reason


@dataclass(frozen=True, slots=True)
class StepCost:
    """CPU seconds and steps seen, old ones forgotten exponentially, and where the next sample begins."""

    begun_at_s: float
    seen_at_s: float
    seen_core_s: float
    seen_steps: float
    core_s: float = 0.0
    steps: float = 0.0

    @property
    def core_s_per_step(self) -> float:
        """Zero while nothing was measured."""
        return self.core_s / self.steps if self.steps > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """The straight line that progress is to follow, from an instant and a count of steps to the aim."""

    from_s: float
    from_steps: float
    aim_s: float
    steps_total: float

    def steps_at(self, at_s: float, reserve_s: float) -> float:
        """Return the steps due at `at_s` if the last one is done `reserve_s` before the aim."""
        # A reserve that leaves no time makes the line all but vertical, which asks for the ceiling.
        left_s = max(self.aim_s - reserve_s - self.from_s, 1e-3)
        return self.from_steps + (self.steps_total - self.from_steps) * (at_s - self.from_s) / left_s


@dataclass(frozen=True, slots=True)
class Loop:
    """The closed feedback loop: its line, and its terms at the last tick."""

    line: Line
    at_s: float
    integral_cores: float
    usual_cores: float
    error_steps: float = 0.0
    raw_cores: float = 0.0


@dataclass(frozen=True, slots=True)
class ProportionalIntegralState:
    """State of the controller from tick to tick; `loop` is None while the job runs at its ceiling."""

    demand_cores: float
    cost: StepCost | None = None
    loop: Loop | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProportionalIntegral:
    """Proportional-integral control of progress with both poles placed at one time constant for a job of any size.

    Use it where a plain, well-understood law is wanted. It follows a line of steps, so an evaluation is a disturbance
    to it, and it lands less exactly than `remaining-cost`.

    Formula, properties and differences: `docs/explanation/controllers/proportional-integral.md`.

    Parameters
    ----------
    time_constant_s
        tau of the double closed-loop pole, seconds.
    period_s
        T_s, seconds between ticks; shorter than `time_constant_s`.
    margin_frac
        Share of the deadline aimed to be early, where the job declares none.
    deadband_frac
        A demand that differs less from the last one is not made.
    measure_s
        Seconds at the ceiling, from the first step on, in which the cost of a step is measured.
    memory_s
        Time constant with which older samples of that cost are forgotten, seconds.
    reserve_filter_s
        Time constant of the cores by which the reserve for phases is turned into seconds.
    """

    time_constant_s: float = 3.0
    period_s: float = 0.5
    margin_frac: float = 0.003
    deadband_frac: float = 0.01
    measure_s: float = 1.0
    memory_s: float = 20.0
    reserve_filter_s: float = 10.0

    def __post_init__(self) -> None:
        check_parameters(self)
        check_fraction(
            "controller 'proportional-integral'",
            **{"period_s / time_constant_s": self.period_s / self.time_constant_s},
        )

    def gains(self, core_s_per_step: float) -> tuple[float, float]:
        """K_p in cores per step and K_i in cores per step and second, for steps of this cost."""
        distance = 1 - exp(-self.period_s / self.time_constant_s)
        proportional = 2 * distance * core_s_per_step / self.period_s
        return proportional, distance**2 * core_s_per_step / self.period_s**2

    def init(self, spec: JobSpec) -> ProportionalIntegralState:
        """The state before the first reading: the job at its ceiling, nothing measured."""
        return ProportionalIntegralState(spec.ceiling.cores)

    def step(
        self, spec: JobSpec, state: ProportionalIntegralState, reading: Reading
    ) -> tuple[Demand, ProportionalIntegralState]:
        """The demand at this reading, and the state for the next."""
        free = reason_to_run_free(reading)
        if free is not None:
            return self._run_free(spec, state, reading, free)
        cost = self._measured(state.cost, reading)
        state = replace(state, cost=cost)
        aim_s = self._aim_s(spec, reading)
        if reading.elapsed_s >= aim_s:
            return self._run_free(spec, state, reading, Reason("overdue", "The time is over: full allocation."))
        if cost.core_s_per_step <= 0 or reading.elapsed_s < cost.begun_at_s + self.measure_s:
            reason = Reason("measuring", "Full allocation while the cost of a step is measured.")
            return self._run_free(spec, state, reading, reason)
        if reading.steps_total is not None and reading.steps_done >= reading.steps_total:
            return self._finish_phases(spec, state, reading, aim_s - reading.elapsed_s)
        return self._follow(spec, state, reading, self._loop(state, reading, cost, aim_s), cost)

    def _aim_s(self, spec: JobSpec, reading: Reading) -> float:
        margin = self.margin_frac if spec.margin_frac is None else spec.margin_frac
        return (1 - margin) * reading.deadline_s

    def _run_free(
        self, spec: JobSpec, state: ProportionalIntegralState, reading: Reading, reason: Reason
    ) -> tuple[Demand, ProportionalIntegralState]:
        demand = self._demand(spec, reading, spec.ceiling.cores, reason)
        return demand, replace(state, demand_cores=demand.resources.cores, loop=None)

    def _measured(self, cost: StepCost | None, reading: Reading) -> StepCost:
        """Return the updated cost of a step; steps of the first reading belong to the start-up."""
        # Only completed units: the unit in flight has cost CPU but is no step yet.
        core_s = reading.used_core_s - reading.in_flight_core_s - sum(phase.core_s for phase in reading.phases)
        at_s, steps = reading.elapsed_s, reading.steps_done
        if cost is None:
            return StepCost(at_s, at_s, core_s, steps)
        if steps <= cost.seen_steps:
            return cost
        kept = exp(-max(0.0, at_s - cost.seen_at_s) / self.memory_s)
        return StepCost(
            cost.begun_at_s, at_s, core_s, steps,
            core_s=kept * cost.core_s + max(0.0, core_s - cost.seen_core_s),
            steps=kept * cost.steps + steps - cost.seen_steps,
        )  # fmt: skip

    def _finish_phases(
        self, spec: JobSpec, state: ProportionalIntegralState, reading: Reading, left_s: float
    ) -> tuple[Demand, ProportionalIntegralState]:
        """Spread the reserve over the time left: past the last step there is no progress to feed back."""
        reserve_core_s = _phases_core_s(reading.phases)
        cores = reserve_core_s / left_s if reserve_core_s > 0 else spec.ceiling.cores
        reason = Reason("phases", "All steps are done: phases only.", {"reserve_core_s": reserve_core_s})
        demand = self._demand(spec, reading, cores, reason)
        return demand, replace(state, demand_cores=demand.resources.cores, loop=None)

    def _loop(self, state: ProportionalIntegralState, reading: Reading, cost: StepCost, aim_s: float) -> Loop:
        """Return the loop with its integral updated; a new one without one, or if the line no longer holds."""
        loop, steps_total = state.loop, reading.steps_total or 0.0
        if loop is None or (loop.line.aim_s, loop.line.steps_total) != (aim_s, steps_total):
            return self._new_loop(reading, cost, Line(reading.elapsed_s, reading.steps_done, aim_s, steps_total))
        past_s = clamp(reading.elapsed_s - loop.at_s, 0.0, 2 * self.period_s)
        held = reading.granted.cores
        blend = 1 - exp(-past_s / self.reserve_filter_s)
        integral = loop.integral_cores
        if not self._limited(loop, held):
            integral += self.gains(cost.core_s_per_step)[1] * loop.error_steps * past_s
        return replace(
            loop,
            at_s=reading.elapsed_s,
            integral_cores=clamp(integral, 0.0, reading.ceiling.cores),
            usual_cores=loop.usual_cores + blend * (held - loop.usual_cores),
        )

    def _new_loop(self, reading: Reading, cost: StepCost, line: Line) -> Loop:
        """Start on the line with the cores that it and the phases need: without error, and so without a transient."""
        core_s = cost.core_s_per_step * (line.steps_total - line.from_steps) + _phases_core_s(reading.phases)
        cores = clamp(core_s / (line.aim_s - line.from_s), 0.0, reading.ceiling.cores)
        return Loop(line, reading.elapsed_s, integral_cores=cores, usual_cores=cores)

    def _limited(self, loop: Loop, held_cores: float) -> bool:
        """Whether the job was denied what its error called for, so that integrating on would only wind up."""
        missing = loop.raw_cores - held_cores
        return missing * loop.error_steps > 0 and abs(missing) > self.deadband_frac * held_cores

    def _follow(
        self, spec: JobSpec, state: ProportionalIntegralState, reading: Reading, loop: Loop, cost: StepCost
    ) -> tuple[Demand, ProportionalIntegralState]:
        reserve_s = _phases_core_s(reading.phases) / max(loop.usual_cores, core_bounds(spec, reading)[0], 1e-9)
        error = loop.line.steps_at(reading.elapsed_s, reserve_s) - reading.steps_done
        raw = self.gains(cost.core_s_per_step)[0] * error + loop.integral_cores
        cores = self._with_deadband(clamp(raw, *core_bounds(spec, reading)), state.demand_cores)
        facts = {"error_steps": error, "integral_cores": loop.integral_cores, "core_s_per_step": cost.core_s_per_step}
        text = f"Progress is {abs(error):.1f} steps {'behind' if error > 0 else 'ahead of'} the line."
        demand = self._demand(spec, reading, cores, Reason("behind" if error > 0 else "ahead", text, facts))
        loop = replace(loop, error_steps=error, raw_cores=raw)
        return demand, replace(state, demand_cores=demand.resources.cores, loop=loop)

    def _with_deadband(self, cores: float, last_cores: float) -> float:
        return last_cores if abs(cores - last_cores) <= self.deadband_frac * last_cores else cores

    def _demand(self, spec: JobSpec, reading: Reading, cores: float, reason: Reason) -> Demand:
        return Demand(resources=wanted(spec, reading, cores), next_tick_s=self.period_s, reason=reason)


def _phases_core_s(phases: tuple[PhaseProgress, ...]) -> float:
    """CPU seconds of the phases to come, as far as one of their kind was measured."""
    return sum(
        max(0.0, phase.units_planned - phase.units_done) * phase.core_s / phase.units_measured
        for phase in phases
        if phase.units_measured > 0
    )
