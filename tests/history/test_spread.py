"""Spreads of values against the formula of their quantiles."""

import pytest

from punctual.history.summary import Spread


def test_a_quantile_between_two_values_is_linear_between_them() -> None:
    spread = Spread.of([1.0, 2.0, 4.0, 8.0, 16.0])
    assert spread is not None
    h = 0.95 * 4  # 3.8: between 8 and 16
    assert spread.p95 == pytest.approx(8 + (h - 3) * (16 - 8))
    assert (spread.median, spread.max) == (4.0, 16.0)


def test_a_spread_of_values_in_any_order() -> None:
    values = [float(i) for i in range(101)]
    spread = Spread.of(reversed(values))
    assert spread == Spread(n=101, mean=50.0, median=50.0, p95=95.0, p99=99.0, max=100.0)
    assert Spread.of([]) is None
    assert Spread.of([3.0]) == Spread(1, 3.0, 3.0, 3.0, 3.0, 3.0)
