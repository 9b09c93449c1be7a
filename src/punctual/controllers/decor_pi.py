"""The proportional-integral law published with DECOR-NN, for comparison."""

from dataclasses import dataclass, replace

from punctual.controllers._base import (
    check_above_zero,
    check_fraction,
    clamp,
    core_bounds,
    reason_to_run_free,
    wanted,
)
from punctual.core.control import Demand, Reading
from punctual.core.job import JobSpec
from punctual.core.story import Reason


@dataclass(frozen=True, slots=True)
class DecorPiState:
    """What the law remembers from tick to tick, in cores."""

    proportional_cores: float
    integral_cores: float
    demand_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecorPi:
    """Proportional-integral control of progress with fixed gains, after DECOR-NN's law for CPUs.

    Use it to compare with the published system. Its gains are absolute numbers of cores, so it suits jobs of one size
    only; for anything else prefer `remaining-cost`, or `proportional-integral` for a law of the same family.

    Parameters
    ----------
    gain_cores
        K: cores per unit of error, the error being a fraction of the job.
    integral_time_s
        T_i, seconds.
    period_s
        T_s, seconds between ticks.
    alpha
        Share of the deadline aimed at.
    spike_frac
        y_spike: once the deadline has passed, a job with less progress gets its ceiling.
    rounding_cores
        Demands are multiples of this.
    minimum_cores
        MIN, the least demand; None: the job's floor.
    period_workers_s, spike_workers_frac
        T_s and y_spike for a job made of workers: the published constants for devices.
    recompute_from_grant
        Take the integral from the amount that was granted, as the authors' later revision for several jobs does.

    Raises
    ------
    InvalidSpec
        If a parameter is out of its range.

    Notes
    -----
    *Symbols*: t elapsed, D deadline, y = steps done / steps declared.

    *Formula*: sp = t / (alpha D); while sp < 1: c_p = K (sp - y), c_i = c_i' + c_p T_s / T_i,
    c = min(max(MIN, c_p + c_i), MAX), c_i' = c - c_p, demand = c rounded. From sp = 1: MAX if y < y_spike, else the
    last demand again. c_i' starts at MAX.

    *Source*: [decor2025].

    *Differs*: (1) t is measured, not counted in ticks. (2) MIN is the job's floor unless given: the published 1 core
    would leave a job of one core nothing to control. (3) alpha is lowered by the job's margin where one is declared.
    (4) A job without a deadline, and one that has landed, gets its ceiling. (5) A rounded demand is brought back
    within the bounds. (6) The version for devices is used for a job made of workers that hold cores: K and the
    rounding then count workers.

    *Properties*: deterministic, constant time. Damping of the loop is sqrt(K T_i / W) / 2 for a job of W core-seconds,
    and the sampled loop is stable for W > K T_s (2 + T_s / T_i) / 4 only, 26 core-seconds with the published constants.

    *Fails when* much of the job is not steps: evaluations look like stalls, and what comes after the last step is
    not in the plan.
    """

    gain_cores: float = 50.0
    integral_time_s: float = 12.0
    period_s: float = 1.0
    alpha: float = 1.0
    spike_frac: float = 0.99
    rounding_cores: float = 0.05
    minimum_cores: float | None = None
    period_workers_s: float = 5.0
    spike_workers_frac: float = 0.995
    recompute_from_grant: bool = False

    def __post_init__(self) -> None:
        where = "controller 'decor-pi'"
        check_above_zero(
            where, gain_cores=self.gain_cores, integral_time_s=self.integral_time_s, period_s=self.period_s,
            alpha=self.alpha, rounding_cores=self.rounding_cores, period_workers_s=self.period_workers_s,
        )  # fmt: skip
        check_fraction(where, spike_frac=self.spike_frac, spike_workers_frac=self.spike_workers_frac)
        if self.minimum_cores is not None:
            check_above_zero(where, minimum_cores=self.minimum_cores)

    def init(self, spec: JobSpec) -> DecorPiState:
        """The state before the first reading: everything at the ceiling."""
        return DecorPiState(0.0, spec.ceiling.cores, spec.ceiling.cores)

    def step(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        """The demand at this reading, and the state for the next."""
        return self._version_for(spec).apply(spec, state, reading)

    def apply(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        """The law with these parameters as they are, whatever the job is made of."""
        free = reason_to_run_free(reading)
        if free is not None and free.code != "start-up":  # the law itself asks for the ceiling while nothing is done
            return self._demand(spec, reading, spec.ceiling.cores, free), state
        set_point = self._set_point(spec, reading)
        if set_point >= 1:
            return self._overdue(spec, state, reading)
        return self._tracking(spec, state, reading, set_point)

    def _version_for(self, spec: JobSpec) -> "DecorPi":
        """The law for cores, or for a job made of workers the one for devices, counted in the cores of a worker."""
        if spec.worker is None or not spec.worker.cores:
            return self
        cores = spec.worker.cores
        return replace(
            self, gain_cores=self.gain_cores * cores, rounding_cores=cores, minimum_cores=cores,
            period_s=self.period_workers_s, spike_frac=self.spike_workers_frac,
        )  # fmt: skip

    def _set_point(self, spec: JobSpec, reading: Reading) -> float:
        aim_s = self.alpha * (1 - (spec.margin_frac or 0.0)) * reading.deadline_s
        return reading.elapsed_s / aim_s if aim_s > 0 else 1.0

    def _tracking(
        self, spec: JobSpec, state: DecorPiState, reading: Reading, set_point: float
    ) -> tuple[Demand, DecorPiState]:
        low, high = self._bounds(spec, reading)
        error = set_point - _progress_frac(reading)
        proportional = self.gain_cores * error
        integral = self._integral_before(state, reading) + proportional * self.period_s / self.integral_time_s
        limited = clamp(proportional + integral, low, high)
        cores = clamp(self._rounded(limited), low, high)
        facts = {"error_frac": error, "demand_cores": cores}
        text = f"Progress is {abs(error):.2%} of the job {'behind' if error > 0 else 'ahead of'} the line."
        reason = Reason("behind" if error > 0 else "ahead", text, facts)
        # Back-calculation: the integral that would have given just what the bounds allow.
        after = DecorPiState(proportional, limited - proportional, cores)
        return self._demand(spec, reading, cores, reason), after

    def _overdue(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        progress = _progress_frac(reading)
        late = progress < self.spike_frac
        low, high = self._bounds(spec, reading)
        cores = high if late else clamp(state.demand_cores, low, high)
        text = "The deadline has passed: " + ("full allocation." if late else "the end is near, nothing is changed.")
        reason = Reason("overdue", text, {"progress_frac": progress})
        after = DecorPiState(state.proportional_cores, state.integral_cores, cores)
        return self._demand(spec, reading, cores, reason), after

    def _integral_before(self, state: DecorPiState, reading: Reading) -> float:
        if self.recompute_from_grant:
            return reading.granted.cores - state.proportional_cores
        return state.integral_cores

    def _bounds(self, spec: JobSpec, reading: Reading) -> tuple[float, float]:
        low, high = core_bounds(spec, reading)
        return min(max(low, self.minimum_cores or 0.0), high), high

    def _rounded(self, cores: float) -> float:
        return round(cores / self.rounding_cores) * self.rounding_cores

    def _demand(self, spec: JobSpec, reading: Reading, cores: float, reason: Reason) -> Demand:
        return Demand(resources=wanted(spec, reading, cores), next_tick_s=self.period_s, reason=reason)


def _progress_frac(reading: Reading) -> float:
    return reading.steps_done / reading.steps_total if reading.steps_total else 0.0
