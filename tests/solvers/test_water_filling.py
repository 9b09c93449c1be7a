"""One level for all: the formula, found by bisection."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.solvers.water_filling import fill


@pytest.mark.parametrize(
    ("weights", "floors", "caps", "capacity", "expected"),
    [
        ([], [], [], 1.0, []),
        ([1.0, 1.0], [0.0, 0.0], [1.0, 2.0], 5.0, [1.0, 2.0]),
        ([3.0, 1.0], [0.0, 0.0], [3.0, 1.0], 2.0, [1.5, 0.5]),
        ([1.0, 1.0], [0.0, 0.0], [0.5, 9.0], 2.0, [0.5, 1.5]),
        ([1.0, 1.0], [0.0, 1.5], [9.0, 9.0], 2.0, [0.5, 1.5]),
        ([1.0, 1e-12], [0.0, 0.0], [1.0, 4.0], 3.0, [1.0, 2.0]),
        ([1.0, 1.0], [1.0, 1.0], [2.0, 2.0], 2.0, [1.0, 1.0]),
        ([1e9, 1e-9, 1.0], [0.0, 0.0, 0.0], [0.3, 1.0, 0.3], 1.12, [0.3, 0.52, 0.3]),
    ],
)
def test_by_hand(
    weights: list[float], floors: list[float], caps: list[float], capacity: float, expected: list[float]
) -> None:
    assert fill(weights, floors, caps, capacity) == pytest.approx(expected)


@st.composite
def shortages(draw: st.DrawFn) -> tuple[list[float], list[float], list[float], float]:
    """Weights, floors below caps, and a capacity between the two sums."""
    caps = draw(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=12))
    floors = [cap * draw(st.floats(0.0, 1.0)) for cap in caps]
    weights = [draw(st.floats(1e-6, 1e3)) for _ in caps]
    between = draw(st.floats(0.0, 1.0))
    return weights, floors, caps, fsum(floors) + between * (fsum(caps) - fsum(floors))


@given(shortages())
def test_obeys_its_formula(shortage: tuple[list[float], list[float], list[float], float]) -> None:
    weights, floors, caps, capacity = shortage
    amounts = fill(weights, floors, caps, capacity)
    assert fsum(amounts) == pytest.approx(capacity)
    level = bisected_level(weights, floors, caps, capacity)
    expected = [min(c, max(f, level * w)) for w, f, c in zip(weights, floors, caps, strict=True)]
    assert amounts == pytest.approx(expected, rel=1e-6, abs=1e-6)


def bisected_level(weights: list[float], floors: list[float], caps: list[float], capacity: float) -> float:
    low, high = 0.0, max(cap / weight for cap, weight in zip(caps, weights, strict=True))
    for _ in range(200):
        middle = (low + high) / 2
        filled = fsum(min(c, max(f, middle * w)) for w, f, c in zip(weights, floors, caps, strict=True))
        low, high = (middle, high) if filled <= capacity else (low, middle)
    return low
