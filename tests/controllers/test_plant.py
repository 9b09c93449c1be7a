"""The simulated plant: what it is to be trusted with in controllers' tests."""

from dataclasses import dataclass
from math import inf

import pytest

from punctual.core.control import Demand, PacingLine, Reading
from punctual.core.errors import InvalidSpec
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.sim.plants.quota_plant import STEADY, Contention, PlantWorld, Training, run_closed_loop

_CALM = PlantWorld(noise=STEADY)
_TRAINING = Training()


@dataclass(frozen=True, slots=True)
class _Alternating:
    """Demands the amounts in turn, one a tick, with the same pacing line."""

    cores: tuple[float, ...]
    tick_s: float = 0.5
    line: PacingLine | None = None

    def init(self, spec: JobSpec) -> int:
        return 0

    def step(self, spec: JobSpec, state: int, reading: Reading) -> tuple[Demand, int]:
        amount = Resources(cores=self.cores[state % len(self.cores)])
        reason = Reason("fixed", "Fixed.")
        return Demand(resources=amount, next_tick_s=self.tick_s, reason=reason, pacing=self.line), state + 1


def test_takes_as_long_as_its_work_over_its_cores() -> None:
    for cores in (1.0, 0.5, 0.25):
        run = run_closed_loop(_Alternating((cores,)), _TRAINING, deadline_s=60.0, world=_CALM)
        assert run.landed_s == pytest.approx(_TRAINING.core_s() / cores, rel=0.003)
        assert run.used_core_s == pytest.approx(_TRAINING.core_s())
        assert run.granted_core_s == pytest.approx(run.used_core_s, rel=0.003)


def test_one_seed_gives_one_run() -> None:
    runs = [run_closed_loop(_Alternating((0.5, 0.6)), _TRAINING, deadline_s=60.0, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].landed_s != runs[2].landed_s


def test_cost_varies_around_its_expectation() -> None:
    noise = PlantWorld().noise
    runs = [run_closed_loop(_Alternating((1.0,)), _TRAINING, deadline_s=60.0, seed=seed) for seed in range(60)]
    mean = sum(run.used_core_s for run in runs) / len(runs)
    assert mean == pytest.approx(_TRAINING.core_s(noise), rel=0.06)
    assert max(run.used_core_s for run in runs) > 1.1 * mean


def test_every_write_refills_the_quota() -> None:
    """At a period of 100 ms, 0.3 cores and two writes a second far more is delivered than was granted."""
    world = PlantWorld(noise=STEADY, quota_period_s=0.1)
    steady = run_closed_loop(_Alternating((0.3,)), _TRAINING, deadline_s=60.0, world=world)
    written = run_closed_loop(_Alternating((0.3, 0.3001)), _TRAINING, deadline_s=60.0, world=world)
    assert steady.n_resizes == 1
    assert written.n_resizes > 50
    assert steady.used_core_s / steady.granted_core_s == pytest.approx(1.0, abs=0.01)
    assert 1.06 < written.used_core_s / written.granted_core_s < 1.25


def test_contention_withholds_a_share_of_the_grant() -> None:
    world = PlantWorld(noise=STEADY, contention=(Contention(from_s=0.0, until_s=inf, delivered_frac=0.8),))
    run = run_closed_loop(_Alternating((0.5,)), _TRAINING, deadline_s=60.0, world=world)
    assert run.used_core_s / run.granted_core_s == pytest.approx(0.8, abs=0.01)


def test_no_more_cores_are_used_than_the_process_can() -> None:
    training = Training(cores_max=1.0)
    run = run_closed_loop(_Alternating((2.0,)), training, deadline_s=60.0, world=_CALM)
    assert run.landed_s == pytest.approx(training.core_s())


def test_an_unenforced_quota_holds_nothing_back() -> None:
    run = run_closed_loop(
        _Alternating((0.2,)), _TRAINING, deadline_s=60.0, world=PlantWorld(noise=STEADY, can_cap=False, can_pace=True)
    )
    assert run.landed_s == pytest.approx(_TRAINING.core_s())


def test_step_cost_changes_where_it_should() -> None:
    training = Training(cost_change_at_frac=0.5, cost_change_factor=1.8)
    run = run_closed_loop(_Alternating((1.0,)), training, deadline_s=60.0, world=_CALM)
    extra_core_s = 0.8 * training.n_steps / 2 * training.step_core_s
    assert run.used_core_s == pytest.approx(training.core_s() + extra_core_s)


def test_units_do_not_end_before_the_pacing_line() -> None:
    costs = {"evaluate": 4.0, "checkpoint": 0.0}
    work = _TRAINING.n_steps + 4.0 * 8 * _TRAINING.n_epochs
    line = PacingLine(end_s=60.0, end_work=work, s_per_step=50.0 / work, phase_cost_steps=costs)
    world = PlantWorld(noise=STEADY, can_pace=True)
    run = run_closed_loop(_Alternating((1.0,), line=line), _TRAINING, deadline_s=60.0, world=world)
    assert run.landed_s == pytest.approx(60.0, abs=0.02)  # the last unit is a checkpoint, which counts as no work
    for reading, _ in run.ticks:
        units = reading.phases[0].units_done if reading.phases else 0
        due = line.end_s - (work - reading.steps_done - 4.0 * units) * line.s_per_step
        assert reading.steps_done == 0 or reading.unit_at_s >= due - 1e-9


def test_readings_are_what_happened() -> None:
    world = PlantWorld(noise=STEADY, deadline_changes=((10.0, 50.0), (20.0, 70.0)))
    run = run_closed_loop(_Alternating((0.5,)), _TRAINING, deadline_s=60.0, world=world)
    readings = [reading for reading, _ in run.ticks]
    deadlines_s = [(reading.elapsed_s, reading.deadline_s) for reading in readings]
    assert all(deadline_s == world.deadline_s(at_s, 60.0) for at_s, deadline_s in deadlines_s)
    assert {10.0, 20.0} <= {at_s for at_s, _ in deadlines_s}
    assert run.deadline_s == 70.0
    assert readings[0].steps_total is None
    last = readings[-1]
    assert last.steps_total == _TRAINING.n_steps == last.steps_done
    assert last.phases[0].units_planned == 8 * _TRAINING.n_epochs
    assert last.phases[0].units_measured == last.phases[0].units_done + _TRAINING.n_rehearsals
    for reading in readings:
        assert 0 <= reading.in_flight_core_s <= 0.07 + 1e-9 or reading.steps_total is None
        assert reading.unit_at_s <= reading.elapsed_s


def test_a_grant_comes_after_the_delay() -> None:
    run = run_closed_loop(_Alternating((0.5,)), _TRAINING, deadline_s=60.0, world=_CALM)
    assert run.grants[0] == (0.0, 1.0)
    assert run.grants[1] == pytest.approx((0.02, 0.5))


def test_gives_up_on_a_job_that_starves() -> None:
    run = run_closed_loop(_Alternating((0.001,)), _TRAINING, deadline_s=5.0, world=_CALM)
    assert run.landed_s == inf
    assert not run.on_time


def test_rejects_a_deadline_of_nothing() -> None:
    with pytest.raises(InvalidSpec, match="`deadline_s` must be above zero: got 0 s"):
        run_closed_loop(_Alternating((1.0,)), _TRAINING, deadline_s=0)
