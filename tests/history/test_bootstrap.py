"""Intervals and the paired test, against closed forms and by how often they are right."""

from itertools import product
from statistics import NormalDist

import numpy as np
import pytest

from punctual.core.errors import InvalidSpec
from punctual.sim.bootstrap import Method, interval, paired_difference, pooled_interval

METHODS: tuple[Method, ...] = ("bca", "percentile")


def median(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(np.median(values))


@pytest.mark.parametrize("method", METHODS)
def test_the_mean_of_normal_values_has_the_interval_of_the_textbook(method: Method) -> None:
    values = np.random.default_rng(1).normal(10.0, 2.0, 400)
    found = interval(values, seed=3, method=method)
    half = 1.96 * values.std() / 20
    assert found.estimate == values.mean()
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)
    assert (found.level, found.method) == (0.95, method)


@pytest.mark.parametrize("method", METHODS)
def test_ninety_of_a_hundred_intervals_cover_the_truth(method: Method) -> None:
    """Of 300 samples of 40 normal values, 90 % ± 3 standard errors; a little less, as the bootstrap is narrow at 40."""
    random = np.random.default_rng(7)
    n_covered = 0
    for i in range(300):
        found = interval(random.normal(0.0, 1.0, 40), seed=i, level=0.9, n_resamples=400, method=method)
        n_covered += found.low <= 0.0 <= found.high
    assert 0.9 - 0.02 - 0.052 < n_covered / 300 < 0.9 + 0.052


def test_bca_shifts_to_the_long_tail() -> None:
    """Mean of an exponential sample: the corrected interval lies further up, as the exact one does."""
    values = np.random.default_rng(5).exponential(1.0, 30)
    plain, corrected = (interval(values, seed=2, n_resamples=5000, method=m) for m in ("percentile", "bca"))
    assert corrected.low > plain.low
    assert corrected.high > plain.high


def test_bca_is_the_formula() -> None:
    values, seed, n_resamples = np.array([1.0, 2.0, 2.5, 4.0, 9.0, 11.0]), 11, 999
    random = np.random.default_rng(seed)
    drawn = np.array([values[random.integers(6, size=6)].mean() for _ in range(n_resamples)])
    without = np.array([np.delete(values, i).mean() for i in range(6)])
    d = without.mean() - without
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5)
    normal = NormalDist()
    estimate = values.mean()
    z0 = normal.inv_cdf(float((drawn < estimate).mean() + (drawn == estimate).mean() / 2))
    ends = []
    for alpha in (0.05, 0.95):
        z = z0 + normal.inv_cdf(alpha)
        ends.append(float(np.quantile(drawn, normal.cdf(z0 + z / (1 - a * z)))))
    found = interval(values, seed=seed, level=0.9, n_resamples=n_resamples)
    assert [found.low, found.high] == pytest.approx(ends)


def test_many_values_are_left_out_in_groups() -> None:
    """Acceleration of the mean is skewness/(6 √n), with groups as with single values."""
    values = np.random.default_rng(4).exponential(1.0, 2000)
    corrected = interval(values, seed=1, n_resamples=4000)
    skewness = float((((values - values.mean()) / values.std()) ** 3).mean())
    a = skewness / (6 * np.sqrt(len(values)))
    normal, random = NormalDist(), np.random.default_rng(1)
    drawn = np.array([values[random.integers(2000, size=2000)].mean() for _ in range(4000)])
    z0 = normal.inv_cdf(float((drawn < values.mean()).mean()))
    z = z0 + normal.inv_cdf(0.975)
    assert corrected.high == pytest.approx(float(np.quantile(drawn, normal.cdf(z0 + z / (1 - a * z)))), abs=2e-3)


def test_one_seed_one_interval() -> None:
    values = np.random.default_rng(1).exponential(1.0, 50)
    assert interval(values, median, seed=4) == interval(values, median, seed=4)
    assert interval(values, seed=4) != interval(values, seed=5)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0]])
def test_values_without_spread_have_an_interval_without_width(values: list[float]) -> None:
    found = interval(values, seed=1)
    assert (found.low, found.estimate, found.high) == (values[0],) * 3
    assert found.method == "percentile"


def test_where_bca_is_not_defined_the_percentiles_are_given() -> None:
    """A sample drawn with replacement never has as many different values as there are: all lie below the estimate."""
    values = [float(i) for i in range(30)]
    found, plain = (interval(values, lambda v: float(len(set(v))), seed=1, method=m) for m in METHODS)
    assert found.method == "percentile"
    assert (found.low, found.high) == (plain.low, plain.high)
    assert found.high < found.estimate == 30.0


def test_what_jobs_of_a_run_have_in_common_widens_the_interval() -> None:
    random = np.random.default_rng(2)
    runs = [random.normal(random.normal(0.0, 1.0), 0.1, 50) for _ in range(12)]
    pooled = pooled_interval(runs, seed=1)
    alone = interval(np.concatenate(runs), seed=1)
    means = np.array([run.mean() for run in runs])
    assert pooled.estimate == pytest.approx(alone.estimate)
    assert pooled.high - pooled.low > 2 * (alone.high - alone.low)
    assert pooled.high - pooled.low == pytest.approx(2 * 1.96 * means.std() / np.sqrt(12), rel=0.25)


def test_runs_of_different_length_count_by_their_jobs() -> None:
    assert pooled_interval([[1.0], [4.0, 4.0, 4.0]], seed=1).estimate == 3.25


def test_a_paired_difference_sees_what_two_separate_intervals_do_not() -> None:
    random = np.random.default_rng(3)
    sizes = random.exponential(1000.0, 60)
    one = {f"{i}": float(size) for i, size in enumerate(sizes)}
    other = {job: size - 5.0 + float(random.normal(0.0, 5.0)) for job, size in one.items()}
    found = paired_difference(one, other, seed=1)
    assert found.mean.low < -5.0 < found.mean.high
    assert found.mean.high < 0.0
    assert found.p_value == 1 / 2001  # no random choice of signs comes near
    apart = [interval(list(run.values()), seed=1) for run in (one, other)]
    assert apart[0].low < apart[1].high


def test_few_pairs_are_tested_exactly() -> None:
    differences = [3.0, 1.0, -0.5, 2.0]
    one = dict.fromkeys(range(4), 10.0)
    other = {i: 10.0 + d for i, d in enumerate(differences)}
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((-1, 1), repeat=4)]
    p = sum(abs(one_sum) >= sum(differences) for one_sum in sums) / 16
    found = paired_difference(one, other, seed=1)
    assert found.p_value == p == 4 / 16
    assert (found.n, found.n_lower, found.n_higher) == (4, 1, 3)


def test_random_signs_come_near_the_exact_test() -> None:
    random = np.random.default_rng(8)
    other = {i: float(d) for i, d in enumerate(random.normal(0.4, 1.0, 10))}
    one = dict.fromkeys(other, 0.0)
    exact = paired_difference(one, other, seed=1, n_resamples=1024).p_value
    drawn = paired_difference(one, other, seed=1, n_resamples=1023).p_value
    assert drawn == pytest.approx(exact, abs=0.05)
    assert exact * 1024 == pytest.approx(round(exact * 1024))


def test_under_no_difference_the_test_is_right_as_often_as_it_says() -> None:
    random = np.random.default_rng(9)
    n_found = 0
    for i in range(300):
        other = {j: float(d) for j, d in enumerate(random.normal(0.0, 1.0, 20))}
        n_found += paired_difference(dict.fromkeys(other, 0.0), other, seed=i, n_resamples=199).p_value <= 0.1
    assert abs(n_found / 300 - 0.1) < 0.052


def test_jobs_of_one_seed_get_one_sign() -> None:
    """Six seeds whose jobs all go the same way: no more than six coins, however many jobs there are."""
    other = {(seed, i): 1.0 + seed + i / 100 for seed in range(6) for i in range(50)}
    one = dict.fromkeys(other, 0.0)
    grouped = paired_difference(one, other, seed=1, group=lambda key: key[0])
    assert grouped.p_value == 2 / 2**6
    assert paired_difference(one, other, seed=1).p_value == 1 / 2001
    seeds = pooled_interval([[1.0 + seed + i / 100 for i in range(50)] for seed in range(6)], seed=1)
    assert (grouped.mean.low, grouped.mean.high) == pytest.approx((seeds.low, seeds.high))


def test_equal_runs_do_not_differ() -> None:
    one = {i: float(i) for i in range(30)}
    found = paired_difference(one, one, seed=1)
    assert (found.p_value, found.mean.low, found.mean.high) == (1.0, 0.0, 0.0)


def test_the_order_of_jobs_is_irrelevant_and_others_are_left_out() -> None:
    one = {f"{i}": float(i) for i in range(25)}
    other = {f"{i}": float(i) ** 1.2 for i in reversed(range(30))}
    assert paired_difference(one, other, seed=1) == paired_difference(dict(reversed(one.items())), other, seed=1)
    assert paired_difference(one, other, seed=1).n_left_out == 5


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [[1.0]]])
def test_values_that_are_none_are_refused(values: list[float]) -> None:
    with pytest.raises(InvalidSpec, match="finite numbers"):
        interval(values, seed=1)


def test_other_nonsense_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="runs"):
        pooled_interval([], seed=1)
    with pytest.raises(InvalidSpec, match="level"):
        interval([1.0], seed=1, level=1.0)
    with pytest.raises(InvalidSpec, match="level"):
        interval([1.0], seed=1, n_resamples=0)
    with pytest.raises(InvalidSpec, match="finite numbers"):
        paired_difference({"a": 1.0}, {"b": 1.0}, seed=1)
