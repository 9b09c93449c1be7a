"""Inside the table, between its entries, outside it, and after reports that contradict it."""

from math import inf, sqrt

import pytest

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated, TabulatedState
from punctual.testing.model_kit import spec_of

MODEL = Tabulated()


def entry(n_workers: int, rate_sps: float, *, n_nodes: int = 1, device: str = "") -> SeenRate:
    return SeenRate(shape=Shape(n_workers=n_workers, n_nodes=n_nodes, device=device), rate_sps=rate_sps)


def at(n_workers: int, n_nodes: int = 1, device: str = "") -> Shape:
    return Shape(n_workers=n_workers, n_nodes=n_nodes, device=device)


def table(*entries: SeenRate) -> TabulatedState:
    return MODEL.init(spec_of(*entries))


def test_an_entry_is_what_it_says() -> None:
    state = table(entry(1, 1.0), entry(4, 3.0))
    assert MODEL.rate_sps(state, at(4)) == pytest.approx(3.0)
    assert MODEL.std_sps(state, at(4)) == pytest.approx(0.05 * 3.0)


def test_between_entries_the_logarithms_are_linear() -> None:
    state = table(entry(1, 1.0), entry(4, 2.0))
    assert MODEL.rate_sps(state, at(2)) == pytest.approx(sqrt(2.0))
    assert MODEL.std_sps(state, at(2)) / MODEL.rate_sps(state, at(2)) > 0.1


def test_beyond_the_ends_the_last_entry_without_certainty() -> None:
    state = table(entry(2, 1.0), entry(4, 2.0))
    for n_workers, rate in ((1, 1.0), (8, 2.0), (100, 2.0)):
        assert MODEL.rate_sps(state, at(n_workers)) == pytest.approx(rate)
        assert MODEL.std_sps(state, at(n_workers)) == inf


def test_another_number_of_nodes_has_the_nearest_line_without_certainty() -> None:
    state = table(entry(4, 2.0), entry(4, 1.5, n_nodes=2), entry(4, 1.0, n_nodes=4))
    assert MODEL.rate_sps(state, at(4, n_nodes=2)) == pytest.approx(1.5)
    assert MODEL.rate_sps(state, at(4, n_nodes=8)) == pytest.approx(1.0)
    assert MODEL.std_sps(state, at(4, n_nodes=8)) == inf


def test_workers_on_more_nodes_than_were_measured_are_as_fast_as_so_many_on_fewer() -> None:
    """And not as the largest number that was measured on so many nodes."""
    state = table(*(entry(n, float(n)) for n in (1, 2, 4, 8)), entry(16, 10.33, n_nodes=2))
    for n_workers in (1, 2, 3, 4, 8):
        assert MODEL.rate_sps(state, at(n_workers, n_nodes=2)) == pytest.approx(n_workers)
        assert MODEL.std_sps(state, at(n_workers, n_nodes=2)) == inf
    assert MODEL.rate_sps(state, at(16, n_nodes=3)) == pytest.approx(10.33)
    assert MODEL.rate_sps(state, at(32, n_nodes=2)) == pytest.approx(10.33)


def test_kinds_of_device() -> None:
    state = table(entry(1, 3.0, device="V100"), entry(1, 1.0, device="K80"))
    assert MODEL.rate_sps(state, at(1, device="V100")) == pytest.approx(3.0)
    assert MODEL.rate_sps(state, at(1, device="K80")) == pytest.approx(1.0)
    assert MODEL.rate_sps(state, at(1, device="A100")) == 0
    assert MODEL.std_sps(state, at(1, device="A100")) == inf


def test_a_table_that_names_no_kind_holds_for_all() -> None:
    state = table(entry(1, 3.0))
    assert MODEL.rate_sps(state, at(1, device="V100")) == pytest.approx(3.0)
    assert MODEL.std_sps(state, at(1, device="V100")) < inf


def test_reports_move_the_whole_table() -> None:
    state = table(entry(1, 1.0), entry(2, 1.9), entry(4, 3.5))
    for _ in range(30):
        state = MODEL.update(state, entry(2, 0.8 * 1.9))
    assert MODEL.rate_sps(state, at(4)) == pytest.approx(0.8 * 3.5)
    assert MODEL.std_sps(state, at(4)) < 0.05 * 3.5


def test_a_report_from_a_named_kind_moves_a_table_that_names_none() -> None:
    state = table(entry(1, 1.0), entry(2, 1.8), entry(4, 3.0))
    moved = MODEL.update(state, entry(1, 0.5, device="T4"))
    assert MODEL.rate_sps(moved, at(4, device="T4")) == pytest.approx(1.5)
    wider = MODEL.update(state, entry(8, 5.0, device="T4"))
    assert MODEL.rate_sps(wider, at(8, device="T4")) == pytest.approx(5.0)
    assert MODEL.rate_sps(wider, at(4, device="T4")) == pytest.approx(3.0)


def test_reports_that_scatter_widen_the_interval() -> None:
    state = table(entry(1, 1.0))
    for i in range(40):
        state = MODEL.update(state, entry(1, 1.0 + 0.4 * (-1) ** i))
    assert MODEL.std_sps(state, at(1)) > 0.25


def test_a_shape_that_the_table_lacks_is_added() -> None:
    state = MODEL.update(table(entry(1, 1.0)), entry(8, 5.0))
    assert MODEL.rate_sps(state, at(8)) == pytest.approx(5.0)
    assert MODEL.std_sps(state, at(4)) < inf
    assert MODEL.rate_sps(table(entry(1, 1.0)), at(8)) == pytest.approx(1.0)


def test_several_measurements_of_a_shape_are_averaged() -> None:
    assert MODEL.rate_sps(table(entry(1, 1.0), entry(1, 3.0)), at(1)) == pytest.approx(2.0)


def test_a_job_not_made_of_workers_is_tabulated_over_cores() -> None:
    profile = tuple(SeenRate(shape=Shape(cores=cores), rate_sps=cores) for cores in (0.5, 2.0))
    state = MODEL.init(JobSpec(id=JobId("fractions"), ceiling=Resources(2.0), profile=profile))
    assert MODEL.rate_sps(state, Shape(cores=1.0)) == pytest.approx(1.0)
