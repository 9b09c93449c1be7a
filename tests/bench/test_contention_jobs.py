"""The trainings of the benchmark of contention fit for whoever knows all, and not by constant demands."""

import pytest
from _contention_jobs import contention, least_peak, most_demanded, overload, time_scale
from _contention_runs import Profile


@pytest.mark.parametrize("scale", [1.0, 2.25])
@pytest.mark.parametrize("quick", [False, True])
def test_what_meets_fits_but_not_with_constant_demands(scale: float, quick: bool) -> None:
    for seed in range(3):
        loads = contention(seed, scale, quick=quick)
        assert least_peak(loads) < 1.0 < most_demanded(loads)


def test_times_and_work_grow_with_what_a_start_costs() -> None:
    assert time_scale(1.0) == 1.0
    scale = time_scale(4.5)
    assert scale == pytest.approx(2.25)
    for once, scaled in zip(contention(0, 1.0), contention(0, scale), strict=True):
        assert scaled.work_core_s == pytest.approx(scale * once.work_core_s, abs=0.2)
        assert scaled.moved_s == scale * once.moved_s


def test_an_overloaded_machine_is_asked_for_so_many_times_what_it_has() -> None:
    loads = overload(0, 1.0)
    last_s = max(load.deadline_s or 0.0 for load in loads)
    assert sum(load.work_core_s for load in loads) / (2.0 * last_s) == pytest.approx(1.6, abs=0.01)


def test_the_steps_of_a_training_leave_room_for_all_of_its_starts() -> None:
    profile = Profile(startup_core_s=4.0, step_core_s=0.1)
    loads = {load.name: load for load in contention(0, 2.0)}
    crashing, elastic = loads["crashing"], loads["elastic"]
    steps = 4 * profile.n_epoch_steps(crashing, is_elastic=False)
    assert 0.1 * steps == pytest.approx(crashing.work_core_s - 2 * 4.0, abs=0.3)
    assert profile.n_epoch_steps(elastic, is_elastic=True) < profile.n_epoch_steps(elastic, is_elastic=False)
