"""Quantiles and spreads against the formula and against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.history.summary import Spread, quantile


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_the_quantile_is_the_one_of_numpy(values: list[float], p: float) -> None:
    assert quantile(sorted(values), p) == pytest.approx(float(np.quantile(values, p)), abs=1e-6)


def test_the_quantile_is_the_formula() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    h = 0.9 * (len(values) - 1)  # 3.6: between 8 and 16
    assert quantile(values, 0.9) == pytest.approx(8 + (h - 3) * (16 - 8))
    assert [quantile(values, p) for p in (0.0, 0.5, 1.0)] == [1.0, 4.0, 16.0]


@pytest.mark.parametrize(("values", "p"), [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_quantile_of_nothing_or_of_no_share_is_refused(values: list[float], p: float) -> None:
    with pytest.raises(InvalidSpec, match="share from 0 to 1"):
        quantile(values, p)


def test_a_spread_of_values_in_any_order() -> None:
    values = [float(i) for i in range(101)]
    spread = Spread.of(reversed(values))
    assert spread == Spread(n=101, mean=50.0, median=50.0, p95=95.0, p99=99.0, max=100.0)
    assert Spread.of([]) is None
    assert Spread.of([3.0]) == Spread(1, 3.0, 3.0, 3.0, 3.0, 3.0)
