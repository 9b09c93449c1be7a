"""The random numbers have the distributions they are called by."""

import pytest

from punctual.sim.traces.draw import Draw, fraction, mean_between, mean_of

N = 20_000


def test_fractions_depend_on_every_name_and_are_uniform() -> None:
    assert fraction(1, "a", "bc") == fraction(1, "a", "bc")
    assert len({fraction(1, "a", "bc"), fraction(1, "ab", "c"), fraction(2, "a", "bc"), fraction("1", "a")}) == 4
    drawn = [fraction(i) for i in range(N)]
    assert min(drawn) >= 0
    assert max(drawn) < 1
    assert sum(drawn) / N == pytest.approx(0.5, abs=0.01)
    assert sum(one < 0.25 for one in drawn) / N == pytest.approx(0.25, abs=0.01)


def test_exponential() -> None:
    draw = Draw(1)
    drawn = [draw.exponential(10.0) for _ in range(N)]
    assert sum(drawn) / N == pytest.approx(10.0, rel=0.03)
    # Shares beyond one, two and three means: e^-1, e^-2, e^-3.
    for means, share in ((1, 0.3679), (2, 0.1353), (3, 0.0498)):
        assert sum(one > 10.0 * means for one in drawn) / N == pytest.approx(share, abs=0.01)


def test_counts_include_both_ends() -> None:
    draw = Draw(2)
    drawn = [draw.count(3, 5) for _ in range(3_000)]
    assert {n: round(drawn.count(n) / 3_000, 1) for n in set(drawn)} == {3: 0.3, 4: 0.3, 5: 0.3}


def test_picking_follows_the_weights() -> None:
    draw, choices = Draw(3), ((1, 3.0), (2, 0.0), (4, 1.0))
    drawn = [draw.pick(choices) for _ in range(N)]
    assert set(drawn) == {1, 4}
    assert sum(drawn) / N == pytest.approx(mean_of(choices), rel=0.02)
    assert mean_of(choices) == 1.75


def test_between_quantiles() -> None:
    draw, quantiles = Draw(4), ((0.0, 10.0), (0.5, 20.0), (1.0, 120.0))
    drawn = [draw.between(quantiles) for _ in range(N)]
    assert (min(drawn) >= 10.0, max(drawn) <= 120.0) == (True, True)
    assert sum(one <= 20.0 for one in drawn) / N == pytest.approx(0.5, abs=0.01)
    assert sum(drawn) / N == pytest.approx(mean_between(quantiles), rel=0.02)
    assert mean_between(quantiles) == 42.5


def test_chance() -> None:
    draw = Draw(5)
    assert sum(draw.chance(0.3) for _ in range(N)) / N == pytest.approx(0.3, abs=0.01)
    assert not draw.chance(0.0)
    assert draw.chance(1.0)
