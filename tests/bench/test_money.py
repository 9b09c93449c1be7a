"""The fast plays of bench/money.py: no count of spot machines makes a job late, and no play costs less than the bounds."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("_market_windows")

from _market_simulated import simulated
from _market_windows import (
    HOUR_S,
    Task,
    Zone,
    least_rigid_usd,
    least_started_usd,
    least_usd,
    ours_rigid,
    play_elastic,
    play_rigid,
    power,
    uniform_progress,
)
from money import curve, curve_section, draw_curve

_TICK_S = 600.0
_COUNTS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=4, max_size=30)


def zone_of(spans: list[tuple[int, int]], n_ticks: int) -> Zone:
    counts = [n for n, ticks in spans for _ in range(ticks)]
    return Zone("made-up", tuple((counts * n_ticks)[:n_ticks]), _TICK_S, 1.0, 4.0)


@settings(deadline=None)
@given(_COUNTS, st.sampled_from([1.0, 0.9, 0.5]), st.floats(0.3, 0.9), st.integers(0, 200))
def test_an_elastic_job_is_never_late(spans: list[tuple[int, int]], exponent: float, load: float, i: int) -> None:
    speeds = power(4, exponent)
    task = Task(speeds, load * 20 * HOUR_S * speeds[4], 20 * HOUR_S, 300.0)
    zone = zone_of(spans, i + 121)
    played = play_elastic(zone, task, i)
    assert played.end_s <= task.deadline_s
    assert played.usd >= least_started_usd(zone, task, i) - 1e-6 >= least_usd(zone, task, i) - 0.02 * played.usd


@settings(deadline=None)
@given(_COUNTS, st.floats(0.3, 0.9), st.integers(0, 200), st.sampled_from([180.0, 720.0]))
def test_a_rigid_job_is_never_late(spans: list[tuple[int, int]], load: float, i: int, startup_s: float) -> None:
    task = Task((0.0, 1.0), load * 20 * HOUR_S, 20 * HOUR_S, startup_s)
    zone = zone_of(spans, i + 121)
    least = least_rigid_usd(zone, task, i, 1)
    for rule in (ours_rigid(zone, task, i, 1), uniform_progress(zone, task, 1)):
        played = play_rigid(zone, task, i, 1, rule)
        assert played.end_s <= task.deadline_s
        assert played.usd >= 0.97 * least, "starts are rounded to parts of a tick"


def test_the_simulated_world_says_the_same() -> None:
    zone = zone_of([(4, 30), (1, 20), (3, 9), (0, 40), (2, 25)], 400)
    speeds = power(4, 0.926)
    task = Task(speeds, 12 * HOUR_S * speeds[4], 20 * HOUR_S, 300.0)
    usd, n_late = simulated(zone, [task], 150, 4)
    assert n_late == 0
    assert usd == pytest.approx(play_elastic(zone, task, 150).usd, rel=0.02)


def test_a_later_deadline_costs_less_and_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = curve(quick=True)
    assert all(run["bound"] <= run["ours"] <= run["on_demand"] for run in runs)
    assert [run["ours"] for run in runs] == sorted((run["ours"] for run in runs), reverse=True)
    assert all(target.reached for target in curve_section(runs).targets)
    draw_curve(runs, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
