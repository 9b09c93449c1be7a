"""Spans of time: what one job takes, against every possible plan."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.optim.spans import Ladder, Spans

_AMOUNTS = [1, 2, 4]
_RATES = st.lists(st.integers(1, 8), min_size=3, max_size=3)


def _plans(ladder: Ladder, free: list[int]) -> list[tuple[int, ...]]:
    return list(product(*[[int(amount) for amount in ladder.amounts if amount <= room] for room in free]))


def _done(ladder: Ladder, amounts: tuple[int, ...], lengths_s: list[int]) -> float:
    rates = dict(zip(ladder.amounts.tolist(), ladder.rates.tolist(), strict=True))
    return sum(rates[amount] * length_s for amount, length_s in zip(amounts, lengths_s, strict=True))


@settings(deadline=None, max_examples=150)
@given(
    _RATES,
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 60),
    st.booleans(),
)
def test_what_can_be_done_is_done_and_nothing_else_is_promised(
    rates: list[int], room: list[tuple[int, int]], work: int, late: bool
) -> None:
    ladder = Ladder.of(_AMOUNTS, [float(rate) for rate in rates])
    lengths_s, free = [length_s for length_s, _ in room], [n for _, n in room]
    spans = Spans(np.cumsum(lengths_s).tolist(), 4)
    spans.take(np.array([4 - n for n in free]))
    found = spans.least(ladder, float(work), float(sum(lengths_s)), late=late)
    possible = [plan for plan in _plans(ladder, free) if _done(ladder, plan, lengths_s) >= work]
    assert (found is not None) == bool(possible)
    if found is not None:
        assert (found <= np.array(free)).all()
        assert _done(ladder, tuple(found.tolist()), lengths_s) >= work * (1 - 1e-6)


def test_a_concave_job_takes_the_fewest_device_seconds() -> None:
    ladder = Ladder.of([1, 2, 4], [1.0, 1.8, 3.0])
    found = Spans([10.0, 20.0], 4).least(ladder, 20.0, 20.0)
    assert found is not None
    assert found.tolist() == [1, 1]


def test_early_or_late() -> None:
    ladder = Ladder.of([2], [1.0])
    spans = Spans([10.0, 20.0, 30.0], 2)
    early, late = spans.least(ladder, 10.0, 30.0), spans.least(ladder, 10.0, 30.0, late=True)
    assert early is not None
    assert late is not None
    assert (early.tolist(), late.tolist()) == ([2, 0, 0], [0, 0, 2])


def test_a_deadline_between_ends_counts_as_the_end_before() -> None:
    ladder = Ladder.of([1], [1.0])
    assert Spans([10.0, 20.0], 1).least(ladder, 15.0, 19.0) is None


def test_what_is_taken_is_not_free() -> None:
    spans, ladder = Spans([10.0], 2), Ladder.of([2], [1.0])
    spans.take(np.array([1]))
    assert spans.least(ladder, 1.0, 10.0) is None
    spans.take(np.array([-1]))
    assert spans.least(ladder, 1.0, 10.0) is not None


def test_ends_must_ascend() -> None:
    with pytest.raises(InvalidSpec, match="ascend"):
        Spans([10.0, 10.0], 1)
