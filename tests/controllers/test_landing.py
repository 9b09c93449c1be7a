"""What a job's own units teach of the margin, and what the controllers that land on a line reach with it."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.controllers._landing import LandingController, LandingState, lateness_s
from punctual.controllers.remaining_cost import RemainingCost
from punctual.controllers.two_level import TwoLevel
from punctual.core.control import PacingLine, PhaseProgress, Reading
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.sim.plants.quota_plant import STEADY, Landing, Noise, PlantWorld, Training, run_closed_loop
from punctual.sim.plants.worker_plant import ElasticTraining, Scaling, run_elastic

CALM = Noise(neighbour_factor=1.1)
TRAINING = Training(epoch_steps=300)
#: With units of at most 22 ms: larger ones have a margin of their own.
ELASTIC = ElasticTraining(
    scaling=Scaling(undivided_s=0.002, divided_s=0.02, per_peer_s=0.0002), epoch_steps=700, evaluation_unit_steps=1.0
)


def landings(controller: Any, jitter_s: float, *, n: int = 8, can_cap: bool = True) -> list[Landing]:
    """Landings of deadlines of 50 to 85 s."""
    world = PlantWorld(noise=CALM, can_pace=True, can_cap=can_cap, pacing_jitter_s=jitter_s)
    if isinstance(controller, TwoLevel):
        return [run_elastic(controller, ELASTIC, deadline_s=50.0 + 5 * i, world=world, seed=i) for i in range(n)]
    return [run_closed_loop(controller, TRAINING, deadline_s=50.0 + 5 * i, world=world, seed=i) for i in range(n)]


@pytest.mark.parametrize("jitter_s", [0.0, 0.002, 0.01])
@pytest.mark.parametrize("controller", [RemainingCost(), TwoLevel()], ids=lambda made: type(made).__name__)
def test_lands_within_half_a_thousandth_and_never_late(controller: Any, jitter_s: float) -> None:
    runs = landings(controller, jitter_s)
    assert all(run.on_time for run in runs)
    assert fmean(abs(run.deviation_frac) for run in runs) <= 0.0005


def test_a_job_that_only_pacing_slows_does_so_too() -> None:
    runs = landings(RemainingCost(), 0.002, can_cap=False)
    assert all(run.on_time for run in runs)
    assert fmean(abs(run.deviation_frac) for run in runs) <= 0.0005


def test_a_larger_jitter_makes_a_larger_margin() -> None:
    """By much more than the jitter makes the landing later. A jitter that is known from many units makes nobody late."""
    early_s = []
    for jitter_s in (0.002, 0.03, 0.06):
        runs = landings(RemainingCost(), jitter_s, can_cap=False)
        assert all(run.on_time for run in runs)
        early_s.append(fmean(run.deadline_s - run.landed_s for run in runs))
    assert all(larger > smaller + 0.01 for smaller, larger in pairwise(early_s))


@pytest.mark.parametrize("jitter_s", [0.0, 0.01])
def test_few_lines_are_made(jitter_s: float) -> None:
    world = PlantWorld(noise=CALM, can_pace=True, pacing_jitter_s=jitter_s)
    run = run_closed_loop(RemainingCost(), TRAINING, deadline_s=60.0, world=world)
    lines = [demand.pacing for _, demand in run.ticks if demand.pacing is not None]
    assert len(lines) > 8
    assert len({line.end_s for line in lines}) <= 3


def test_a_margin_that_the_user_declared_is_kept() -> None:
    """It is not made smaller by what is learned, nor larger."""
    spec = JobSpec(
        id=JobId("a"), ceiling=Resources(cores=1.0), floor=Resources(cores=0.02), deadline_s=60.0, margin_frac=0.004
    )
    world = PlantWorld(noise=STEADY, can_pace=True)
    run = run_closed_loop(RemainingCost(), TRAINING, deadline_s=60.0, world=world, spec=spec)
    assert run.landed_s == pytest.approx(60.0 * 0.996, abs=1e-6)


# What a unit teaches.

CONTROLLER = LandingController()
LINE = PacingLine(end_s=100.0, end_work=1000.0, s_per_step=0.1)
SPEC = JobSpec(id=JobId("a"), ceiling=Resources(cores=1.0), floor=Resources(cores=0.02), deadline_s=100.0)


def reading(steps: float, late_s: float, line: PacingLine = LINE, **changes: Any) -> Reading:
    """The last unit ended so much later than it might have, and is read a moment after."""
    unit_at_s = line.end_s - (line.end_work - steps) * line.s_per_step + late_s
    base = Reading(
        elapsed_s=unit_at_s + 0.01, deadline_s=100.0, granted=SPEC.ceiling, granted_core_s=0.0, used_core_s=0.0,
        in_flight_core_s=0.0, unit_at_s=unit_at_s, steps_done=steps, steps_total=1000.0, ceiling=SPEC.ceiling, can_pace=True,
    )  # fmt: skip
    return replace(base, **changes)


def taught(*late_s: float, state: LandingState | None = None) -> LandingState:
    """The state after a line was seen to be in force, and units that were so late."""
    state = state or CONTROLLER.seen(LandingState(line=LINE), reading(500, 0.0))
    begun = round(1000 - (100.0 - state.margin.unit_at_s) / 0.1) if state.margin.unit_at_s else 500
    for i, each in enumerate(late_s):
        state = CONTROLLER.seen(state, reading(begun + 20 * (i + 1), each))
    return state


def margin_s(*late_s: float) -> float:
    return CONTROLLER.margin_s(SPEC, taught(*late_s), reading(900, 0.0))


def test_lateness_is_against_the_line() -> None:
    assert lateness_s(LINE, reading(700, 0.03)) == pytest.approx(0.03)
    assert lateness_s(LINE, reading(700, -0.2)) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("late_s", "expected_s"),
    [
        ((), 0.05),
        ((0.0002, 0.0003, 0.0002), 0.05),  # too few
        ((0.0002, 0.0003, 0.0002, 0.0001), 0.02),
        ((0.0002, 0.0003, 0.012, 0.0001), 0.023),  # what is old counts a little less
        ((0.0, 0.0, 0.0, 0.0, 0.018), 0.036),  # more at once
        ((0.0, 0.0, 0.0, 0.0, 0.3), 0.05),  # one unit that had too few cores
        ((0.0, 0.0, 0.0, 0.0, 0.04, 0.045), 0.09),
        ((0.0, 0.0, 0.0, 0.0, 0.04, 0.3), 0.6),
        ((0.3, 0.2, 0.1, 0.04, 0.0, 0.0, 0.0, 0.0), 0.02),  # it had to reach the line first
        ((0.3, 0.31, 0.32, 0.33, 0.34), 0.05),  # it never reached it
    ],
)  # fmt: skip
def test_the_margin_follows_the_largest_error(late_s: tuple[float, ...], expected_s: float) -> None:
    assert margin_s(*late_s) == pytest.approx(expected_s, rel=0.06)


def test_an_error_is_forgotten() -> None:
    before = taught(0.0, 0.0, 0.0, 0.04, 0.045)
    after = taught(*[0.0] * 40, state=before)
    assert after.margin.margin_s is not None
    assert after.margin.margin_s < 0.025


def test_a_unit_that_ended_before_the_line_was_in_force_says_nothing_of_it() -> None:
    sooner = replace(LINE, end_s=99.9)
    state = replace(taught(0.0, 0.0, 0.0, 0.0), line=sooner)
    for steps in (600, 601):  # a tenth of a second behind the new line
        now = replace(reading(600, 0.0), elapsed_s=61.0)
        state = CONTROLLER.seen(state, replace(now, steps_done=steps, unit_at_s=now.unit_at_s + (steps - 600) * 0.1))
    state = CONTROLLER.seen(state, reading(620, 0.0, sooner))
    assert state.margin.margin_s == pytest.approx(0.02)
    assert state.margin.n_late == 0


def test_the_same_unit_is_counted_once() -> None:
    state = taught(0.0, 0.0)
    again = reading(540, 0.0)
    assert CONTROLLER.seen(state, replace(again, elapsed_s=again.elapsed_s + 1.0)) == state


@given(st.lists(st.floats(0.0, 0.4), max_size=30))
def test_the_margin_covers_what_was_seen_within_its_bounds(late_s: list[float]) -> None:
    state = taught()
    for i, each in enumerate(late_s):
        before = state.margin
        state = CONTROLLER.seen(state, reading(520 + 10 * i, each))
        margin = state.margin.margin_s
        assert margin is None or 0.02 <= margin <= 1.0
        is_counted = state.margin.n_units > before.n_units
        if margin is not None and is_counted:
            assert margin >= min(2.0 * each, 0.05) - 1e-9


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(
        InvalidSpec, match=r"`margin_first_s` must be finite and above zero: got 0\.0 for controller 'remaining-cost'"
    ):
        RemainingCost(margin_first_s=0.0)
    with pytest.raises(InvalidSpec, match="`landing_frac` must be from 0 to below 1"):
        TwoLevel(landing_frac=1.0)


def test_the_last_unit_of_a_phase_has_twice_its_time_on_the_line() -> None:
    """Where the job is paced only to land; the unit costs five steps."""
    found = {}
    for units_done in (0, 3):
        phase = PhaseProgress(name="checkpoint", units_planned=4, units_done=units_done, cost_steps=5.0)
        controller = RemainingCost()
        state = controller.init(SPEC)
        for elapsed_s, steps in ((3.8, 0), (4.0, 10), (5.0, 60), (98.5, 940)):
            now = reading(steps, 0.0, phases=(phase,))
            now = replace(now, elapsed_s=elapsed_s, used_core_s=elapsed_s, unit_at_s=elapsed_s)
            demand, state = controller.step(SPEC, state, now)
        assert demand.pacing is not None
        found[units_done] = demand.pacing.phase_cost_steps["checkpoint"] * demand.pacing.s_per_step
    spare_s = 0.02 * (100.0 - 0.05 - 98.5)
    assert found[3] == pytest.approx(5.0 * demand.pacing.s_per_step + spare_s)
    assert found[0] < found[3]
