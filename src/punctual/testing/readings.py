"""Hypothesis strategies for controllers' readings."""

from itertools import accumulate
from math import inf

from hypothesis import strategies as st

from punctual.core.control import PhaseProgress, Reading
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, shape_of
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve
from punctual.testing.snapshots import SharedOverhead

#: Amounts of time, work and CPU from nothing to far more than any job has.
_AMOUNTS = st.one_of(st.just(0.0), st.floats(1e-9, 1e9), st.floats(0.1, 100.0))


def job_specs() -> st.SearchStrategy[JobSpec]:
    """Jobs of one process and jobs made of workers."""
    return st.one_of(jobs_of_one_process(), jobs_of_workers())


@st.composite
def jobs_of_workers(draw: st.DrawFn) -> JobSpec:
    """A job of some workers, each with cores, a device or both, that can run with some of the numbers or with all."""
    worker = Resources(cores=draw(st.sampled_from([0.0, 0.3, 1.0])), gpus=draw(st.integers(0, 1)))
    worker = worker or Resources(cores=0.5)
    n_max = draw(st.integers(1, 16))
    counts = draw(st.just(()) | st.sets(st.integers(1, n_max), min_size=1).map(lambda chosen: tuple(sorted(chosen))))
    least = draw(st.integers(1, counts[-1] if counts else n_max))
    return JobSpec(
        id=JobId("generated"),
        worker=worker,
        counts=counts,
        ceiling=worker * n_max,
        floor=worker * least,
        deadline_s=draw(st.floats(1e-3, 1e9)),
        margin_frac=draw(st.none() | st.floats(0.0, 0.49)),
        resize_cost_s=draw(st.sampled_from([0.0, 0.3, 30.0])),
    )


@st.composite
def jobs_of_one_process(draw: st.DrawFn) -> JobSpec:
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
def reading_sequences(draw: st.DrawFn, spec: JobSpec, n_max: int = 5) -> list[Reading]:
    """Readings of one job in order: counters never fall, everything else may jump.

    Deadlines move, the ceiling falls and rises, grants differ from demands, more steps are done than declared.
    """
    n_readings = draw(st.integers(1, n_max))

    def counter(start: float = 0.0) -> list[float]:
        rises = draw(st.lists(_AMOUNTS, min_size=n_readings, max_size=n_readings))
        return list(accumulate(rises, initial=start))[1:]

    elapsed_s, steps, used_core_s, granted_core_s = counter(), counter(), counter(), counter()
    units, unit_core_s = counter(), counter()
    busy_s, device_s, active_s = (counter() if draw(st.booleans()) else [0.0] * n_readings for _ in range(3))
    steps_total = draw(st.none() | st.floats(1.0, 1e9))
    units_planned = draw(st.floats(0.0, 1e6))
    can_pace, can_cap = draw(st.booleans()), draw(st.booleans())
    curve = draw(st.none() | _CURVES)
    granted = [_amount(draw, spec) for _ in range(n_readings)]
    return [
        Reading(
            elapsed_s=elapsed_s[i],
            held_since_s=elapsed_s[i] * draw(st.floats(0.0, 1.0)),
            report_age_s=elapsed_s[i] * draw(st.floats(0.0, 1.0)),
            deadline_s=draw(st.floats(1e-3, 1e9)),
            granted=granted[i],
            granted_core_s=granted_core_s[i],
            used_core_s=used_core_s[i],
            in_flight_core_s=used_core_s[i] * draw(st.floats(0.0, 1.0)),
            unit_at_s=elapsed_s[i] * draw(st.floats(0.0, 1.0)),
            steps_done=steps[i],
            steps_total=steps_total,
            steps_total_std=draw(st.sampled_from([0.0, 1.0])) * draw(_AMOUNTS),
            ceiling=_amount(draw, spec),
            phases=(_phase(units_planned, int(units[i]), unit_core_s[i]),) if draw(st.booleans()) else (),
            busy_s=busy_s[i],
            device_s=device_s[i],
            active_s=active_s[i],
            can_pace=can_pace,
            can_cap=can_cap,
            shape=shape_of(spec, {NodeId("node"): granted[i]}, {}),
            curve=curve,
        )
        for i in range(n_readings)
    ]


_CURVES = st.tuples(_AMOUNTS, st.floats(0.0, 4.0), st.just(("",)), st.sampled_from([0.0, 0.1, 1.0, inf])).map(
    lambda state: RateCurve(SharedOverhead(), state)
)


def _amount(draw: st.DrawFn, spec: JobSpec) -> Resources:
    """Draw an amount that the job may hold."""
    if spec.worker is not None:
        return spec.worker * draw(st.sampled_from(spec.worker_counts()))
    share = draw(st.floats(0.0, 1.0))
    return Resources(cores=spec.floor.cores + share * (spec.ceiling.cores - spec.floor.cores))


def _phase(units_planned: float, n_units: int, core_s: float) -> PhaseProgress:
    return PhaseProgress(
        name="evaluate",
        units_planned=units_planned,
        units_done=n_units,
        units_measured=n_units,
        core_s=core_s,
        wall_s=2 * core_s,
    )
