"""The page of a study says what came out, and needs no other file."""

import re
from pathlib import Path

import pytest

from punctual.cli._study_page import cell, page
from punctual.sim.api import simulate
from punctual.sim.measures import MEASURES, Estimate
from punctual.sim.result import Result

JCT = next(one for one in MEASURES if one.name == "jct_mean_s")
MET = next(one for one in MEASURES if one.name == "deadlines_met_frac")


def test_a_cell_says_how_sure_it_is() -> None:
    assert cell(MET, Estimate(0.931, 0.004)) == "93.1 % ± 0.4 %"
    assert cell(MET, Estimate(1.0, None)) == cell(MET, Estimate(1.0, 0.0)) == "100.0 %"
    assert cell(JCT, None) == "-"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return simulate(
        policies=["fifo", {"name": "fifo", "label": "<b>other</b>", "backfill": True}], seeds=1, cluster="2x4",
        trace={"jobs": 12}, deadlines="uniform:1.2,4", out=tmp_path_factory.mktemp("report"),
    )  # fmt: skip


def test_seeds_that_draw_nothing_are_told_and_have_no_interval(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "a"\nprogram = ["true"]\nwork = "60s"\ndeadline = "2m"\n', encoding="utf-8")
    again = simulate(policies=["fifo"], seeds=3, trace=str(jobs), cluster=[{"cores": 2.0}], out=tmp_path)
    text = page(again)
    assert "±" not in text
    assert "All seeds give the same numbers." in text


@pytest.fixture(scope="module")
def text(result: Result) -> str:
    return page(result)


def test_what_is_wider_than_a_screen_is_scrolled_alone_and_drawings_have_names(text: str) -> None:
    regions = re.findall(
        r'<div class="wide" tabindex="0" role="region" aria-label="[^"]+"><(table|svg role="img" aria-label="[^"]+")',
        text,
    )
    assert len(regions) == text.count("<table") + text.count("<svg")


def test_a_page_needs_no_other_file(text: str) -> None:
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "<script" not in text
    assert text.count("<svg") == 3


def test_a_page_tells_what_was_decided_and_why(text: str) -> None:
    decided = text.partition("<h2>Decisions</h2>")[2]
    assert decided.count("<h3>") == 2
    assert "this policy proves no bound" in decided
    assert "<th>launch</th><td>12</td>" in decided


def test_a_page_shows_names_as_text(text: str) -> None:
    assert "<b>other</b>" not in text
    assert "&lt;b&gt;other&lt;/b&gt;" in text


def test_the_same_result_makes_the_same_page(result: Result, text: str) -> None:
    assert page(result) == text
