"""How sure forecasts are; how often they hold is measured by bench/forecasts.py."""

from math import inf

import pytest

from punctual.controllers.remaining_cost import RemainingCost
from punctual.controllers.two_level import TwoLevel
from punctual.core.control import Demand, Forecast
from punctual.sim.plants.quota_plant import STEADY, Contention, PlantWorld, Training, run_closed_loop
from punctual.sim.plants.worker_plant import run_elastic


def told_after(ticks: list[tuple[float, Demand]], at_s: float) -> list[Forecast]:
    return [demand.forecast for tick_s, demand in ticks if tick_s > at_s and demand.forecast is not None]


def test_the_interval_of_a_job_that_is_late_does_not_close_at_its_deadline() -> None:
    training = Training(n_epochs=8)
    deadline_s = 0.5 * training.core_s()
    made = run_closed_loop(RemainingCost(), training, deadline_s=deadline_s, world=PlantWorld())
    late = told_after([(reading.elapsed_s, demand) for reading, demand in made.ticks], deadline_s)
    assert len(late) > 5
    assert all(each.std_s > 0 for each in late if each.finish_s > deadline_s + 1.0)


def test_the_same_of_a_job_of_workers() -> None:
    made = run_elastic(TwoLevel(), deadline_s=25.0)
    late = told_after(list(made.demands), 25.0)
    assert len(late) > 5
    assert all(each.std_s > 0 for each in late)


def test_a_steered_job_is_told_a_narrow_interval_with_its_deadline_in_it() -> None:
    made = run_closed_loop(RemainingCost(), deadline_s=90.0, world=PlantWorld(can_pace=True))
    told = told_after([(reading.elapsed_s, demand) for reading, demand in made.ticks], 20.0)
    assert told
    low_s, high_s = told[-1].interval_s
    assert low_s <= made.landed_s <= high_s
    assert high_s - low_s == pytest.approx(0.06, abs=0.05)


def test_the_forecast_follows_cores_that_are_taken_while_a_late_job_is_on_its_line() -> None:
    training = Training(n_epochs=8)
    deadline_s = 0.6 * training.core_s()
    world = PlantWorld(
        noise=STEADY, can_pace=True, contention=(Contention(from_s=deadline_s - 1.0, until_s=1e3, delivered_frac=0.5),)
    )
    made = run_closed_loop(RemainingCost(), training, deadline_s=deadline_s, world=world)
    late = told_after([(reading.elapsed_s, demand) for reading, demand in made.ticks], deadline_s + 8.0)
    assert len(late) > 5
    assert all(each.finish_s == pytest.approx(made.landed_s, rel=0.02) for each in late)


def test_a_job_of_whose_cores_others_take_some_is_told_a_wider_interval() -> None:
    training = Training(n_epochs=8)
    widths = []
    for delivered_frac in (1.0, 0.5):
        others = Contention(from_s=0.0, until_s=1e3, delivered_frac=delivered_frac)
        world = PlantWorld(noise=STEADY, contention=(others,))
        made = run_closed_loop(RemainingCost(), training, deadline_s=0.5 * training.core_s(), world=world)
        told = told_after([(reading.elapsed_s, demand) for reading, demand in made.ticks], 0.1 * made.landed_s)
        widths.append(told[0].std_s / made.landed_s)
    assert widths[1] > 1.2 * widths[0]


@pytest.mark.parametrize(
    "world",
    [
        PlantWorld(noise=STEADY),
        PlantWorld(noise=STEADY, can_pace=True, can_cap=False),
        PlantWorld(),
        PlantWorld(noise=STEADY, contention=(Contention(from_s=0.0, until_s=1e3, delivered_frac=0.5),)),
    ],
    ids=["steady", "pacing alone", "noisy", "beside others"],
)
def test_a_job_without_a_deadline_has_its_ceiling_and_is_told_when_it_lands(world: PlantWorld) -> None:
    made = run_closed_loop(RemainingCost(), Training(n_epochs=8), deadline_s=inf, world=world)
    assert all(demand.resources.cores == 1.0 and demand.pacing is None for _, demand in made.ticks)
    told = told_after([(reading.elapsed_s, demand) for reading, demand in made.ticks], 0.3 * made.landed_s)
    assert len(told) > 5
    assert all(each.finish_s == pytest.approx(made.landed_s, rel=0.15) for each in told)
    intervals = [each.interval_s for each in told]
    assert sum(low_s <= made.landed_s <= high_s for low_s, high_s in intervals) > 0.6 * len(told)


def test_the_same_without_a_deadline_of_a_job_of_workers() -> None:
    made = run_elastic(TwoLevel(), deadline_s=inf)
    told = told_after(list(made.demands), 0.3 * made.landed_s)
    assert len(told) > 5
    assert all(each.finish_s == pytest.approx(made.landed_s, rel=0.15) for each in told)


def test_a_deadline_that_comes_later_finds_what_was_learned_without_one() -> None:
    for seed in range(8):
        world = PlantWorld(can_pace=True, deadline_changes=((18.0, 60.0),))
        made = run_closed_loop(RemainingCost(), deadline_s=inf, world=world, seed=seed)
        assert made.on_time
        assert abs(made.deviation_frac) < 0.0011
