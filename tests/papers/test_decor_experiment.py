"""The experiment `decor`: its jobs, and the sizes for which the law is stable."""

import pytest

from punctual.papers.decor_nn import experiment as decor
from punctual.papers.reproduction import Row, load


def test_it_is_found_by_its_name() -> None:
    assert load("decor-nn") is decor.run


def test_a_run_is_its_seed_and_lands_near_its_deadline() -> None:
    small = decor.Setting(size=0.05)
    one, same, other = (decor.on_cores("decor-pi", 40.0, 1.5, seed, small) for seed in (0, 0, 1))
    assert one == same != other
    assert abs(one) < 0.05


def test_the_deadline_can_move_on_the_way() -> None:
    moved = decor.on_cores("remaining-cost", 40.0, 1.8, 0, decor.Setting(moved=True))
    assert abs(moved) < 0.05


def test_the_law_for_devices_needs_larger_jobs_than_that_for_cores() -> None:
    assert decor.bound_s("CPU") == pytest.approx(26.04, abs=0.01)
    assert decor.bound_s("GPU") == pytest.approx(151.04, abs=0.01)
    assert decor.work_s("GPU", "resnet50") < decor.bound_s("GPU")


def test_a_setting_is_a_reason_only_where_it_brings_the_same_ratios_near() -> None:
    def why(at_fastest: float, above: float, changed: float) -> str:
        cells = [
            Row(f"CPU, decor-pi, resnet50, {ratio:g} x fastest, %", None, at_fastest if ratio == 1 else above)
            for ratio in decor.RATIOS
        ]
        name = "CPU, decor-pi, 1.5 and 1.8 x fastest, batches four times as long, %"
        return decor.headline("CPU", cells, [Row(name, None, changed)]).why

    assert why(9.0, 0.4, 0.5).startswith(
        "not known; at 1.5 and 1.8 x fastest alone 0.4, and of 2 settings there nearest: batches"
    )
    assert why(9.0, 0.4, 1.7).startswith("at 1.5 and 1.8 x fastest alone 0.4, ")
    assert why(9.0, 1.8, 1.75).startswith("not known")
