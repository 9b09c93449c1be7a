"""Shared functions of all controllers: bounds of a demand, and the remaining work as one number.

That number is in steps, with a unit of each phase counted in steps.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from math import isfinite, isnan
from re import compile as compiled
from typing import Any

from punctual.core.control import PacingLine, PhaseProgress, Reading
from punctual.core.errors import check_above_zero, check_fraction
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import LEAST_CORES, TOLERANCE, Resources

_WORD = compiled("[A-Z][a-z]*")

#: First steps that are no sample: they set up kernels and caches.
SKIPPED_STEPS = 2


def clamp(amount: float, low: float, high: float) -> float:
    """Return `amount` within its bounds; NaN becomes `high`: in doubt the job runs rather than waits."""
    return high if isnan(amount) else min(max(low, amount), high)


def core_bounds(spec: JobSpec, reading: Reading) -> tuple[float, float]:
    """Least and most cores that may be demanded at this reading."""
    most = min(spec.ceiling.cores, reading.ceiling.cores)
    return min(max(spec.floor.cores, LEAST_CORES), most), most


def wanted(spec: JobSpec, reading: Reading, cores: float) -> Resources:
    """The amount to demand: `cores` within the bounds, everything that is not steered at its ceiling.

    A job made of workers gets the least number of them that has so many cores.
    """
    cores = clamp(cores, *core_bounds(spec, reading))
    if spec.worker is not None:
        counts, worker_cores = counts_within(spec, reading), spec.worker.cores
        enough = (n for n in counts if worker_cores and n * worker_cores >= cores - TOLERANCE)
        return workers(spec, reading, next(enough, counts[-1]))
    return replace(spec.ceiling.at_most(reading.ceiling), cores=cores)


def counts_within(spec: JobSpec, reading: Reading) -> tuple[int, ...]:
    """Return the numbers of workers that may be demanded now, ascending; 1 for a job without workers.

    Where even the smallest is more than there is, it stands alone: less the job cannot use.
    """
    counts, unit = spec.worker_counts() or (1,), spec.unit
    if unit is None:
        return counts
    return tuple(n for n in counts if (unit * n).fits_in(reading.ceiling)) or counts[:1]


def count_held(spec: JobSpec, reading: Reading) -> int:
    """Return the number of workers that the job holds."""
    if spec.worker is None:
        return 1
    return reading.shape.n_workers if reading.shape is not None else 0


def workers(spec: JobSpec, reading: Reading, n: int) -> Resources:
    """Return the amount of `n` workers, with their servers if any; the ceiling of a job without workers."""
    return spec.ceiling.at_most(reading.ceiling) if spec.unit is None else spec.unit * n


def reason_to_run_free(reading: Reading) -> Reason | None:
    """Return why the job cannot be steered and is to have its ceiling; None: it can be steered."""
    if reading.landed:
        return Reason("landed", "All work is done: nothing holds the process back from leaving.")
    if not isfinite(reading.deadline_s):
        return Reason("no-deadline", "The job has no deadline and runs at its ceiling.")
    if reading.steps_total is None or reading.steps_done <= 0:
        return Reason("start-up", "Full allocation until the first step is reported.", {"elapsed_s": reading.elapsed_s})
    return None


def waiting_tick_s(reading: Reading, least_s: float, long_s: float) -> float:
    """Seconds to the next tick of a job that says nothing to steer by yet: more, the longer its process has run.

    A program may load its data for an hour, or compute so little that its cost is not known for as long.
    """
    # Before there is anything to steer by, ticks are as far apart as 2 % of the time that the process has run.
    return clamp(0.02 * (reading.elapsed_s - reading.held_since_s), least_s, long_s)


def check_parameters(controller: Any) -> None:
    """Refuse a parameter out of its range: one named `_frac` is from 0 to below 1, any other finite and above zero.

    Raises
    ------
    InvalidSpec
        Naming the first such parameter.
    """
    where = f"controller '{'-'.join(_WORD.findall(type(controller).__name__)).lower()}'"
    for field in fields(controller):
        check = check_fraction if field.name.endswith("_frac") else check_above_zero
        check(where, **{field.name: getattr(controller, field.name)})


def work(cost_steps: Mapping[str, float], reading: Reading) -> tuple[float, float]:
    """Return total and done work in steps; a unit of a phase counts `cost_steps` steps."""
    total, done = reading.steps_total or 0.0, reading.steps_done
    for phase in reading.phases:
        steps = cost_steps.get(phase.name, 0.0)
        total += steps * max(phase.units_planned, phase.units_done)
        done += steps * phase.units_done
    return max(total, done), done


def largest_unit_steps(cost_steps: Mapping[str, float]) -> float:
    """Return the largest unit's cost in steps: a step, or a unit of a phase."""
    return max([1.0, *cost_steps.values()])


def ends_with_work(line: PacingLine, reading: Reading) -> bool:
    """Whether the end of the line is still the end of the work."""
    total, _ = work(line.phase_cost_steps, reading)
    return abs(total - line.end_work) < 1e-6


def is_another_run(before: Reading, reading: Reading) -> bool:
    """Whether the job was paused or started again since, or another training began in it."""
    return reading.held_since_s != before.held_since_s or reading.steps_done < before.steps_done


def units_done(reading: Reading) -> dict[str, int]:
    """Units done of each phase."""
    return {phase.name: phase.units_done for phase in reading.phases}


def with_declared(known: Mapping[str, float], reading: Reading) -> dict[str, float]:
    """Return the cost of a unit of each phase, in steps: as known, else as declared."""
    declared = {phase.name: phase.cost_steps for phase in reading.phases if phase.cost_steps is not None}
    return {**declared, **known}


def measured_since(mark: Reading | None, reading: Reading) -> Iterator[tuple[PhaseProgress, int, float, float]]:
    """Yield each phase that was measured since `mark`, how many units, and the CPU and wall seconds of one."""
    before = {phase.name: phase for phase in mark.phases} if mark else {}
    for phase in reading.phases:
        old = before.get(phase.name) or PhaseProgress(name=phase.name, units_planned=0.0, units_done=0)
        n_units = phase.units_measured - old.units_measured
        if n_units > 0:
            yield phase, n_units, (phase.core_s - old.core_s) / n_units, (phase.wall_s - old.wall_s) / n_units


def blend(known: Mapping[str, float], phase: PhaseProgress, seen: float, n_units: int) -> float:
    """Return the mean of old and new value, weighted by the units behind each, forgetting slowly."""
    if phase.name not in known or phase.units_measured <= n_units:
        return seen
    share = max(0.3, n_units / phase.units_measured)
    return known[phase.name] + share * (seen - known[phase.name])
