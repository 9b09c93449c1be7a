"""Remaining work as one number: steps, with a unit of each phase counted in steps."""

from collections.abc import Mapping

from punctual.core.control import PacingLine, PhaseProgress, Reading


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


def blend(known: Mapping[str, float], phase: PhaseProgress, seen: float, n_units: int) -> float:
    """Return the mean of old and new value, weighted by the units behind each, forgetting slowly."""
    if phase.name not in known or phase.units_measured <= n_units:
        return seen
    share = max(0.3, n_units / phase.units_measured)
    return known[phase.name] + share * (seen - known[phase.name])
