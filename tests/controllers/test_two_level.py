"""Whether `two-level` lands with few workers and few changes, on the simulated plant, and each ingredient of its law."""

from dataclasses import replace
from math import exp, inf, log
from typing import Any

import pytest

from punctual.controllers import _step_time, _two_levels
from punctual.controllers._step_time import Speed
from punctual.controllers._two_levels import WorkerProjection
from punctual.controllers.two_level import TwoLevel
from punctual.core.control import PhaseProgress, Reading
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.sim.plants.quota_plant import STEADY, Contention, Noise, PlantWorld
from punctual.sim.plants.worker_plant import ElasticTraining, Scaling, WorkerRun, run_elastic

MILD = Noise(neighbour_factor=1.1)
TRAINING = ElasticTraining()


def deadline_s(ratio: float, training: ElasticTraining = TRAINING, noise: Noise = MILD) -> float:
    return ratio * training.fastest_s(noise)


def runs(
    ratio: float, world: PlantWorld, n: int = 6, training: ElasticTraining = TRAINING, **options: Any
) -> list[WorkerRun]:
    due_s = deadline_s(ratio, training, world.noise)
    return [run_elastic(TwoLevel(), training, deadline_s=due_s, world=world, seed=seed, **options) for seed in range(n)]


@pytest.mark.parametrize("ratio", [1.2, 1.5, 2.0, 2.6])
def test_lands_on_time_within_two_thousandths_at_little_more_than_the_least_cost(ratio: float) -> None:
    for run in runs(ratio, PlantWorld(noise=MILD, can_pace=True)):
        assert run.on_time
        assert abs(run.deviation_frac) < 0.002
        assert run.worker_s < 1.15 * TRAINING.least_worker_s(run.deadline_s, MILD)
        assert not run.warnings


def test_few_changes_are_made() -> None:
    made = [
        run.n_resizes for ratio in (1.2, 1.5, 2.0, 2.6) for run in runs(ratio, PlantWorld(noise=MILD, can_pace=True), 4)
    ]
    assert sum(made) / len(made) < 3.2
    assert max(made) <= 5


@pytest.mark.parametrize(
    "world",
    [
        PlantWorld(noise=MILD, can_pace=True, deadline_changes=((20.0, 75.0),)),
        PlantWorld(noise=MILD, can_pace=True, deadline_changes=((20.0, 140.0),)),
        PlantWorld(noise=MILD, can_pace=True, contention=(Contention(from_s=30.0, until_s=50.0, delivered_frac=0.8),)),
    ],
    ids=["sooner", "later", "contention"],
)
def test_lands_on_time_whatever_happens_on_the_way(world: PlantWorld) -> None:
    for run in runs(2.0, world, 4):
        assert run.on_time
        assert abs(run.deviation_frac) < 0.0025


def test_a_model_of_the_speed_is_of_no_harm() -> None:
    world = PlantWorld(noise=MILD, can_pace=True)
    for run in runs(1.7, world, 3, models={"all-reduce": AllReduce()}):
        assert run.on_time
        assert run.worker_s < 1.15 * TRAINING.least_worker_s(run.deadline_s, MILD)


def test_with_one_worker_and_time_to_spare_it_is_paced() -> None:
    training = replace(TRAINING, epoch_steps=60)
    for run in runs(5.0, PlantWorld(noise=MILD, can_pace=True), 3, training):
        assert run.numbers[-1][1] == 1
        assert run.on_time
        assert abs(run.deviation_frac) < 0.002


def test_an_impossible_deadline_is_told_once_with_the_true_finish() -> None:
    run = runs(0.7, PlantWorld(noise=STEADY, can_pace=True), 1)[0]
    assert run.warnings == ("infeasible", "deadline-passed")
    told = next(demand.forecast for _, demand in run.demands if demand.forecast and not demand.forecast.feasible)
    assert told.earliest_finish_s == pytest.approx(run.landed_s, rel=0.03)
    assert run.n_resizes == 0


def test_a_resize_that_costs_much_is_not_made_for_little() -> None:
    """Eight workers at most; each change stops training for six seconds of seventy."""
    dear = replace(TRAINING, stop_s=6.0)
    run = run_elastic(
        TwoLevel(stop_s=6.0),
        dear,
        deadline_s=deadline_s(1.4, noise=STEADY),
        world=PlantWorld(noise=STEADY, can_pace=True),
    )
    assert run.on_time
    assert run.n_resizes <= 1


def test_no_workers_are_started_to_leave() -> None:
    run = runs(2.0, PlantWorld(noise=STEADY, can_pace=True), 1)[0]
    assert all(at_s < run.landed_s - 0.5 for at_s, _ in run.numbers[1:])


# The plan.


def speeds(**seconds: float) -> dict[int, Speed]:
    return {
        int(name[1:]): Speed(step_s=step_s, slow_step_s=step_s, std_frac=0.1, bound_s=inf, is_seen=True)
        for name, step_s in seconds.items()
    }


def outlook(steps: float, time_s: float, held: int, known: dict[int, Speed], **changes: Any) -> WorkerProjection:
    base = WorkerProjection(
        steps=steps,
        time_s=time_s,
        held=held,
        speeds=known,
        stop_s=0.0,
        price_s=0.0,
        sigmas_kept=0.0,
        sigmas_changed=0.0,
    )
    return replace(base, **changes)


def test_the_time_with_more_workers_is_the_formula_of_the_derivation() -> None:
    """s = (W - T' / t(l)) / (1 / t(h) - 1 / t(l)), the longer time with fewer taken for sure."""
    known = speeds(n1=1.0, n2=0.6)
    plan = _two_levels.more_first(outlook(130.0, 102.0, 2, known, stop_s=2.0, sigmas_changed=1.5), 2, 1)
    safe_s = exp(0.15)
    assert plan is not None
    assert plan.first_s == pytest.approx((130 - 100 / safe_s) / (1 / 0.6 - 1 / safe_s))
    assert plan.cost_s == pytest.approx(2 * plan.first_s + (100 - plan.first_s) + 2 * 2.0)


@pytest.mark.parametrize("steps", [100.0, 130.0, 170.0, 200.0, 240.0])
def test_the_best_plan_is_the_best_of_all_mixes(steps: float) -> None:
    known = speeds(n1=1.0, n2=0.6, n3=0.45, n4=0.4)
    plan = _two_levels.best(outlook(steps, 100.0, 4, known), [1, 2, 3], 0.5)
    least = inf
    for more in known:
        for fewer in known:
            for share in (i / 1000 for i in range(1001)):
                if share * 100 / known[more].step_s + (1 - share) * 100 / known[fewer].step_s >= steps - 1e-9:
                    least = min(least, 100 * (more * share + fewer * (1 - share)))
    assert plan is not None
    assert plan.cost_s == pytest.approx(least, rel=2e-3)
    assert plan.second <= plan.first <= plan.second + 1


def test_what_is_not_worth_its_price_is_left() -> None:
    known = speeds(n1=1.0, n2=0.6)
    cheap = _two_levels.best(outlook(98.0, 100.0, 2, known, price_s=1.0), [1], 0.5)
    dear = _two_levels.best(outlook(98.0, 100.0, 2, known, price_s=101.0), [1], 0.5)
    assert cheap is not None
    assert (cheap.first, cheap.second, cheap.first_s) == (1, 1, 100.0) or cheap.first_s == 0.0
    assert dear is not None
    assert (dear.first, dear.second) == (2, 2)


def test_too_few_workers_are_kept_until_more_are_needed_for_half_of_the_time() -> None:
    known = speeds(n1=1.0, n2=0.5)
    little = _two_levels.best(outlook(120.0, 100.0, 1, known, price_s=1.0), [2], 0.5)
    much = _two_levels.best(outlook(180.0, 100.0, 1, known, price_s=1.0), [2], 0.5)
    assert little is not None
    assert (little.first, little.second) == (1, 2)
    assert much is not None
    assert much.first == 2


def test_nothing_is_enough() -> None:
    assert _two_levels.best(outlook(300.0, 100.0, 2, speeds(n1=1.0, n2=0.6)), [1], 0.5) is None


def test_the_hull_leaves_out_what_two_others_beat() -> None:
    assert _two_levels.lower_hull(speeds(n1=1.0, n2=0.95, n3=0.4, n4=0.41)) == [1, 3]


# Times of steps.


def unknown(n_workers: int) -> None:
    """No model."""


def belief(**seconds: float) -> _step_time.StepTime:
    """What is believed after many samples with each of some numbers."""
    (first, first_s), *rest = ((int(name[1:]), step_s) for name, step_s in seconds.items())
    made = _step_time.first(first, first_s, 100, 1.0)
    for _ in range(20):
        made = _step_time.updated(made, first, first_s, 100, 1.0, unknown)
    for n, step_s in rest:
        for _ in range(20):
            made = _step_time.updated(made, n, step_s, 100, 1.0, unknown)
    return made


def test_two_numbers_tell_of_a_third() -> None:
    """With t(n) = 0.2 + 0.8 / n."""
    found = _step_time.speeds(belief(n8=0.3, n4=0.4), (1, 2, 3, 4, 8), 10.0, unknown)
    for n, speed in found.items():
        assert speed.step_s == pytest.approx(0.2 + 0.8 / n, rel=0.1 if n < 4 else 0.02)
        assert n >= 4 or speed.step_s > 0.2 + 0.8 / n, "what is not known is taken to be rather worse"
    assert [found[n].is_seen for n in (1, 2, 3, 4, 8)] == [False, False, False, True, True]
    assert found[1].std_frac > found[2].std_frac > found[4].std_frac


def test_fewer_workers_never_take_longer_than_their_share() -> None:
    found = _step_time.speeds(belief(n4=0.4), (1, 2, 4), 10.0, unknown)
    for n in (1, 2):
        assert found[n].step_s <= 0.4 * 4 / n
        assert found[n].safe_s(50.0) == pytest.approx(0.4 * 4 / n, rel=0.1)


def test_the_machine_slows_all_numbers_and_the_shape_stays() -> None:
    made = belief(n4=0.4, n2=0.7)
    for _ in range(60):
        made = _step_time.updated(made, 2, 1.05, 100, 1.0, unknown)
    found = _step_time.speeds(made, (2, 4), 10.0, unknown)
    assert found[2].step_s == pytest.approx(1.05, rel=0.02)
    assert found[4].step_s == pytest.approx(0.6, rel=0.05)


def test_measured_beats_modelled_and_corrects_its_neighbours() -> None:
    def model(n_workers: int) -> tuple[float, float]:
        return 2.0 / n_workers, 0.01

    found = _step_time.speeds(belief(n4=0.4), (1, 2, 4), 10.0, model)
    assert found[4].step_s == pytest.approx(0.4, rel=0.01)
    assert found[2].step_s == pytest.approx(0.8, rel=0.02)


def test_a_passing_rise_is_expected_to_pass() -> None:
    made = replace(belief(n2=1.0), level=log(1.5), mean=0.0)
    soon, late = (_step_time.speeds(made, (2,), horizon_s, unknown)[2] for horizon_s in (0.01, 100.0))
    assert soon.step_s == pytest.approx(1.5, rel=0.01)
    assert late.step_s == pytest.approx(exp(log(1.5) * 5.0 / 100.0), rel=0.01)
    assert late.std_frac < soon.std_frac


# What a reading teaches.

WORKER = Resources(cores=0.5)
SPEC = JobSpec(
    id=JobId("a"),
    worker=WORKER,
    ceiling=Resources(cores=2.0),
    floor=Resources(cores=0.5),
    deadline_s=100.0,
)


def reading(elapsed_s: float, steps: float, n_workers: int = 4, **changes: Any) -> Reading:
    base = Reading(
        elapsed_s=elapsed_s, deadline_s=100.0, granted=WORKER * n_workers, granted_core_s=0.0, used_core_s=0.0,
        in_flight_core_s=0.0, unit_at_s=elapsed_s, steps_done=steps, steps_total=2000.0, ceiling=SPEC.ceiling,
        can_pace=True, shape=Shape(n_workers=n_workers, cores=0.5 * n_workers),
    )  # fmt: skip
    return replace(base, **changes)


def fed(*readings: Reading) -> Any:
    controller, state, demand = TwoLevel(), TwoLevel().init(SPEC), None
    for each in readings:
        demand, state = controller.step(SPEC, state, each)
    return demand, state


WARM = (reading(2.0, 0), reading(2.1, 4), reading(3.1, 44))


def test_a_step_takes_what_it_took() -> None:
    _, state = fed(*WARM)
    assert state.times.now_s(4) == pytest.approx(1.0 / 40)


def test_a_paced_job_teaches_nothing_of_its_speed_unless_it_lags_behind() -> None:
    few: Any = {"steps_total": 200.0}
    start = [replace(each, **few) for each in WARM]
    demand, state = fed(*start)
    state = replace(state, held=1, wanted=1, is_tried=True)
    line = replace(demand, pacing=None).pacing
    at_s, done = 3.2, 48.0
    demand, state = TwoLevel().step(SPEC, replace(state, mark=reading(3.1, 44, 1)), reading(at_s, done, 1, **few))
    line = state.line
    assert line is not None, "one worker is enough to the end"
    before = state.times
    for _ in range(20):  # on the line: each unit ends when it may
        at_s, done = at_s + 0.5, done + 0.5 / line.s_per_step
        unit_at_s = line.end_s - (line.end_work - done) * line.s_per_step
        at_s = max(at_s, unit_at_s)
        _, state = TwoLevel().step(SPEC, state, reading(at_s, done, 1, unit_at_s=unit_at_s, **few))
    assert state.times == before
    behind = [reading(at_s + 20.0 + i, done + i, 1, **few) for i in range(4)]
    for each in behind:
        _, state = TwoLevel().step(SPEC, state, each)
    assert state.times != before


def test_it_is_not_paced_before_its_model_has_seen_a_speed_but_not_for_long() -> None:
    few: Any = {"steps_total": 200.0}
    model = AllReduce()
    blank = RateCurve(model, model.init(SPEC))
    warm = [replace(each, curve=blank, **few) for each in WARM]
    demand, state = fed(*warm)
    assert demand.reason.code == "warm-up"
    assert demand.pacing is None
    seen = SeenRate(shape=Shape(n_workers=4, cores=2.0), rate_sps=40.0)
    known = RateCurve(model, model.update(blank.state, seen))
    demand, _ = TwoLevel().step(SPEC, state, reading(3.3, 52, curve=known, **few))
    assert demand.reason.code != "warm-up"
    readings = [reading(3.1 + i, 44 + 4 * i, curve=blank, **few) for i in range(1, 9)]
    demand, _ = fed(*warm, *readings)
    assert demand.reason.code != "warm-up", "its model learns nothing"


def test_a_phase_is_no_step_and_costs_what_it_takes() -> None:
    phase = PhaseProgress(name="evaluate", units_planned=40, units_done=0)
    done = replace(phase, units_done=2, units_measured=2, wall_s=0.5)
    _, state = fed(
        *(replace(each, phases=(phase,)) for each in WARM),
        reading(3.6, 64, phases=(phase,)),
        reading(4.6, 84, phases=(done,)),
    )
    assert state.times.now_s(4) == pytest.approx(1.0 / 40)
    assert state.phase_steps["evaluate"] == pytest.approx(0.25 * 40)


def test_nothing_is_decided_until_a_change_was_measured() -> None:
    demand, state = fed(*WARM)
    n_wanted = round(demand.resources.cores / 0.5)
    assert n_wanted < 4
    for at_s in (3.3, 3.5):  # still on its way
        demand, state = TwoLevel().step(SPEC, state, reading(at_s, 44 + 40 * (at_s - 3.1)))
        assert demand.resources.cores == 0.5 * n_wanted
    demand, state = TwoLevel().step(SPEC, state, reading(4.0, 62, n_wanted, unit_at_s=3.9))
    assert demand.reason.code == "trial"
    assert n_wanted not in state.times.offsets


def test_a_demand_that_is_never_met_does_not_stop_learning() -> None:
    _, state = fed(*WARM)
    assert state.wanted < 4
    before = state.times
    for i in range(40):
        at_s = 3.6 + 0.5 * i
        demand, state = TwoLevel().step(SPEC, state, reading(at_s, 44 + 20 * (at_s - 3.1)))
    assert demand.reason.code != "resize"
    assert state.times.now_s(4) == pytest.approx(1 / 20, rel=0.05)
    assert state.times != before


def test_a_demand_that_is_not_met_is_looked_at_often_at_first_and_no_more_than_others_later() -> None:
    """Hours may pass until machines come, and each tick is kept in the journal."""
    long: dict[str, Any] = {"deadline_s": 20_000.0, "steps_total": 400_000.0}
    _, state = fed(*(replace(each, **long) for each in WARM))
    state = replace(state, wanted=2, wanted_at_s=3.1, is_tried=True)
    periods_s = []
    for at_s in (3.6, 14.0):
        demand, state = TwoLevel().step(SPEC, state, reading(at_s, 44 + 40 * (at_s - 3.1), **long))
        assert state.is_changing()
        periods_s.append(demand.next_tick_s)
    assert periods_s == [2 * TwoLevel().tick_least_s, TwoLevel().tick_long_s]


def test_the_stop_is_measured() -> None:
    """Forty steps a second until 3.3 s, nothing until 3.8 s, twenty a second from then on."""
    _, state = fed(*WARM)
    state = replace(state, wanted=2, wanted_at_s=3.1, before=WARM[-1], is_tried=False)
    for each in (reading(3.3, 52), reading(3.85, 53, 2), reading(4.05, 57, 2), reading(4.8, 72, 2)):
        _, state = TwoLevel().step(SPEC, state, each)
    assert 0.2 < state.stop_s < 0.6


def test_rejects_parameters_out_of_range() -> None:
    with pytest.raises(InvalidSpec, match="`stop_s` must be finite and above zero"):
        TwoLevel(stop_s=0.0)
    with pytest.raises(InvalidSpec, match="`wait_frac` must be from 0 to below 1"):
        TwoLevel(wait_frac=1.0)


def test_a_job_of_devices_gets_whole_devices() -> None:
    spec = replace(
        SPEC, worker=Resources(gpus=1), ceiling=Resources(gpus=8), floor=Resources(gpus=1), counts=(1, 2, 4, 8)
    )
    state = TwoLevel().init(spec)
    for at_s, steps in ((2.0, 0), (2.1, 4), (3.1, 44), (3.6, 64)):
        now = reading(at_s, steps, 8, granted=Resources(gpus=8), ceiling=Resources(gpus=8))
        demand, state = TwoLevel().step(spec, state, now)
    assert demand.resources in [Resources(gpus=n) for n in (1, 2, 4)]


def test_the_plant_knows_its_least_cost() -> None:
    training = ElasticTraining(
        scaling=Scaling(undivided_s=0.0, divided_s=0.1, per_peer_s=0.0),
        evaluation_units=0,
        checkpoint_s=0.0,
        n_rehearsals=0,
    )
    assert training.least_worker_s(63.0, STEADY) == pytest.approx(3.0 * 4 + 100.0)
    assert training.least_worker_s(27.0, STEADY) == inf
