"""The fewest device-seconds on a timeline: what one job takes, against every possible plan."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from punctual.solvers.timeline import Levels, Timeline

_AMOUNTS = [1, 2, 4]
_RATES = st.lists(st.integers(1, 8), min_size=3, max_size=3)


def _plans(levels: Levels, free: list[int]) -> list[tuple[int, ...]]:
    return list(product(*[[int(amount) for amount in levels.amounts if amount <= room] for room in free]))


def _done(levels: Levels, amounts: tuple[int, ...], lengths_s: list[int]) -> float:
    rates = dict(zip(levels.amounts.tolist(), levels.rates.tolist(), strict=True))
    return sum(rates[amount] * length_s for amount, length_s in zip(amounts, lengths_s, strict=True))


@settings(deadline=None, max_examples=examples(150))
@given(
    _RATES,
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 60),
    st.booleans(),
)
def test_what_can_be_done_is_done_and_nothing_else_is_promised(
    rates: list[int], room: list[tuple[int, int]], work: int, late: bool
) -> None:
    levels = Levels.of(_AMOUNTS, [float(rate) for rate in rates])
    lengths_s, free = [length_s for length_s, _ in room], [n for _, n in room]
    ends_s = np.cumsum([0, *lengths_s], dtype=np.float64)
    timeline = Timeline(ends_s, np.array([*free, 4.0]))
    found = timeline.cheapest_share(levels, float(work), float(sum(lengths_s)), late=late)
    possible = [plan for plan in _plans(levels, free) if _done(levels, plan, lengths_s) >= work]
    assert (found is not None) == bool(possible)
    if found is not None:
        assert (found.amounts <= np.array(free)).all()
        assert _done(levels, tuple(found.amounts.tolist()), lengths_s) >= work * (1 - 1e-6)


def test_a_concave_job_takes_the_fewest_device_seconds() -> None:
    levels = Levels.of([1, 2, 4], [1.0, 1.8, 3.0])
    found = Timeline.of(4).split([10.0, 20.0]).cheapest_share(levels, 20.0, 20.0)
    assert found is not None
    assert found.amounts.tolist() == [1, 1]


def test_early_or_late() -> None:
    levels, timeline = Levels.of([2], [1.0]), Timeline.of(2).split([10.0, 20.0, 30.0])
    early, late = timeline.cheapest_share(levels, 10.0, 30.0), timeline.cheapest_share(levels, 10.0, 30.0, late=True)
    assert early is not None
    assert late is not None
    assert (early.amounts.tolist(), late.amounts.tolist()) == ([2, 0, 0], [0, 0, 2])


def test_a_deadline_between_ends_counts_as_the_end_before() -> None:
    assert Timeline.of(1).split([10.0, 20.0]).cheapest_share(Levels.of([1], [1.0]), 15.0, 19.0) is None


def test_what_is_taken_is_not_free() -> None:
    timeline, levels = Timeline.of(2).split([10.0]), Levels.of([2], [1.0])
    share = timeline.cheapest_share(levels, 1.0, 10.0)
    assert share is not None
    assert timeline.take(share).cheapest_share(levels, 1.0, 10.0) is None
    assert timeline.less(1.0).everything(levels).amounts.tolist() == [0.0]
    assert timeline.everything(levels).amounts.tolist() == [2.0]
