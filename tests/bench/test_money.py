"""The fast plays of bench/money.py: no count of spot machines makes a job late, and no play costs less than the bounds."""

from itertools import product
from math import inf
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
    bound_usd,
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


SPOT, STAYS = 1.0 / HOUR_S, 4.0 / HOUR_S
SPEEDS = (0.0, 1.0, 1.9, 2.7)


def least_by_trying(counts: list[int], work: float) -> float:
    """Return the least cost over all numbers of machines in each hour, start-ups free, whole hours paid for."""
    best = inf
    for numbers in product(range(len(SPEEDS)), repeat=len(counts)):
        done = sum(SPEEDS[n] for n in numbers)
        if done >= work:
            usd = sum(min(n, a) * 1.0 + max(0, n - a) * 4.0 for n, a in zip(numbers, counts, strict=True))
            best = min(best, usd)
    return best


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=4), st.floats(0.1, 5.0))
def test_no_schedule_costs_less_than_the_bound(counts: list[int], work: float) -> None:
    spans: dict[tuple[int, ...], float] = {}
    for n in counts:
        spans[n,] = spans.get((n,), 0.0) + HOUR_S
    bound = bound_usd(work * HOUR_S, SPEEDS, spans, [SPOT], STAYS)
    assert bound <= least_by_trying(counts, work) + 1e-6


def test_the_bound_is_reached_where_everything_is_steady() -> None:
    assert bound_usd(19.0 * HOUR_S, SPEEDS, {(2,): 10 * HOUR_S}, [SPOT], STAYS) == pytest.approx(20.0, rel=1e-6)


def test_the_bound_is_reached_where_the_last_machine_adds_little() -> None:
    speeds = (0.0, 1.0, 1.01)
    assert bound_usd(10.1 * HOUR_S, speeds, {(0,): 10 * HOUR_S}, [SPOT], STAYS) == pytest.approx(80.0, rel=1e-3)
