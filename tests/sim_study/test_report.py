"""Tables and pages say which policy is best, and need no other file."""

import re
from pathlib import Path

import pytest

from punctual.sim.api import simulate
from punctual.sim.measures import MEASURES, Estimate, best_of
from punctual.sim.report.figures import averaged
from punctual.sim.report.page import cell, page
from punctual.sim.result import Result

JCT = next(one for one in MEASURES if one.name == "jct_mean_s")
MET = next(one for one in MEASURES if one.name == "deadlines_met_frac")
SHOWN_ONLY = next(one for one in MEASURES if one.better == "neither")


def estimates(*means: float | None) -> list[Estimate | None]:
    return [None if mean is None else Estimate(mean, None) for mean in means]


def test_the_best_is_the_lowest_or_the_highest() -> None:
    assert best_of(JCT, estimates(3.0, 2.0, None, 2.0)) == [1, 3]
    assert best_of(MET, estimates(0.3, 0.2)) == [0]


def test_nobody_is_best_where_there_is_nothing_to_choose() -> None:
    assert best_of(JCT, estimates(2.0, 2.0)) == best_of(JCT, estimates(2.0, None)) == []
    assert best_of(SHOWN_ONLY, estimates(1.0, 2.0)) == []


def test_an_estimate_needs_every_seed() -> None:
    assert Estimate.of([1.0, None]) is None
    assert Estimate.of([]) is None
    assert Estimate.of([2.0]) == Estimate(2.0, None)
    one = Estimate.of([1.0, 2.0, 3.0])
    assert one is not None
    assert (one.mean, one.half_width) == (2.0, pytest.approx(4.30265 / 3**0.5, rel=1e-4))


def test_a_cell_says_how_sure_it_is() -> None:
    assert cell(MET, Estimate(0.931, 0.004)) == "93.1 % ± 0.4 %"
    assert cell(MET, Estimate(1.0, None)) == "100.0 %"
    assert cell(JCT, None) == "-"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return simulate(
        policies=["fifo", {"name": "fifo", "label": "<b>other</b>", "backfill": True}], seeds=1, cluster="2x4",
        trace={"jobs": 12}, deadlines="uniform:1.2,4", out=tmp_path_factory.mktemp("report"),
    )  # fmt: skip


def test_a_page_needs_no_other_file(result: Result) -> None:
    text = page(result)
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "<script" not in text
    assert text.count("<svg") == 3


def test_a_page_shows_names_as_text(result: Result) -> None:
    text = page(result)
    assert "<b>other</b>" not in text
    assert "&lt;b&gt;other&lt;/b&gt;" in text


def test_the_same_result_makes_the_same_page(result: Result, tmp_path: Path) -> None:
    assert page(result) == page(result)


def test_averages_keep_what_was_used() -> None:
    curve = {"at": [0.0, 1.0, 4.0, 5.0], "mean": [8.0, 0.0, 4.0, 2.0], "until_at": 8.0}
    assert averaged(curve, n_stretches=4) is curve
    found = averaged(curve, n_stretches=2)
    assert found == {"at": [0.0, 4.0], "mean": [2.0, (4.0 + 3 * 2.0) / 4], "until_at": 8.0}
