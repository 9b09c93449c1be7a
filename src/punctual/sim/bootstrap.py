"""Confidence intervals by resampling jobs or runs, and comparisons of two runs on the same jobs.

Everything is a function of its arguments; `seed` is the only source of randomness.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isfinite
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.core.errors import InvalidSpec

K = TypeVar("K", bound=Hashable)
Values = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Values of jobs, in any order -> one number.
Statistic = Callable[[Values], float]

#: *percentile*: quantiles of the resampled statistic; *bca*: the same, corrected for its bias and its skewness.
Method = Literal["percentile", "bca"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Confidence interval: the true value lies between `low` and `high` with confidence `level`.

    `method` is the one that was used: *percentile* also where *bca* was asked for and is not defined, because all
    resampled values lie on one side of the estimate, or are equal.
    """

    estimate: float
    low: float
    high: float
    level: float
    method: Method


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Two runs on the same jobs: `other` minus `base`, job by job.

    Attributes
    ----------
    n, n_left_out
        Jobs with a value in both runs; jobs with a value in one of them only.
    n_lower, n_higher
        Jobs whose value is lower, or higher, in `other`.
    mean
        Mean difference, with its interval.
    p_value
        Probability of a difference of this size if it does not matter which run a value is from; two-sided.
    """

    n: int
    n_left_out: int
    n_lower: int
    n_higher: int
    mean: Interval
    p_value: float


def mean(values: Values) -> float:
    """The arithmetic mean."""
    return float(values.mean())


def interval(
    values: ArrayLike,
    statistic: Statistic = mean,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = 2000,
    method: Method = "bca",
) -> Interval:
    """A confidence interval of a statistic over jobs, or over one number per seed.

    Right where the values are independent. Jobs of one run share a queue and are not: use `pooled_interval` over
    several seeds where there are any, and `paired_difference` to compare.

    Parameters
    ----------
    values
        One number per job, shape (n,), finite.
    statistic
        Function from values drawn with replacement, shape (n,), to a number.
    level
        Confidence, between 0 and 1.
    n_resamples
        Number of resamples.

    Raises
    ------
    InvalidSpec
        The values are empty, one is not finite, or `level` or `n_resamples` is out of range.

    Notes
    -----
    *Formula.* θ̂ is the statistic of the values, θ₁ … θ_B that of n values drawn from them with replacement.
    Percentile: the quantiles α and 1 − α of the θ_b, α = (1 − level)/2, linear between values. BCa [efron1987]: the
    quantiles Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))) for z = Φ⁻¹(α) and Φ⁻¹(1 − α), with
    z₀ = Φ⁻¹(#{θ_b < θ̂}/B + ½ #{θ_b = θ̂}/B) and a = Σ dᵢ³ / (6 (Σ dᵢ²)^1.5), dᵢ = θ̄ − θ₍ᵢ₎, where θ₍ᵢ₎ is the statistic
    without value i and θ̄ their mean.

    *Differs.* (1) Over 200 values, i runs over 200 random groups of them and not over single ones; the acceleration a is the
    same in the limit. (2) Ties count half in z₀, for medians and shares.

    *Fails when* there are few values (say, under 10), or the statistic is an extreme: it is too narrow then.
    """
    sample = _finite(values, "the values")
    return _bootstrap(
        lambda chosen: sample[chosen], len(sample), statistic,
        seed=seed, level=level, n_resamples=n_resamples, method=method,
    )  # fmt: skip


def pooled_interval(
    runs: Sequence[ArrayLike],
    statistic: Statistic = mean,
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = 2000,
    method: Method = "bca",
) -> Interval:
    """A confidence interval of a statistic over the jobs of several runs (seeds), pooled.

    Whole runs are drawn with replacement and their jobs pooled, so that what jobs of one run have in common widens the
    interval as it must. Parameters, formula and errors as in `interval`, with a run in place of a value.

    *Fails when* there are few runs: with under 5 of them the interval is clearly too narrow.
    """
    samples = [_finite(run, f"run {i}") for i, run in enumerate(runs)]
    return _bootstrap(
        lambda chosen: np.concatenate([samples[i] for i in chosen]), len(samples), statistic,
        seed=seed, level=level, n_resamples=n_resamples, method=method,
    )  # fmt: skip


def paired_difference(
    base: Mapping[K, float],
    other: Mapping[K, float],
    *,
    seed: int,
    level: float = 0.95,
    n_resamples: int = 2000,
    method: Method = "bca",
    group: Callable[[K], Hashable] | None = None,
) -> PairedDifference:
    """Compare two runs on the same jobs (or two policies on the same seeds).

    Parameters
    ----------
    base, other
        A number for each job (or seed). The result does not depend on their order.
    n_resamples
        Number of resamples for the interval, and of signs for the test.
    group
        Which jobs belong together, the seed of a job say: they are drawn together and get one sign together, because
        the jobs of one run share a queue. None: each job by itself, which says something about these very arrivals
        only. With n groups p is never below 2¹⁻ⁿ.

    Raises
    ------
    InvalidSpec
        They have no job in common, a value is not finite, or `level` or `n_resamples` is out of range.

    Notes
    -----
    *Formula.* dᵢ = otherᵢ − baseᵢ, or the sum of these over group i. p is the share of sign flips s ∈ {−1, 1}ⁿ with |Σ sᵢdᵢ| ≥ |Σ dᵢ|: all 2ⁿ of them if
    that is at most `n_resamples`, otherwise (1 + hits)/(1 + B) over B = `n_resamples` random ones.
    """
    keys = sorted(base.keys() & other.keys(), key=str)
    differences = _finite([other[key] - base[key] for key in keys], "the differences of two runs")
    groups = None if group is None else _grouped(differences, [group(key) for key in keys])
    return PairedDifference(
        n=len(keys),
        n_left_out=len(base.keys() ^ other.keys()),
        n_lower=int((differences < 0).sum()),
        n_higher=int((differences > 0).sum()),
        mean=(
            interval(differences, seed=seed, level=level, n_resamples=n_resamples, method=method)
            if groups is None
            else pooled_interval(groups, seed=seed, level=level, n_resamples=n_resamples, method=method)
        ),
        p_value=_sign_flip_p(
            differences if groups is None else np.array([part.sum() for part in groups]), seed, n_resamples
        ),
    )


def _grouped(values: Values, groups: Sequence[Hashable]) -> list[Values]:
    parts: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        parts.setdefault(group, []).append(value)
    return [np.array(part) for part in parts.values()]


def _finite(values: ArrayLike, what: str) -> Values:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample) or not np.isfinite(sample).all():
        raise InvalidSpec(
            "values must be a list of finite numbers, at least one", f"shape {sample.shape}", what,
            "Leave out jobs that have no value.",
        )  # fmt: skip
    return sample


def _check(n_units: int, level: float, n_resamples: int) -> None:
    if not n_units:
        raise InvalidSpec("there must be runs", "none", "an interval", "Give at least one run.")
    if not (0 < level < 1 and n_resamples > 0):
        raise InvalidSpec(
            "`level` must be between 0 and 1 and `n_resamples` above zero", f"{level} and {n_resamples}",
            "an interval", "Use 0.95 and 2000.",
        )  # fmt: skip


def _bootstrap(
    pick: Callable[[Indices], Values],
    n_units: int,
    statistic: Statistic,
    *,
    seed: int,
    level: float,
    n_resamples: int,
    method: Method,
) -> Interval:
    """`pick` gives the values of the units (jobs, runs) with these numbers."""
    _check(n_units, level, n_resamples)
    random = np.random.default_rng(seed)
    estimate = statistic(pick(np.arange(n_units)))
    drawn = np.array([statistic(pick(random.integers(n_units, size=n_units))) for _ in range(n_resamples)])
    tails: tuple[float, float] | None = None
    if method == "bca":
        acceleration = _acceleration(pick, random.permutation(n_units), statistic)
        tails = _corrected_tails(drawn, estimate, acceleration, level)
    low, high = np.quantile(drawn, tails or _tails(level))
    used: Method = "percentile" if tails is None else "bca"
    return Interval(estimate=estimate, low=float(low), high=float(high), level=level, method=used)


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _corrected_tails(drawn: Values, estimate: float, acceleration: float, level: float) -> tuple[float, float] | None:
    below = float((drawn < estimate).mean() + (drawn == estimate).mean() / 2)
    if not 0 < below < 1 or (drawn == drawn[0]).all():
        return None
    normal = NormalDist()
    bias = normal.inv_cdf(below)

    def corrected(tail: float) -> float:
        z = bias + normal.inv_cdf(tail)
        return normal.cdf(bias + z / (1 - acceleration * z)) if acceleration * z < 1 else float("nan")

    low, high = (corrected(tail) for tail in _tails(level))
    return (low, high) if isfinite(low) and isfinite(high) else None


def _acceleration(pick: Callable[[Indices], Values], order: Indices, statistic: Statistic) -> float:
    """`order`: all units in random order, so that groups of them are alike."""
    if len(order) < 2:
        return 0.0
    # The influence of single values on the skewness is taken over at most 200 groups of them.
    cuts = np.linspace(0, len(order), min(len(order), 200) + 1).astype(np.int64)
    parts = [np.concatenate([order[:start], order[stop:]]) for start, stop in pairwise(cuts)]
    without = np.array([statistic(pick(part)) for part in parts])
    influence = without.mean() - without
    square = float((influence**2).sum())
    return float((influence**3).sum()) / (6 * square**1.5) if square > 0 else 0.0


def _sign_flip_p(differences: Values, seed: int, n_resamples: int) -> float:
    differences = differences[differences != 0]  # a flip does not change them
    if not len(differences):
        return 1.0
    # Sums of the same numbers in another order are equal up to this share of their size.
    least = abs(fsum(differences)) - 1e-12 * fsum(abs(differences))
    if len(differences) < n_resamples.bit_length():  # 2ⁿ is at most `n_resamples`
        return float((abs(_all_flips(differences)) >= least).mean())
    random = np.random.default_rng(seed)
    total = differences.sum()
    flipped = (differences[random.integers(2, size=len(differences), dtype=np.bool_)].sum() for _ in range(n_resamples))
    hits = sum(abs(total - 2 * part) >= least for part in flipped)
    return float(1 + hits) / (1 + n_resamples)


def _all_flips(differences: Values) -> Values:
    """The sums for all choices of signs, shape (2ⁿ,)."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums - difference, sums + difference])
    return sums
