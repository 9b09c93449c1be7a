"""Hypothesis strategies for what a controller sees."""

from itertools import accumulate

from hypothesis import strategies as st

from punctual.core.control import PhaseProgress, Reading
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources

#: Amounts of time, work and CPU from nothing to far more than any job has.
_AMOUNTS = st.one_of(st.just(0.0), st.floats(1e-9, 1e9), st.floats(0.1, 100.0))


@st.composite
def job_specs(draw: st.DrawFn) -> JobSpec:
    """A job of one process with any floor and ceiling, and with or without a declared margin."""
    ceiling_cores = draw(st.floats(0.05, 256.0))
    return JobSpec(
        id=JobId("generated"),
        ceiling=Resources(cores=ceiling_cores),
        floor=Resources(cores=ceiling_cores * draw(st.floats(0.0, 1.0))),
        deadline_s=draw(st.floats(1e-3, 1e9)),
        margin_frac=draw(st.none() | st.floats(0.0, 0.49)),
    )


@st.composite
def reading_sequences(draw: st.DrawFn, spec: JobSpec, n_max: int = 8) -> list[Reading]:
    """Readings of one job in order: counters never fall, everything else may jump.

    Deadlines move, the ceiling falls and rises, grants differ from demands, more steps are done than declared.
    """
    n_readings = draw(st.integers(1, n_max))

    def counter(start: float = 0.0) -> list[float]:
        rises = draw(st.lists(_AMOUNTS, min_size=n_readings, max_size=n_readings))
        return list(accumulate(rises, initial=start))[1:]

    elapsed_s, steps, used_core_s, granted_core_s = counter(), counter(), counter(), counter()
    units, unit_core_s = counter(), counter()
    steps_total = draw(st.none() | st.floats(1.0, 1e9))
    units_planned = draw(st.floats(0.0, 1e6))
    can_pace = draw(st.booleans())
    return [
        Reading(
            elapsed_s=elapsed_s[i],
            deadline_s=draw(st.floats(1e-3, 1e9)),
            granted=_between(spec.floor, spec.ceiling, draw(st.floats(0.0, 1.0))),
            granted_core_s=granted_core_s[i],
            used_core_s=used_core_s[i],
            in_flight_core_s=used_core_s[i] * draw(st.floats(0.0, 1.0)),
            unit_at_s=elapsed_s[i] * draw(st.floats(0.0, 1.0)),
            steps_done=steps[i],
            steps_total=steps_total,
            ceiling=_between(spec.floor, spec.ceiling, draw(st.floats(0.0, 1.0))),
            phases=(_phase(units_planned, int(units[i]), unit_core_s[i]),) if draw(st.booleans()) else (),
            can_pace=can_pace,
        )
        for i in range(n_readings)
    ]


def _between(low: Resources, high: Resources, share: float) -> Resources:
    return Resources(cores=low.cores + share * (high.cores - low.cores))


def _phase(units_planned: float, n_units: int, core_s: float) -> PhaseProgress:
    return PhaseProgress(
        name="evaluate",
        units_planned=units_planned,
        units_done=n_units,
        units_measured=n_units,
        core_s=core_s,
        wall_s=2 * core_s,
    )
