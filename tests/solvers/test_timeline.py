"""Minimum satisfactory shares over spans of different lengths, by hand and against all that is free."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.solvers.timeline import Levels, Share, Timeline


def levels(*pairs: tuple[float, float]) -> Levels:
    """Amounts and rates; holding nothing comes before them."""
    return Levels(np.array([0.0, *(amount for amount, _ in pairs)]), np.array([0.0, *(rate for _, rate in pairs)]))


def timeline(*steps: tuple[float, float]) -> Timeline:
    """Starts and what is free from then on."""
    return Timeline(
        np.array([start for start, _ in steps], dtype=float), np.array([free for _, free in steps], dtype=float)
    )


def course(share: Share | None) -> tuple[list[tuple[float, float]], float]:
    assert share is not None
    return list(zip(share.starts_s.tolist(), share.amounts.tolist(), strict=True)), share.end_s


LINEAR = levels((1, 1), (2, 2), (4, 4))


def test_the_fewest_that_are_enough() -> None:
    assert course(Timeline.of(8).least_share(LINEAR, work=15.0, until_s=10.0)) == ([(0.0, 2.0)], 7.5)


def test_before_the_last_spans_the_next_smaller_amount_is_enough() -> None:
    share = timeline((0, 8), (4, 8), (8, 8)).least_share(LINEAR, work=14.0, until_s=10.0)
    # Two devices from 4 on would do 12 of 14 steps, so that they begin at 0.
    assert course(share) == ([(0.0, 2.0), (4.0, 2.0)], 7.0)
    share = timeline((0, 8), (4, 8), (8, 8)).least_share(LINEAR, work=12.0, until_s=10.0)
    assert course(share) == ([(0.0, 1.0), (4.0, 2.0)], 8.0)


def test_the_least_amount_begins_as_late_as_it_can() -> None:
    share = timeline((0, 1), (4, 1)).least_share(LINEAR, work=6.0, until_s=10.0)
    assert course(share) == ([(0.0, 0.0), (4.0, 1.0)], 10.0)
    assert share is not None
    assert (share.now, share.rises_at_s(0.0), share.rises_at_s(1.0)) == (0.0, 4.0, inf)


def test_a_span_with_too_little_is_used_as_far_as_it_goes() -> None:
    share = timeline((0, 4), (2, 3), (5, 0)).least_share(LINEAR, work=12.0, until_s=100.0)
    assert course(share) == ([(0.0, 4.0), (2.0, 2.0)], 4.0)


def test_what_may_not_be_paused_holds_its_least_to_the_end() -> None:
    share = timeline((0, 1), (4, 1)).least_share(LINEAR, work=6.0, until_s=10.0, least=1)
    assert course(share) == ([(0.0, 1.0), (4.0, 1.0)], 6.0)


@pytest.mark.parametrize("until_s", [-1.0, 0.0, 1.4])
def test_no_share_is_enough(until_s: float) -> None:
    assert Timeline.of(8).least_share(LINEAR, work=6.0, until_s=until_s) is None


def test_as_soon_as_possible() -> None:
    assert course(timeline((0, 1), (2, 0), (3, 9)).soonest(LINEAR, work=6.0)) == (
        [(0.0, 1.0), (2.0, 0.0), (3.0, 4.0)],
        4.0,
    )
    assert timeline((0, 1), (2, 0)).soonest(LINEAR, work=6.0).end_s == inf


def test_a_share_is_taken_until_its_end() -> None:
    before = timeline((0, 4), (4, 3))
    share = before.least_share(LINEAR, work=11.0, until_s=6.0)
    assert course(share) == ([(0.0, 2.0), (4.0, 2.0)], 5.5)
    assert share is not None
    after = before.take(share)
    assert (after.starts_s.tolist(), after.free.tolist()) == ([0.0, 4.0, 5.5], [2.0, 1.0, 3.0])
    assert before.free.tolist() == [4.0, 3.0]
    to_the_edge = before.least_share(LINEAR, work=8.0, until_s=4.0)
    assert to_the_edge is not None
    assert before.take(to_the_edge).free.tolist() == [2.0, 3.0]
    assert before.plus(1.5).free.tolist() == [5.5, 4.5]


def test_a_plan_made_before_is_followed() -> None:
    spans = timeline((0, 8), (4, 2)).split([-3.0, 0.0, 2.0, 6.0])
    assert spans.starts_s.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert spans.free.tolist() == [8.0, 8.0, 2.0, 2.0]
    # Two since before now, four from 2 on, of which from 4 on only two are free, nothing from 6 on.
    starts_s, amounts = [-3.0, 2.0, 6.0], [2.0, 4.0, 0.0]
    assert course(spans.follow(LINEAR, 13.0, starts_s, amounts)) == ([(0.0, 2.0), (2.0, 4.0), (4.0, 2.0)], 4.5)
    assert spans.follow(LINEAR, 17.0, starts_s, amounts).end_s == inf
    assert spans.follow(LINEAR, 17.0, starts_s, amounts, least=1).end_s == 7.0
    assert spans.split([4.0]) is spans


@pytest.mark.parametrize("amounts", [[0, 1, 1], [1, 2, 3], [0, 2, 1]])
def test_levels_ascend(amounts: list[float]) -> None:
    with pytest.raises(InvalidSpec, match="must ascend from 0"):
        Levels(np.array(amounts, dtype=float), np.array([0.0, 1.0, 2.0]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Levels, list[int], float, int]:
    """Levels, what is free in slots of one second, work and a deadline."""
    amounts = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)))
    gains = draw(st.lists(st.integers(1, 5), min_size=len(amounts), max_size=len(amounts)))
    found = levels(*zip(amounts, np.cumsum(gains).tolist(), strict=True))
    free = draw(st.lists(st.integers(0, 7), min_size=1, max_size=8))
    return found, free, float(draw(st.integers(1, 40))), draw(st.integers(1, len(free)))


@given(cases())
def test_there_is_a_share_where_all_that_is_free_is_enough(case: tuple[Levels, list[int], float, int]) -> None:
    found, free, work, deadline = case
    spans = Timeline(np.arange(len(free), dtype=float), np.array(free, dtype=float))
    share = spans.least_share(found, work, float(deadline))
    most = sum(found.rates[found.amounts <= n].max() for n in free[:deadline])
    assert (share is not None) == (most >= work)
    if share is None:
        return
    assert share.end_s <= deadline
    assert (share.amounts <= spans.free[: len(share.amounts)]).all()
    lengths_s = np.diff(share.starts_s, append=share.end_s)
    assert found.rates[np.searchsorted(found.amounts, share.amounts)] @ lengths_s == pytest.approx(work)
    largest = int(np.searchsorted(found.amounts, share.amounts.max()))
    smaller = Levels(found.amounts[:largest], found.rates[:largest])
    assert len(smaller.amounts) == 1 or spans.least_share(smaller, work, float(deadline)) is None
