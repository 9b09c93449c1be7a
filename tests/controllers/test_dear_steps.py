"""Steps that cost far more than the others: what is expected of them, and how jobs with them land."""

from dataclasses import replace

import pytest
from tests.controllers.test_remaining_cost import runs, training

from punctual.controllers._cost import DearSteps, Span
from punctual.sim.plants.quota_plant import PlantWorld, QuotaRun, Training

PACED, CAPPED, UNCAPPED = (
    PlantWorld(can_pace=True),
    PlantWorld(can_pace=False),
    PlantWorld(can_pace=True, can_cap=False),
)


def dear(*ends: float, extra_steps: float = 40.0) -> DearSteps:
    """Dear steps that were seen to end at these counts."""
    steps = DearSteps()
    for end in ends:
        steps = steps.seen(extra_steps, Span(end - 2, end))
    return steps


def with_evaluations(ratio: float, n: int, share: float) -> Training:
    """A job of which so many evaluations that nobody declared are this share."""
    work = training(ratio)
    core_s = work.n_steps * work.step_core_s * share / n
    work = replace(work, epoch_steps=int(work.epoch_steps * (1 - share)))
    return replace(work, dear_every=work.n_steps // n, dear_core_s=core_s)


def false_alarms(run: QuotaRun, from_step: float) -> int:
    """Forecasts from that step on that the deadline cannot be met."""
    later = [demand.forecast for reading, demand in run.ticks if reading.steps_done >= from_step]
    return sum(forecast is not None and not forecast.feasible for forecast in later)


def test_a_single_dear_step_is_not_expected_again_but_there_may_be_more() -> None:
    expected, most = dear(100).left(150, 1000)
    assert expected == 0.0
    assert most > 5


def test_regular_dear_steps_are_expected_at_their_interval() -> None:
    assert dear(100, 200).left(210, 1050) == pytest.approx((8, 8), abs=0.5)
    assert dear(100, 200, 300).left(310, 1050) == pytest.approx((7, 7), abs=0.5)


def test_dear_steps_that_are_overdue_or_come_at_random_are_expected_as_often_as_they_came() -> None:
    assert dear(100, 200).left(500, 1000) == pytest.approx((2, 2))
    assert dear(100, 130, 500).left(600, 1000) == pytest.approx((2, 2))


def test_no_more_are_expected_once_the_last_one_has_come() -> None:
    assert dear(100, 200, 300, 400).left(420, 480)[1] < 0.5


def test_an_evaluation_after_the_last_step_is_expected_of_a_program_that_is_only_read() -> None:
    """The plant has landed at its last step; the fifth evaluation, of 2 core-seconds, would show with another one."""
    work = Training(n_epochs=1, epoch_steps=999, step_core_s=0.025, phases=(), dear_every=200, dear_core_s=2.0)
    for run in runs(work, CAPPED):
        reading, demand = run.ticks[-1]
        assert demand.work is not None
        assert demand.work.core_s > 1.5
        assert demand.resources.cores * (run.deadline_s - reading.elapsed_s) > 1.5


def test_a_small_one_before_a_large_one_is_forgotten() -> None:
    assert dear(20, extra_steps=3).seen(100, Span(198, 200)).n == 1


@pytest.mark.parametrize("world", [PACED, CAPPED, UNCAPPED], ids=["paced", "capped", "uncapped"])
@pytest.mark.parametrize("ratio", [2.0, 3.0])
@pytest.mark.parametrize(("n", "share"), [(5, 0.2), (10, 0.2), (20, 0.3)])
def test_an_undeclared_regular_evaluation_is_no_false_alarm_after_its_second_time(
    ratio: float, n: int, share: float, world: PlantWorld
) -> None:
    work = with_evaluations(ratio, n, share)
    for run in runs(work, world):
        assert false_alarms(run, 2.1 * work.dear_every) == 0
        assert -0.07 < run.deviation_frac <= 0.002  # early by an evaluation that could still have come


@pytest.mark.parametrize("world", [PACED, CAPPED, UNCAPPED], ids=["paced", "capped", "uncapped"])
@pytest.mark.parametrize("at_frac", [0.1, 0.5])
def test_a_single_dear_step_is_no_alarm_and_changes_no_landing(at_frac: float, world: PlantWorld) -> None:
    work = training(2.0)
    work = replace(work, dear_every=int(at_frac * work.n_steps), dear_core_s=3.0, n_dear_max=1)
    for run in runs(work, world):
        assert false_alarms(run, 0) == 0
        assert -0.025 < run.deviation_frac <= 0.0


def test_a_cost_that_trebles_for_good_is_learned_from_two_samples() -> None:
    work = training(3.0, cost_change_at_frac=0.5, cost_change_factor=3.0)
    for run in runs(work, PACED):
        assert run.deviation_frac < 0.002
