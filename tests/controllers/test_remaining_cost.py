"""Whether `remaining-cost` lands where it says, on the simulated plant, and each ingredient of its law."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.examples import examples

from punctual.controllers import _cost
from punctual.controllers.remaining_cost import RemainingCost
from punctual.core.cluster import Snapshot
from punctual.core.control import CoreWork, PhaseProgress, Reading
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.sim.plants.quota_plant import (
    STEADY,
    Contention,
    Noise,
    PlantWorld,
    QuotaRun,
    Training,
    job_spec,
    run_closed_loop,
)

DEADLINE_S = 60.0
SEEDS = range(examples(16))


NOISE = Noise()


def training(ratio: float, noise: Noise = NOISE, **changes: Any) -> Training:
    """A job whose expected fastest time is the deadline over `ratio`."""
    base = Training(**changes)
    per_epoch_s = (DEADLINE_S / ratio / noise.mean_factor - base.startup_core_s) / base.n_epochs
    phases_s = sum(phase.n_units * phase.unit_core_s for phase in base.phases)
    return replace(base, epoch_steps=int((per_epoch_s - phases_s) / base.step_core_s))


def runs(work: Training, world: PlantWorld) -> list[QuotaRun]:
    return [run_closed_loop(RemainingCost(), work, world=world, deadline_s=DEADLINE_S, seed=seed) for seed in SEEDS]


@pytest.mark.parametrize("ratio", [1.3, 1.5, 2.0, 4.0])
@pytest.mark.parametrize(
    "world",
    [
        PlantWorld(can_pace=True),
        PlantWorld(can_pace=True, contention=(Contention(from_s=20.0, until_s=40.0, delivered_frac=0.85),)),
        PlantWorld(can_pace=True, deadline_changes=((18.0, 90.0),)),
        PlantWorld(can_pace=True, can_cap=False),
    ],
    ids=["undisturbed", "contention", "deadline moved", "pacing alone"],
)
def test_lands_on_time_and_within_about_a_thousandth(ratio: float, world: PlantWorld) -> None:
    for run in runs(training(ratio), world):
        assert run.on_time
        assert abs(run.deviation_frac) < 0.0011


def test_cores_that_are_taken_during_the_last_second_make_no_job_late() -> None:
    world = PlantWorld(can_pace=True, contention=(Contention(from_s=59.2, until_s=61.0, delivered_frac=0.5),))
    for run in (*runs(training(2.0), world), *runs(training(3.0), world)):
        assert run.on_time


@pytest.mark.parametrize("ratio", [1.3, 2.0, 4.0])
@pytest.mark.parametrize(("startup_core_s", "exit_s"), [(0.1, 0.05), (1.0, 0.5), (5.0, 1.0)])
def test_lands_within_a_hundredth_by_the_quota_alone(ratio: float, startup_core_s: float, exit_s: float) -> None:
    """The plant has landed at its last unit; what is kept for the process to leave goes by what it took to start."""
    for run in runs(training(ratio, startup_core_s=startup_core_s), PlantWorld(can_pace=False)):
        assert -0.01 < run.deviation_frac + exit_s / DEADLINE_S <= 0.001


@pytest.mark.parametrize("margin_frac", [None, 0.001])
def test_declared_work_that_no_step_tells_of_comes_after_the_last_step(margin_frac: float | None) -> None:
    """The plant has landed at its last unit; five core-seconds more were declared, on one core."""
    work = training(2.0, STEADY, phases=())
    spec = replace(job_spec(work, DEADLINE_S, margin_frac), work_core_s=work.core_s() + 5.0)
    world = PlantWorld(can_pace=False, noise=STEADY)
    run = run_closed_loop(RemainingCost(), work, deadline_s=DEADLINE_S, world=world, spec=spec)
    assert run.landed_s == pytest.approx(DEADLINE_S - 5.0, abs=0.01 * DEADLINE_S)
    expected = [demand.forecast.finish_s for _, demand in run.ticks if demand.forecast is not None]
    assert expected[len(expected) // 2 :] == pytest.approx(
        [DEADLINE_S] * (len(expected) - len(expected) // 2), rel=0.01
    )


def test_a_dearer_step_that_nobody_declared_is_at_most_two_percent_late_at_twice_the_fastest_time() -> None:
    work = training(2.0, cost_change_at_frac=0.5, cost_change_factor=1.8)
    for run in runs(work, PlantWorld(can_pace=True)):
        assert run.deviation_frac < 0.02


def test_makes_fewer_resizes_than_seconds() -> None:
    for run in runs(training(2.0), PlantWorld(can_pace=True)):
        assert run.n_resizes < DEADLINE_S


def test_grants_little_more_than_is_used() -> None:
    for run in runs(training(2.0), PlantWorld(can_pace=True)):
        assert run.granted_core_s < 1.03 * run.used_core_s


@pytest.mark.parametrize("can_cap", [True, False])
def test_a_single_thread_under_two_cores_still_lands(can_cap: bool) -> None:
    work = training(1.5)
    spec = replace(job_spec(work, DEADLINE_S), ceiling=Resources(cores=2.0))
    world = PlantWorld(can_pace=True, can_cap=can_cap)
    run = run_closed_loop(RemainingCost(), work, world=world, deadline_s=DEADLINE_S, spec=spec, seed=3)
    assert run.on_time
    assert abs(run.deviation_frac) < 0.001


@pytest.mark.parametrize("can_cap", [True, False])
def test_a_ceiling_that_the_job_cannot_use_does_not_embellish_the_forecast(can_cap: bool) -> None:
    work = training(0.8, STEADY)
    spec = replace(job_spec(work, DEADLINE_S), ceiling=Resources(cores=2.0))
    world = PlantWorld(noise=STEADY, can_pace=True, can_cap=can_cap)
    run = run_closed_loop(RemainingCost(), work, world=world, deadline_s=DEADLINE_S, spec=spec, seed=0)
    told = next(demand for _, demand in run.ticks if demand.forecast and not demand.forecast.feasible)
    assert told.forecast is not None
    assert told.forecast.earliest_finish_s == pytest.approx(run.landed_s, rel=0.03)


def test_an_impossible_deadline_is_announced_at_once_with_the_true_finish() -> None:
    world = PlantWorld(noise=STEADY, can_pace=True)
    work = training(0.8, STEADY)
    run = run_closed_loop(RemainingCost(), work, world=world, deadline_s=DEADLINE_S, seed=0)
    told = [(reading, demand) for reading, demand in run.ticks if demand.forecast and not demand.forecast.feasible]
    reading, demand = told[0]
    assert reading.elapsed_s < 5.0
    assert demand.forecast is not None
    assert demand.forecast.earliest_finish_s == pytest.approx(run.landed_s, rel=0.03)
    assert all(demand.resources == reading.ceiling for reading, demand in told)


@pytest.mark.parametrize("ratio", [1.3, 2.0])
def test_no_false_alarm(ratio: float) -> None:
    for run in runs(training(ratio), PlantWorld(can_pace=True)):
        assert all(demand.forecast is None or demand.forecast.feasible for _, demand in run.ticks)


SPEC = JobSpec(id=JobId("a"), ceiling=Resources(cores=1.0), floor=Resources(cores=0.02), deadline_s=100.0)


def reading(elapsed_s: float, steps: float, core_s: float, **changes: Any) -> Reading:
    base = Reading(
        elapsed_s=elapsed_s, deadline_s=100.0, granted=Resources(cores=1.0), granted_core_s=elapsed_s,
        used_core_s=core_s, in_flight_core_s=0.0, unit_at_s=elapsed_s, steps_done=steps, steps_total=1000.0,
        ceiling=Resources(cores=1.0),
    )  # fmt: skip
    return replace(base, **changes)


def test_the_demand_is_the_formula_of_the_derivation() -> None:
    """u = (c (V_total - V) - a) / (eta (D - m - t)), with one cost seen and nothing else known."""
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8))
    _, state = controller.step(SPEC, state, reading(4.0, 10, 4.0))
    demand, _ = controller.step(SPEC, state, reading(5.0, 60, 5.0, in_flight_core_s=0.0))
    cost_s, left = 1.0 / 50, 940.0
    assert demand.resources.cores == pytest.approx(cost_s * left / (100.0 * 0.99 - 5.0))


def test_a_last_unit_that_is_dearer_than_all_that_was_expected_is_waited_for() -> None:
    """Nothing but pacing holds the job to its grant, which is more than it demands."""
    state = replace(RemainingCost().init(SPEC), cost=_cost.first(1.0, 10), demanded_cores=0.3, deadline_s=100.0)
    phase = PhaseProgress(name="evaluate", units_planned=1, units_done=1)
    last = reading(50.0, 999, 1000.2, in_flight_core_s=1.2, can_pace=True, can_cap=False, phases=(phase,))
    demand, _ = RemainingCost().step(SPEC, state, last)
    assert demand.pacing is None


def test_the_unit_in_flight_is_credited() -> None:
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8))
    _, state = controller.step(SPEC, state, reading(4.0, 10, 4.0))
    demand, _ = controller.step(SPEC, state, reading(5.0, 60, 5.01, in_flight_core_s=0.01))
    assert demand.resources.cores == pytest.approx((0.02 * 940 - 0.01) / (100.0 * 0.99 - 5.0))


def test_a_report_of_many_steps_is_in_flight_as_a_whole() -> None:
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8))
    _, state = controller.step(SPEC, state, reading(4.0, 10, 4.0))
    _, state = controller.step(SPEC, state, reading(5.0, 60, 5.0))
    demand, _ = controller.step(SPEC, state, reading(5.5, 60, 5.5, in_flight_core_s=0.5))
    assert demand.resources.cores == pytest.approx((0.02 * 940 - 0.5) / (100.0 * 0.99 - 5.5))
    demand, _ = controller.step(SPEC, state, reading(9.0, 60, 9.0, in_flight_core_s=4.0))
    assert demand.resources.cores == pytest.approx(0.02 * 890 / (100.0 * 0.99 - 9.0)), "the rest was spent elsewhere"


def test_the_last_moment_is_not_held_back_by_a_quota() -> None:
    state = replace(RemainingCost().init(SPEC), cost=_cost.first(0.01, 10), demanded_cores=0.1, deadline_s=100.0)
    for start_core_s, cores in ((0.0, 0.2), (0.1, 0.5), (1.0, 1.0)):
        begun = replace(state, begun=(10.0, 0.1 + start_core_s))
        aim_s = 100.0 - 0.3 - 0.5 * start_core_s
        demand, _ = RemainingCost().step(SPEC, begun, reading(aim_s - 0.05, 999, 9.9))
        assert demand.resources.cores == pytest.approx(cores)


def test_a_count_that_ends_before_its_total_does_not_hold_the_process_back() -> None:
    """It prints each tenth of 1,000 steps, from 0."""
    state = replace(RemainingCost().init(SPEC), cost=_cost.first(0.01, 10), demanded_cores=0.1, deadline_s=100.0)
    state = replace(state, report_steps=(10.0, 10.0), steps_done=990.0)
    under_way, _ = RemainingCost().step(SPEC, state, reading(98.0, 990, 9.95, in_flight_core_s=0.05))
    assert under_way.resources.cores < 0.2
    spent, _ = RemainingCost().step(SPEC, state, reading(98.5, 990, 10.01, in_flight_core_s=0.11))
    assert spent.resources.cores == SPEC.ceiling.cores


def test_a_process_that_goes_on_from_a_checkpoint_leaves_like_another() -> None:
    controller, demands = RemainingCost(margin_unpaced_frac=0.01), []
    for before in (0, 500):
        state = controller.init(SPEC)
        _, state = controller.step(SPEC, state, reading(1.4, 0, 1.4, steps_total=1000.0 + before))
        _, state = controller.step(SPEC, state, reading(1.5, before + 5, 1.5, steps_total=1000.0 + before))
        _, state = controller.step(SPEC, state, reading(2.5, before + 55, 2.5, steps_total=1000.0 + before))
        demand, _ = controller.step(SPEC, state, reading(3.5, before + 105, 3.5, steps_total=1000.0 + before))
        demands.append(demand.resources.cores)
    assert demands[0] == pytest.approx(0.02 * 895 / (100.0 * 0.99 - 0.7 - 3.5))
    assert demands[1] == pytest.approx(demands[0], rel=0.01)


def test_reports_that_are_sometimes_older_are_not_taken_for_cores_that_others_take() -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    for i in range(20):
        at_s, age_s = 4.0 + 2.0 * i, 0.4 if i % 2 else 0.0
        core_s = 0.5 * (at_s - age_s)
        changes = {"granted": Resources(cores=0.5), "granted_core_s": 0.5 * at_s, "report_age_s": age_s}
        _, state = controller.step(SPEC, state, reading(at_s, 10 * core_s, core_s, unit_at_s=at_s - age_s, **changes))
    assert state.delivery == pytest.approx(1.0)


def test_declared_phases_are_work() -> None:
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    phase = PhaseProgress(name="evaluate", units_planned=10, units_done=0, cost_steps=20.0)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8, phases=(phase,)))
    _, state = controller.step(SPEC, state, reading(4.0, 10, 4.0, phases=(phase,)))
    demand, _ = controller.step(SPEC, state, reading(5.0, 60, 5.0, phases=(phase,)))
    assert demand.resources.cores == pytest.approx(0.02 * (940 + 200) / (100.0 * 0.99 - 5.0))


def test_a_rehearsal_tells_what_a_phase_costs() -> None:
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    phase = PhaseProgress(name="evaluate", units_planned=10, units_done=0, units_measured=2, core_s=0.2, wall_s=0.2)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8, phases=(phase,)))
    _, state = controller.step(SPEC, state, reading(4.0, 10, 4.0, phases=(phase,)))
    demand, _ = controller.step(SPEC, state, reading(5.0, 60, 5.0, phases=(phase,)))
    assert demand.resources.cores == pytest.approx(0.02 * (940 + 10 * 5) / (100.0 * 0.99 - 5.0))


def test_the_forecast_of_the_cost_returns_to_the_mean() -> None:
    cost = replace(_cost.first(0.02, 50), now_s=0.03)
    assert cost.forecast_s(0.01) == pytest.approx(0.03, rel=0.01)
    assert cost.forecast_s(5.0) == pytest.approx(0.02 + 0.01 * (1 - 2.718281828**-1))
    assert cost.forecast_s(1e6) == pytest.approx(0.02, rel=0.01)


def test_two_surprises_in_a_row_reopen_the_filter_and_one_does_not() -> None:
    cost = _cost.first(0.02, 50)
    for _ in range(30):
        cost = _cost.updated(cost, 0.02, 25, 0.5, 0.5)
    once = _cost.updated(cost, 0.036, 25, 0.9, 0.9)
    twice = _cost.updated(once, 0.036, 25, 0.9, 0.9)
    assert once.now_s < 0.03
    assert twice.now_s == pytest.approx(0.036, rel=0.03)


def test_a_ceiling_of_no_cores_is_no_reason_to_fail() -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    for elapsed_s, steps in ((3.8, 0), (4.1, 2), (5.1, 52), (6.1, 102)):
        at_nothing = reading(elapsed_s, steps, elapsed_s, ceiling=Resources())
        demand, state = controller.step(SPEC, state, at_nothing)
    assert state.cores is not None
    assert demand.forecast is not None


def test_a_sample_that_cost_nothing_leaves_a_mean_that_the_next_can_be_compared_with() -> None:
    nothing = _cost.updated(_cost.first(0.02, 50), 0.0, 25, 0.5, 0.5)
    assert nothing.mean > 0
    assert _cost.updated(nothing, 0.02, 25, 0.5, 0.5).mean == pytest.approx(0.01)


def test_a_resumed_job_skips_its_own_first_steps_too() -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    for elapsed_s, steps in ((3.8, 500), (5.0, 502)):  # the first two steps take 0.6 s each
        demand, state = controller.step(SPEC, state, reading(elapsed_s, steps, elapsed_s - 0.7))
    assert state.cost is None or state.cost.now_s > 0.2
    state = controller.init(SPEC)
    for elapsed_s, steps in ((3.8, 500), (4.0, 502), (5.0, 552)):
        demand, state = controller.step(SPEC, state, reading(elapsed_s, steps, elapsed_s))
    assert state.cost is not None
    assert state.cost.now_s == pytest.approx(0.02)
    assert demand.resources.cores < 1.0


def test_one_long_step_is_enough_to_know_the_cost() -> None:
    controller = RemainingCost(margin_unpaced_frac=0.01, exit_frac=0.0)
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.0, 0, 3.0, steps_total=3.0))
    demand, _ = controller.step(SPEC, state, reading(23.0, 1, 23.0, steps_total=3.0))
    assert demand.resources.cores == pytest.approx(2 * 20.0 / (99.0 - 23.0))


def test_what_a_start_up_has_used_is_not_the_cost_of_the_first_step() -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    starting = reading(3.8, 0, 3.8, unit_at_s=0.0, in_flight_core_s=3.8, steps_total=None)
    _, state = controller.step(SPEC, state, starting)
    _, state = controller.step(SPEC, state, reading(4.1, 2, 4.1))
    _, state = controller.step(SPEC, state, reading(5.1, 52, 5.1))
    demand, state = controller.step(SPEC, state, reading(6.1, 102, 6.1))
    assert state.cost is not None
    assert state.cost.now_s == pytest.approx(0.02)
    assert demand.forecast is not None
    assert demand.forecast.std_s < 1.0


def _work_left(core_s_each: Sequence[tuple[float, float]]) -> CoreWork:
    """What is known after seconds of which each granted and used so much, a step costing 0.02 core-s."""
    controller, wall_s, granted_core_s, used_core_s = RemainingCost(), 4.0, 4.0, 4.0
    state = controller.init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8))
    demand, state = controller.step(SPEC, state, reading(4.0, 10, 4.0))
    for granted, used in core_s_each:
        wall_s, granted_core_s, used_core_s = wall_s + 1.0, granted_core_s + granted, used_core_s + used
        steps = 10 + round((used_core_s - 4.0) / 0.02)
        now = reading(wall_s, steps, used_core_s, granted=Resources(granted), granted_core_s=granted_core_s)
        demand, state = controller.step(SPEC, state, now)
    assert demand.work is not None
    return demand.work


def test_a_cost_that_rises_for_seconds_is_a_deviation_of_what_is_left_and_not_what_is_expected() -> None:
    """Steps cost two and a half times as much for two seconds, as where others start beside the job: no promise is lost for it."""
    controller, state = RemainingCost(), RemainingCost().init(SPEC)
    _, state = controller.step(SPEC, state, reading(3.8, 0, 3.8))
    demand, state = controller.step(SPEC, state, reading(4.0, 10, 4.0))
    for i in range(1, 31):  # half a core, 25 steps a second
        demand, state = controller.step(SPEC, state, reading(4.0 + i, 10 + 25 * i, 4.0 + 0.5 * i))
    before = demand.work
    for i in range(1, 3):  # the same CPU time for ten steps
        demand, state = controller.step(SPEC, state, reading(34.0 + i, 760 + 10 * i, 19.0 + 0.5 * i))
    after = demand.work
    assert before is not None
    assert after is not None
    assert state.cost is not None
    lasting_core_s = state.cost.now_s * (1000.0 - 780.0)
    assert lasting_core_s > 1.5 * before.core_s, "if it cost as much to the end"
    assert after.core_s < 1.2 * before.core_s
    assert after.core_s + after.std_core_s == pytest.approx(lasting_core_s, rel=0.05), "planned for, with the margin"


def test_what_others_take_of_less_than_the_ceiling_says_nothing_of_what_a_job_can_use() -> None:
    work = _work_left([(1.0, 1.0)] * 3 + [(1.0, 0.6)] * 2 + [(0.65, 0.4)] * 10)
    assert work.usable_cores > 0.9


def test_what_a_job_could_not_use_at_its_ceiling_is_forgotten_when_it_holds_less() -> None:
    disturbed = [(1.0, 1.0)] * 3 + [(1.0, 0.5)] * 10
    assert _work_left(disturbed).usable_cores < 0.8
    assert _work_left(disturbed + [(0.4, 0.4)] * 60).usable_cores == pytest.approx(1.0, abs=0.05)


def test_steps_of_ten_seconds_give_no_false_alarm() -> None:
    work = Training(n_epochs=1, epoch_steps=40, step_core_s=10.0, phases=(), n_rehearsals=0)
    for seed in SEEDS:
        run = run_closed_loop(RemainingCost(), work, world=PlantWorld(can_pace=True), deadline_s=1100.0, seed=seed)
        assert run.on_time
        assert all(demand.forecast is None or demand.forecast.feasible for _, demand in run.ticks)


def test_a_count_that_falls_begins_anew() -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    for elapsed_s, steps in ((3.8, 0), (4.0, 10), (5.0, 60), (6.0, 0), (6.5, 5), (7.5, 30)):
        _, state = controller.step(SPEC, state, reading(elapsed_s, steps, elapsed_s))
    assert state.mark is not None
    assert state.mark.steps_done == 30
    assert state.cost is not None
    assert 0.02 < state.cost.now_s < 0.045


@pytest.mark.parametrize(("deadline_s", "tick_s"), [(100.0, 0.5), (1000.0, 0.9), (360_000.0, 2.0)])
def test_ticks_are_rarer_where_hours_are_left(deadline_s: float, tick_s: float) -> None:
    controller = RemainingCost()
    state = controller.init(SPEC)
    for elapsed_s, steps in ((3.8, 0), (4.0, 10), (5.0, 60)):
        demand, state = controller.step(SPEC, state, reading(elapsed_s, steps, elapsed_s, deadline_s=deadline_s))
    assert demand.next_tick_s == pytest.approx(tick_s, rel=0.15)


@pytest.mark.parametrize(("elapsed_s", "tick_s"), [(5.0, 0.2), (50.0, 1.0), (3600.0, 2.0)])
def test_ticks_are_rarer_the_longer_there_is_nothing_to_steer_by(elapsed_s: float, tick_s: float) -> None:
    controller = RemainingCost()
    demand, _ = controller.step(SPEC, controller.init(SPEC), reading(elapsed_s, 0, 0.0))
    assert demand.next_tick_s == pytest.approx(tick_s)


@dataclass(frozen=True)
class Times:
    """Grants so many times what is demanded, from an instant to another."""

    factor: float
    from_s: float = 20.0
    until_s: float = 30.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        (view,) = snapshot.jobs
        factor = self.factor if self.from_s <= snapshot.at < self.until_s else 1.0
        cores = min(factor * view.demand.cores, view.spec.ceiling.cores)
        granted = Resources(cores=max(cores, view.spec.floor.cores))
        changes_at = next((at for at in (self.from_s, self.until_s) if at > snapshot.at), None)
        return Plan(
            revision=snapshot.revision, grants={view.id: {snapshot.nodes[0].id: granted}}, ask_again_at=changes_at
        )


@pytest.mark.parametrize("can_cap", [True, False])
@pytest.mark.parametrize("factor", [0.5, 1.6])
def test_a_job_uses_what_it_is_granted_and_lands_on_time(factor: float, can_cap: bool) -> None:
    """Also where nothing but pacing holds it to its grant, less or more than it demands."""
    world = PlantWorld(noise=STEADY, can_pace=True, can_cap=can_cap)
    run = run_closed_loop(
        RemainingCost(), training(3.0, STEADY), world=world, deadline_s=DEADLINE_S, policy=Times(factor)
    )  # fmt: skip
    assert run.on_time
    assert abs(run.deviation_frac) < 0.001
    within = [reading for reading, _ in run.ticks if 21.0 <= reading.elapsed_s <= 29.9]
    used_core_s = within[-1].used_core_s - within[0].used_core_s
    granted_core_s = within[-1].granted_core_s - within[0].granted_core_s
    assert used_core_s == pytest.approx(granted_core_s, rel=0.15)


def test_what_is_left_is_told_in_core_seconds_as_granted() -> None:
    """A neighbour that takes four tenths of what is granted makes it as many more."""
    contention = (Contention(from_s=20.0, until_s=40.0, delivered_frac=0.6),)
    world = PlantWorld(noise=STEADY, contention=contention)
    work = training(3.0, STEADY)
    run = run_closed_loop(RemainingCost(), work, world=world, deadline_s=DEADLINE_S)
    in_all_core_s = work.core_s()
    for reading, demand in run.ticks:
        if demand.work is None or not (10.0 < reading.elapsed_s < 19.0 or 30.0 < reading.elapsed_s < 39.0):
            continue
        delivered = (in_all_core_s - reading.used_core_s) / demand.work.core_s
        if reading.elapsed_s < 20.0:
            assert delivered == pytest.approx(1.0, rel=0.05)
        else:  # what lasts only for seconds breaks no promise
            assert 0.6 <= delivered <= 0.9
        assert demand.work.due_s + demand.work.slack_s == pytest.approx(DEADLINE_S)
