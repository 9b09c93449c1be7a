"""Which machines to have: choices that are never late, and what is expected of the future."""

from dataclasses import replace
from math import inf
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from punctual.solvers.machine_market import Need, Outlook, Seen, Supply, choose, reserve_s

HOUR_S = 3600.0
SPOT, STAYS = 1.0 / HOUR_S, 4.0 / HOUR_S
SPEEDS = (0.0, 1.0, 1.9, 2.7)


def seen(*counts: tuple[float, int], at: float = 0.0) -> Seen:
    return Seen(tuple((hour * HOUR_S, n) for hour, n in counts), at * HOUR_S, 3)


def test_lower_layers_last_longer() -> None:
    of = seen((-40, 3), (-30, 1), (-20, 3), (-10, 1))
    assert of.life_s[1] > of.life_s[3]
    assert of.losses_per_s(3, HOUR_S) == pytest.approx(3 / (41 * HOUR_S))
    assert of.age_s(1) == pytest.approx(40 * HOUR_S)
    assert of.age_s(2) == 0.0


def test_slack_is_set_aside_for_losses_before_one_was_seen() -> None:
    new, old = seen((-0.5, 1)), seen((-335, 1))
    need = Need(work=10 * HOUR_S, left_s=20 * HOUR_S, speeds=(0.0, 1.0), restarts=True)
    first, later = (reserve_s(need, (Supply(SPOT, 1, 1, 300.0, of), Supply(STAYS, 0, 1, 300.0))) for of in (new, old))
    assert later == pytest.approx(3 * 2 * 300.0 * 10 / 345)
    assert first == pytest.approx(3 * 2 * 300.0 * 10 / 10.5)


@pytest.mark.parametrize(("left_h", "waits"), [(150.0, True), (102.0, False)])
def test_before_a_pool_was_seen_a_rigid_job_waits_for_it_if_it_has_time(left_h: float, waits: bool) -> None:
    need = Need(work=100 * HOUR_S, left_s=left_h * HOUR_S, speeds=(0.0, 1.0), restarts=True)
    new = (Supply(SPOT, 0, 0, 360.0, seen((-0.1, 0))), Supply(STAYS, 0, 1, 360.0))
    assert choose(need, new, STAYS).n_machines == ((0, 0) if waits else (0, 1))


def supplies(n_spot: int, n_held: int = 0, *, history: Seen | None = None) -> tuple[Supply, Supply]:
    history = history or seen((-100, 3))
    return Supply(SPOT, n_held, n_spot, 300.0, history), Supply(STAYS, 0, 3, 300.0)


def test_cheap_machines_are_taken_as_far_as_they_are_worth_their_price() -> None:
    need = Need(work=10 * HOUR_S, left_s=40 * HOUR_S, speeds=SPEEDS)
    assert choose(need, supplies(3), 1.02 * SPOT).n_machines == (1, 0)
    assert choose(need, supplies(3), 1.3 * SPOT).n_machines == (3, 0)
    assert choose(need, supplies(1), 1.02 * STAYS).n_machines == (1, 0), "a second machine adds 0.9"
    assert choose(need, supplies(1), 1.2 * STAYS).n_machines == (1, 1)


def test_at_the_last_safe_moment_machines_that_stay_fill_up() -> None:
    need = Need(work=27 * HOUR_S, left_s=10.17 * HOUR_S, speeds=SPEEDS)
    choice = choose(need, supplies(2, 2, history=seen((-100, 3), (-1, 2))), SPOT)
    assert (choice.n_machines, choice.mode) == ((2, 1), "tight")


def test_without_slack_nothing_is_risked() -> None:
    need = Need(work=27 * HOUR_S, left_s=10 * HOUR_S, speeds=SPEEDS)
    assert choose(need, supplies(3), SPOT).n_machines == (0, 3)


def test_a_rigid_job_leaves_machines_that_stay_only_where_two_starts_are_earned() -> None:
    rigid = (0.0, 0.0, 1.0)
    stays = (Supply(SPOT, 0, 2, 300.0, seen((-100, 2))), Supply(STAYS, 2, 2, 300.0))
    ample = Need(work=HOUR_S, left_s=10 * HOUR_S, speeds=rigid, restarts=True)
    assert choose(ample, stays, STAYS).n_machines == (2, 0)
    brief = (Supply(SPOT, 0, 2, 3600.0, seen(*[(-100 + i, 2 * (i % 2)) for i in range(100)])), stays[1])
    assert choose(ample, brief, STAYS).n_machines == (0, 2)


def test_a_job_that_restarts_does_not_stay_where_it_would_be_late() -> None:
    """It has one of four spot machines left, and with that it would be done hours after its deadline."""
    need = Need(work=8 * HOUR_S, left_s=2.15 * HOUR_S, speeds=(0.0, 1.0, 2.0, 3.0, 4.0), restarts=True)
    on_spot = (Supply(SPOT, 1, 1, 300.0, seen((-100, 4), (-1, 1))), Supply(STAYS, 0, 4, 300.0))
    assert choose(need, on_spot, STAYS).n_machines == (0, 4)
    nearly_done = replace(need, work=0.05 * HOUR_S, left_s=0.1 * HOUR_S)
    assert choose(nearly_done, on_spot, STAYS).n_machines == (1, 0), "another start would end it later"


def test_a_job_that_restarts_has_as_many_machines_that_stay_as_there_are() -> None:
    need = Need(work=8 * HOUR_S, left_s=4.2 * HOUR_S, speeds=(0.0, 1.0, 2.0, 3.0, 4.0), restarts=True, start_at_s=0.0)
    few = (Supply(SPOT, 0, 0, 300.0, seen((-100, 4), (-1, 0))), Supply(STAYS, 0, 2, 300.0))
    assert choose(need, few, STAYS).n_machines == (0, 2)


@pytest.mark.parametrize("exponent", [0.926, 0.6])
@pytest.mark.parametrize("n_needed", [1.5, 3.0, 6.0])
def test_on_demand_alone_costs_no_more_than_the_fewest_machines_that_are_in_time(
    exponent: float, n_needed: float
) -> None:
    speeds = (0.0, *(n**exponent for n in range(1, 17)))
    work, by_s, start_s, tick_s = n_needed * 20 * HOUR_S, 30 * HOUR_S, 300.0, 300.0
    fewest = next(n for n in range(1, 17) if work / speeds[n] + start_s <= by_s)
    at, left, held, usd = 0.0, work, 0, 0.0
    while left > 0:
        stays = (Supply(STAYS, held, 16, start_s),)
        need = Need(left, by_s - at, speeds, look_s=tick_s)
        (n,) = choose(need, stays, Outlook(speeds, stays, at).price_of_progress(need)).n_machines
        done = speeds[min(n, held)] * start_s + speeds[n] * (tick_s - start_s)
        part = min(1.0, left / done) if done > 0 else 1.0
        at, left, held, usd = at + part * tick_s, left - done, n, usd + n * STAYS * part * tick_s
        assert at <= by_s
    assert usd <= 1.01 * fewest * STAYS * (work / speeds[fewest] + start_s)


def test_counts_of_late_say_more_than_those_of_long_ago() -> None:
    plentiful_then, plentiful_now = seen((-96, 3), (-48, 0)), seen((-96, 0), (-48, 3))
    lately_without, lately_with = (
        Outlook(SPEEDS, (Supply(SPOT, 0, 3, 0.0, of), Supply(STAYS, 0, 3)), 0.0)
        for of in (plentiful_then, plentiful_now)
    )
    needed = (40 * HOUR_S, 24 * HOUR_S)
    need = Need(*needed, SPEEDS)
    assert lately_without.price_of_progress(need) > lately_with.price_of_progress(need)
    assert lately_without.expected_usd(*needed) > lately_with.expected_usd(*needed)


def test_the_price_of_progress_rises_with_the_work() -> None:
    of = seen((-96, 2), (-60, 0), (-48, 3), at=0.0)
    prices = [
        Outlook(SPEEDS, (Supply(SPOT, 0, 3, 0.0, of), Supply(STAYS, 0, 3)), 0.0).price_of_progress(
            Need(work * HOUR_S, 24 * HOUR_S, SPEEDS)
        )
        for work in (5, 20, 40, 60)
    ]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]


#: Seconds from one decision to the next in a steady market.
_LOOK_S = HOUR_S / 4


def steady_usd(n_spot: int, work: float, by_s: float, speeds: tuple[float, ...]) -> tuple[float, float]:
    """Return the bill of a job where so many spot machines can always be had, starts free, and what was expected."""
    tick_s, since_s = _LOOK_S, 96 * HOUR_S
    at, left, usd, expected_usd = 0.0, work, 0.0, 0.0
    while left > 0:
        of = Seen(((-since_s, n_spot),), at, len(speeds) - 1)
        both = (Supply(SPOT, 0, n_spot, 0.0, of), Supply(STAYS, 0, len(speeds) - 1))
        outlook = Outlook(speeds, both, at)
        need = Need(left, by_s - at, speeds, look_s=tick_s)
        expected_usd = expected_usd or outlook.expected_usd(left, by_s)
        spot, stays = choose(need, both, outlook.price_of_progress(need)).n_machines
        done = speeds[spot + stays] * tick_s
        part = min(1.0, left / done) if done > 0 else 1.0
        at, left, usd = at + part * tick_s, left - done, usd + part * tick_s * (spot * SPOT + stays * STAYS)
        assert at <= by_s
    return usd, expected_usd


@settings(max_examples=examples(80))
@given(st.integers(0, 3), st.floats(0.2, 0.9), st.sampled_from([1.0, 0.926, 0.6]))
@example(1, 0.52, 0.6)
@example(2, 0.784, 0.6)
def test_in_a_steady_market_a_job_costs_what_is_expected(n_spot: int, load: float, exponent: float) -> None:
    """A job that is just in time has less slack than a look at its end: then it has all machines for up to two looks."""
    speeds = (0.0, *(n**exponent for n in range(1, 4)))
    usd, expected_usd = steady_usd(n_spot, load * 24 * HOUR_S * speeds[-1], 24 * HOUR_S, speeds)
    at_its_end_usd = 2 * _LOOK_S * 3 * STAYS
    assert expected_usd * 0.999 <= usd <= min(1.01 * expected_usd + at_its_end_usd, 1.16 * expected_usd)


#: Three days of three spot machines, three of none, and so on.
_IN_TURN = tuple((-336.0 + 72 * i, 3 * (i % 2)) for i in range(5))


def test_what_comes_is_not_known_and_that_has_its_price() -> None:
    """A scenario's own price knows what comes; a job that restarts has the mean of those."""
    outlook = Outlook(SPEEDS, supplies(3, history=seen(*_IN_TURN)), 0.0)
    need = Need(30 * HOUR_S, 24 * HOUR_S, SPEEDS)
    known = outlook.price_of_progress(replace(need, restarts=True))
    assert known < outlook.price_of_progress(need) < STAYS / (SPEEDS[3] - SPEEDS[2])


@pytest.mark.parametrize("work", [0.0, 1.0, 1e9])
def test_there_is_a_price_for_no_work_and_for_more_than_can_be_done(work: float) -> None:
    outlook = Outlook(SPEEDS, supplies(3, history=seen(*_IN_TURN)), 0.0)
    assert 0.0 < outlook.price_of_progress(Need(work, 24 * HOUR_S, SPEEDS)) < inf


def test_a_plan_takes_milliseconds() -> None:
    """Two weeks of counts that change every quarter of an hour."""
    of = Seen(tuple((-14 * 86_400.0 + 900 * i, i * i % 17) for i in range(1344)), 0.0, 16)
    speeds = (0.0, *(n**0.9 for n in range(1, 17)))
    both = (Supply(SPOT, 0, 8, 300.0, of), Supply(STAYS, 0, 16, 300.0))
    need = Need(600 * HOUR_S, 100 * HOUR_S, speeds)
    took_s = []
    for _ in range(5):
        begun_s = process_time()
        Outlook(speeds, both, 0.0).price_of_progress(need)
        took_s.append(process_time() - begun_s)
    assert min(took_s) < 0.03


def test_an_earlier_deadline_costs_more_until_it_cannot_be() -> None:
    outlook = Outlook(SPEEDS, supplies(3, history=seen((-96, 1), (-24, 2))), 0.0)
    late, sooner, soonest, never = (
        outlook.expected_usd(20 * HOUR_S, left_h * HOUR_S - 300.0) for left_h in (24, 12, 9, 7)
    )
    assert late < sooner < soonest < never == inf


@pytest.mark.parametrize(
    ("speeds", "prices", "usd_h"),
    [
        ((0.0, 0.0, 0.0, 3.0), [4.0, 4.0, 4.0], 12.0),
        ((0.0, 0.5, 2.0, 3.0), [4.0, 4.0, 4.0], 12.0),
        ((0.0, 1.0, 2.0, 3.0), [1.0, 5.0, 5.0], 11.0),
    ],
)
def test_without_spot_machines_the_work_is_expected_to_cost_what_machines_that_stay_do(
    speeds: tuple[float, ...], prices: list[float], usd_h: float
) -> None:
    """A job that runs with three or none; one that is slow with one; machines that stay, of two prices."""
    stays = [Supply(usd / HOUR_S, 0, 1) for usd in prices]
    never = Supply(SPOT, 0, 0, 0.0, seen((-100, 0)))
    outlook = Outlook(speeds, [never, *stays], 0.0)
    assert outlook.expected_usd(30 * HOUR_S, 10.001 * HOUR_S) == pytest.approx(10 * usd_h, rel=0.01)
