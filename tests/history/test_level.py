"""Levels: exact integrals, and what the rule of thinning promises."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.scene import area

from punctual.history.level import Level, LevelCourse

#: Changes of a level: seconds since the one before, and the new value.
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=200)


def played(changes: list[tuple[int, int]], n_points: int) -> tuple[Level, list[tuple[float, float]], float]:
    """The level, its exact steps, and an instant after them."""
    level, at, steps = Level(n_points), 0.0, dict[float, float]()
    for after_s, value in changes:
        at += after_s
        level.set(at, float(value))
        steps[at] = float(value)
    return level, list(steps.items()), at + 1.0


def exact_area(steps: list[tuple[float, float]], until_at: float) -> float:
    return sum(value * (end - at) for (at, value), (end, _) in pairwise([*steps, (until_at, 0.0)]))


def test_few_changes_are_kept_as_they_are() -> None:
    level = Level(10)
    for at, value in [(1.0, 2.0), (3.0, 5.0), (3.0, 4.0), (6.0, 0.0), (8.0, 1.0)]:
        level.set(at, value)
    course = level.course(9.0)
    values = (2.0, 4.0, 0.0, 1.0)
    assert course == LevelCourse(at=(1.0, 3.0, 6.0, 8.0), mean=values, low=values, high=values, until_at=9.0)
    assert level.integral(9.0) == 2 * 2 + 3 * 4 + 0 + 1


def test_a_level_that_never_changed_has_no_points() -> None:
    course = Level(10).course(5.0)
    assert (course.at, course.mean) == ((), ())


def test_thinning_joins_what_begins_in_the_same_part() -> None:
    level = Level(4)
    for i in range(8):
        level.set(float(i), float(i % 2 + 1))
    course = level.course(8.0, 2)  # parts of 4 s
    assert course == LevelCourse(at=(0.0, 4.0), mean=(1.5, 1.5), low=(1.0, 1.0), high=(2.0, 2.0), until_at=8.0)


@given(CHANGES, st.integers(1, 12))
def test_thinning_keeps_integral_extremes_and_instants(changes: list[tuple[int, int]], n_points: int) -> None:
    level, steps, until_at = played(changes, n_points)
    course = level.course(until_at)
    assert len(course.at) <= n_points
    assert area(course) == pytest.approx(exact_area(steps, until_at))
    assert level.integral(until_at) == pytest.approx(exact_area(steps, until_at))
    assert set(course.at) <= {at for at, _ in steps}
    since_first = [value for at, value in steps if course.at and at >= course.at[0]]
    assert max(course.high, default=0.0) == max(since_first, default=0.0)
    assert min(course.low, default=0.0) == min(since_first, default=0.0)


@given(CHANGES, st.integers(1, 12))
def test_every_piece_bounds_the_level_in_it(changes: list[tuple[int, int]], n_points: int) -> None:
    level, steps, until_at = played(changes, n_points)
    course = level.course(until_at)
    for at, value in steps:
        i = max((i for i, begin_at in enumerate(course.at) if begin_at <= at), default=None)
        if i is not None:
            assert course.low[i] <= value <= course.high[i]
            assert course.low[i] <= course.mean[i] + 1e-9
            assert course.mean[i] <= course.high[i] + 1e-9


def test_what_is_kept_does_not_grow_with_the_changes() -> None:
    level = Level(50)
    for i in range(10_000):
        level.set(float(i), float(i % 7))
        assert len(level._pieces) <= 201
    assert len(level.course(10_000.0).at) <= 50
