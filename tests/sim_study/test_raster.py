"""The image of a Gantt chart shows each second of each job once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.sim.drawing.raster import raster


def stays(jobs: list[tuple[float, float]], segments: list[tuple[int, float, float]]) -> Any:
    return (
        np.array([job[0] for job in jobs], dtype=float),
        np.array([job[1] for job in jobs], dtype=float),
        np.array([one[0] for one in segments], dtype=np.int64),
        np.array([one[1] for one in segments], dtype=float),
        np.array([one[2] for one in segments], dtype=float),
    )


def test_waiting_and_running_by_hand() -> None:
    image = raster(*stays([(0, 4), (1, 8)], [(0, 1, 4), (1, 4, 5.5), (1, 6, 8)]), n_columns=8)
    assert image.n_jobs_per_row == 1
    assert image.running_frac.tolist() == [[0, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0.5, 1, 1]]
    assert image.waiting_frac.tolist() == [[1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0.5, 0, 0]]


def test_rows_hold_equally_many_jobs() -> None:
    image = raster(*stays([(0, 1)] * 5, [(i, 0, 1) for i in range(5)]), n_rows_max=2, n_columns=1)
    assert image.n_jobs_per_row == 3
    assert image.running_frac.tolist() == [[1], [1]]


@pytest.mark.parametrize("jobs", [[], [(3.0, 3.0)]])
def test_nothing_can_be_drawn(jobs: list[tuple[float, float]]) -> None:
    image = raster(*stays(jobs, []), n_columns=4)
    assert not image.running_frac.any()
    assert image.until_s > image.from_s


#: A column of a picture cannot be shorter than a clock can tell.
LIFE_S = st.just(0.0) | st.floats(1e-6, 1e6)
LIVES = st.lists(st.tuples(st.floats(0, 1e6), LIFE_S, st.floats(0, 1), st.floats(0, 1)), max_size=30)


@given(LIVES, st.integers(1, 7), st.integers(1, 50))
def test_no_second_is_lost(lives: list[tuple[float, float, float, float]], n_rows_max: int, n_columns: int) -> None:
    jobs = [(at, at + life_s) for at, life_s, _, _ in lives]
    held = [(i, at + life_s * min(a, b), at + life_s * max(a, b)) for i, (at, life_s, a, b) in enumerate(lives)]
    image = raster(*stays(jobs, held), n_rows_max=n_rows_max, n_columns=n_columns)
    n_in_row = np.bincount(np.arange(len(jobs)) // image.n_jobs_per_row, minlength=len(image.running_frac))
    column_s = (image.until_s - image.from_s) / n_columns
    scale = max(1.0, image.until_s)
    running_s = (image.running_frac.sum(axis=1) * n_in_row).sum() * column_s
    waiting_s = (image.waiting_frac.sum(axis=1) * n_in_row).sum() * column_s
    held_s = sum(until_s - from_s for _, from_s, until_s in held)
    assert running_s == pytest.approx(held_s, abs=1e-6 * scale)
    assert running_s + waiting_s == pytest.approx(sum(end - begin for begin, end in jobs), abs=1e-6 * scale)
    assert (image.running_frac >= -1e-9).all()
    assert (image.running_frac <= 1 + 1e-9).all()
