"""The proportional-integral law published with DECOR-NN, for comparison."""

from dataclasses import dataclass, replace

from punctual.controllers._base import (
    check_parameters,
    clamp,
    core_bounds,
    count_held,
    reason_to_run_free,
    wanted,
)
from punctual.core.control import Demand, Reading
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import TOLERANCE


@dataclass(frozen=True, slots=True)
class DecorPiState:
    """State of the law from tick to tick, in cores.

    Attributes
    ----------
    proportional_cores, integral_cores, demand_cores
        c_p, c_i' and u of the last tick.
    """

    proportional_cores: float
    integral_cores: float
    demand_cores: float
    earlier_integral_cores: float  # The c_i' at the beginning of the last tick.
    requested_cores: float = 0.0  # The request of the last tick, in whole workers for a job made of them; 0: none yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class DecorPi:
    """Proportional-integral control of progress with fixed gains, after DECOR-NN's law for CPUs.

    Use it to compare with the published system. Its gains are absolute numbers of cores, so it suits jobs of one size
    only; for anything else prefer `remaining-cost`, or `proportional-integral` for a law of the same family.

    Formula, properties and differences: `docs/explanation/controllers/decor-pi.md`.

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
        MIN, the least demand. A job whose ceiling is not above it has its floor instead: nothing would be left to steer.
    period_workers_s, spike_workers_frac
        T_s and y_spike for a job made of workers: the published constants for devices.
    """

    gain_cores: float = 50.0
    integral_time_s: float = 12.0
    period_s: float = 1.0
    alpha: float = 1.0
    spike_frac: float = 0.99
    rounding_cores: float = 0.05
    minimum_cores: float = 1.0
    period_workers_s: float = 5.0
    spike_workers_frac: float = 0.995

    def __post_init__(self) -> None:
        check_parameters(self)

    def init(self, spec: JobSpec) -> DecorPiState:
        """The state before the first reading: everything at the ceiling."""
        most = spec.ceiling.cores
        return DecorPiState(0.0, most, most, most)

    def step(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        """The demand at this reading, and the state for the next."""
        return self._version_for(spec).apply(spec, state, reading)

    def apply(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        """Apply the law with these parameters, for any kind of job."""
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
        earlier = _integral_before(spec, state, reading)
        integral = earlier + proportional * self.period_s / self.integral_time_s
        limited = clamp(proportional + integral, low, high)
        cores = clamp(self._rounded(limited), low, high)
        facts = {"error_frac": error, "demand_cores": cores}
        text = f"Progress is {abs(error):.2%} of the job {'behind' if error > 0 else 'ahead of'} the line."
        reason = Reason("behind" if error > 0 else "ahead", text, facts)
        # Back-calculation: the integral that would have given just what the bounds allow.
        demand = self._demand(spec, reading, cores, reason)
        after = DecorPiState(proportional, limited - proportional, cores, earlier, _requested(spec, demand))
        return demand, after

    def _overdue(self, spec: JobSpec, state: DecorPiState, reading: Reading) -> tuple[Demand, DecorPiState]:
        progress = _progress_frac(reading)
        late = progress < self.spike_frac
        low, high = self._bounds(spec, reading)
        cores = high if late else clamp(state.demand_cores, low, high)
        text = "The deadline has passed: " + ("full allocation." if late else "the end is near, nothing is changed.")
        reason = Reason("overdue", text, {"progress_frac": progress})
        demand = self._demand(spec, reading, cores, reason)
        # The fate of this demand does not matter to the integral, which the law no longer follows.
        integral = _integral_before(spec, state, reading)
        return demand, replace(state, integral_cores=integral, demand_cores=cores, requested_cores=0.0)

    def _bounds(self, spec: JobSpec, reading: Reading) -> tuple[float, float]:
        low, high = core_bounds(spec, reading)
        return max(low, self.minimum_cores) if self.minimum_cores < high else low, high

    def _rounded(self, cores: float) -> float:
        return round(cores / self.rounding_cores) * self.rounding_cores

    def _demand(self, spec: JobSpec, reading: Reading, cores: float, reason: Reason) -> Demand:
        return Demand(resources=wanted(spec, reading, cores), next_tick_s=self.period_s, reason=reason)


def _integral_before(spec: JobSpec, state: DecorPiState, reading: Reading) -> float:
    """c_i' for this tick, after what became of the demand of the last one."""
    asked = state.requested_cores
    if spec.worker is not None and spec.worker.cores:
        held = count_held(spec, reading) * spec.worker.cores
        return state.integral_cores if not asked or abs(held - asked) < TOLERANCE else state.earlier_integral_cores
    if not asked or reading.granted.cores >= asked:
        return state.integral_cores
    # The integral that would have given just the amount that was granted, before it was rounded.
    unrounded = state.integral_cores + state.proportional_cores
    return unrounded * reading.granted.cores / asked - state.proportional_cores


def _requested(spec: JobSpec, demand: Demand) -> float:
    """Return the cores of the demand, without those of parameter servers."""
    unit = spec.unit
    if unit is None or spec.worker is None or not unit.cores:
        return demand.resources.cores
    return demand.resources.cores / unit.cores * spec.worker.cores


def _progress_frac(reading: Reading) -> float:
    return reading.steps_done / reading.steps_total if reading.steps_total else 0.0
