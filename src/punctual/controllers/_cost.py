"""Estimate a quantity with a slow disturbance, and the cost of a step, in core-seconds, from noisy samples.

The cost of a step, its time, and the cores that a job can use deviate from their mean as long as neighbours are busy, which
is for seconds to minutes: neighbouring samples are alike. Many samples of a few seconds therefore say little about the mean.
The cost has a scalar Kalman filter that notices when the world has changed, beside a slow mean to which it tends to return.
"""

from dataclasses import dataclass, replace
from math import exp, floor, log, sqrt
from typing import TypeVar

#: Time over which a passing deviation decays, and over which the mean is taken, seconds.
REVERSION_S = 5.0
MEAN_S = 25.0
#: Standard deviation of the rare disturbances, as a share of the quantity.
_RARE_FRAC = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMean:
    """Belief about the mean.

    Attributes
    ----------
    mean
        Slow mean of the quantity, or of its logarithm.
    spread
        Standard deviation around it, as a share of the quantity.
    seen_s
        Wall seconds over which samples were seen.
    """

    mean: float
    spread: float
    seen_s: float = 0.0

    def risk_frac(self, horizon_s: float) -> float:
        """Standard deviation of the mean over the next `horizon_s` seconds around a slow mean that is taken for known."""
        return self.spread * sqrt(min(1.0, 2.0 * REVERSION_S / max(horizon_s, 1e-6)))

    def error_frac(self, horizon_s: float, over_s: float = MEAN_S) -> float:
        """Standard deviation of the mean over the next `horizon_s` seconds around one of the last `over_s` that were seen."""
        over_s = max(min(over_s, self.seen_s), 1e-6)
        # The standard deviation of those that were seen counts as at least this share of the quantity in the first so
        # many seconds; after that the least falls with the root of the time.
        least_frac = 0.14 * sqrt(min(1.0, 10.0 / max(self.seen_s, 1e-6)))
        # The error of a forecast has two parts: disturbances that were seen to come and go, and such as are too rare to
        # have been seen. Their correlation times, seconds.
        seen = max(self.spread, least_frac) ** 2 * _difference(8.0, over_s, horizon_s)
        return sqrt(seen + _RARE_FRAC**2 * _difference(100.0, over_s, horizon_s))


_Mean = TypeVar("_Mean", bound=SlowMean)


def drifted(known: _Mean, difference: float, deviation_frac: float, over_s: float) -> _Mean:
    """Return mean and spread after a sample over `over_s` seconds, averaged over at most `MEAN_S`.

    Parameters
    ----------
    difference, deviation_frac
        Deviation of the sample from the mean: in its unit, and as a share of the quantity.
    """
    if over_s <= 0.0:
        return known
    seen_s = known.seen_s + over_s
    # The first seconds say little about the spread: it is only ever forgotten at the slow rate.
    spread_share = min(1.0, over_s / MEAN_S)
    return replace(
        known,
        mean=known.mean + min(1.0, over_s / min(MEAN_S, seen_s)) * difference,
        spread=sqrt((1.0 - spread_share) * known.spread**2 + spread_share * deviation_frac**2),
        seen_s=seen_s,
    )


def reverting(now: float, mean: float, horizon_s: float) -> float:
    """Return the mean over the next `horizon_s` seconds of a quantity, `now`, that tends to return to `mean`.

    The deviation is expected to decay with `REVERSION_S` (tau), so that over the horizon (T) it is
    ``mean + (now - mean) * tau / T * (1 - exp(-T / tau))``.
    """
    return mean + (now - mean) * _decay(REVERSION_S, horizon_s)


def _decay(tau_s: float, horizon_s: float) -> float:
    """Mean of ``exp(-t / tau)`` over the horizon."""
    ratio = max(horizon_s, 1e-6) / tau_s
    return (1.0 - exp(-ratio)) / ratio


def _difference(tau_s: float, over_s: float, horizon_s: float) -> float:
    """Variance of the mean to come around the mean seen, of a disturbance of variance one.

    Its correlation over a time t is ``exp(-t / tau)``; what was seen t ago counts for ``exp(-t / M)`` in the mean seen. With
    A = tau / (tau + M) the variance of the mean seen, h the decay over the horizon T and ``2 (tau / T) (1 - h)`` the variance
    of the mean to come it is ``A + 2 (tau / T) (1 - h) - 2 A h``.
    """
    seen, decay = tau_s / (tau_s + over_s), _decay(tau_s, horizon_s)
    to_come = 2.0 * tau_s / max(horizon_s, 1e-6) * (1.0 - decay)
    return max(seen + to_come - 2.0 * seen * decay, 0.0)


#: Standard deviation of one step's cost, as a share of the cost (measured: 5 to 7 % on three small models).
STEP_NOISE_FRAC = 0.06
#: Random walk of the cost per 0.1 core-second of use, as a share of it.
DRIFT_FRAC = 0.004
#: Innovations beyond this many standard deviations, twice in a row and in the same direction, mean a change.
SURPRISE_SIGMAS = 3.0
#: Steps that cost so many times as much as usual are not explained by neighbours (measured: up to 1.8 times).
DEAR_TIMES = 2.0
#: Relative error of the cost on another kind of machine, before any measurement there.
ELSEWHERE_FRAC = 0.3
#: Standard deviation of the cost around its mean until it is known, as a share of it.
_FIRST_SPREAD_FRAC = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(SlowMean):
    """Belief about the cost; its slow mean is in core-seconds.

    Attributes
    ----------
    now_s
        Cost of one step now, core-seconds.
    variance
        Variance of `now_s`.
    surprise
        Sign of the last innovation if it was beyond `SURPRISE_SIGMAS`, otherwise 0.
    """

    now_s: float
    variance: float
    surprise: int = 0

    def forecast_s(self, horizon_s: float) -> float:
        """Mean cost of a step over the next `horizon_s` seconds."""
        return reverting(self.now_s, self.mean, horizon_s)


def first(sample_s: float, n_steps: float) -> Cost:
    """The belief after the first sample: `sample_s` core-seconds a step, seen over `n_steps` steps."""
    variance = (0.2 * sample_s) ** 2 + (STEP_NOISE_FRAC * sample_s) ** 2 / max(n_steps, 1.0)
    return Cost(now_s=sample_s, variance=variance, mean=sample_s, spread=_FIRST_SPREAD_FRAC)


def updated(cost: Cost, sample_s: float, n_steps: float, core_s: float, wall_s: float) -> Cost:
    """The belief after one more sample.

    Parameters
    ----------
    sample_s
        Core-seconds a step, over `n_steps` steps that took `core_s` core-seconds and `wall_s` seconds.
    """
    noise = (STEP_NOISE_FRAC * cost.now_s) ** 2 / max(n_steps, 1.0)
    predicted = cost.variance + (DRIFT_FRAC * cost.now_s) ** 2 * core_s / 0.1
    innovation = sample_s - cost.now_s
    surprise = surprise_of(innovation, predicted + noise)
    changed = surprise != 0 and surprise == cost.surprise
    if changed:
        predicted = (0.5 * cost.now_s) ** 2
    gain = predicted / (predicted + noise)
    known = drifted(cost, sample_s - cost.mean, log(max(sample_s, 1e-9) / cost.mean), wall_s)
    return replace(
        known,
        mean=max(known.mean, 1e-12),  # the next sample is divided by it
        now_s=cost.now_s + gain * innovation,
        variance=(1.0 - gain) * predicted,
        surprise=0 if changed else surprise,
    )


def is_dear(cost: Cost, sample_s: float) -> bool:
    """Whether `sample_s` core-seconds for a step are too many for an ordinary one."""
    return sample_s > DEAR_TIMES * max(cost.now_s, cost.mean)


def elsewhere(cost: Cost) -> Cost:
    """Return a weak belief for another kind of machine: the first measurements there outweigh it."""
    return replace(
        cost,
        variance=(0.5 * cost.now_s) ** 2,
        spread=max(cost.spread, ELSEWHERE_FRAC),
        seen_s=0.0,
        surprise=0,
    )


def surprise_of(innovation: float, variance: float) -> int:
    """Sign of an innovation that is beyond `SURPRISE_SIGMAS`, otherwise 0."""
    if innovation * innovation <= SURPRISE_SIGMAS**2 * variance:
        return 0
    return 1 if innovation > 0 else -1


#: One is overdue so many intervals after the last.
_OVERDUE = 1.5
#: A step that costs less than this share of the others is not counted: another program was busy for a moment, say.
_OF_THE_KIND = 0.25


@dataclass(frozen=True, slots=True)
class Span:
    """A number of steps that is known to lie within two bounds, `least` and `most`."""

    least: float
    most: float

    def minus(self, other: "Span") -> "Span":
        return Span(max(self.least - other.most, 1.0), max(self.most - other.least, 1.0))

    def within(self, other: "Span") -> "Span":
        """Return the overlap of both; `least` is above `most` if they have none."""
        return Span(max(self.least, other.least), min(self.most, other.most))


@dataclass(frozen=True, slots=True)
class DearSteps:
    """Dear steps so far, and the number still expected.

    Attributes
    ----------
    since
        Steps done when the cost was first known.
    n
        Dear steps seen since. After a single one no other is expected, though there may be: it may have been a compilation.
    mean_steps, most_steps
        Cost of one beyond that of a step, in steps: mean and largest.
    first, last
        Steps done at the end of the first and of the last one.
    every
        Steps from one to the next. They do not come regularly if nothing lies within its bounds, if there was none where
        the first should have been, or if the next is overdue.
    """

    since: float = 0.0
    n: int = 0
    mean_steps: float = 0.0
    most_steps: float = 0.0
    first: Span = Span(0.0, 0.0)
    last: Span = Span(0.0, 0.0)
    every: Span = Span(1.0, float("inf"))

    def is_one(self, extra_steps: float) -> bool:
        """Whether steps that cost `extra_steps` steps beyond their own may hold one of these."""
        return extra_steps > _OF_THE_KIND * self.mean_steps

    def seen(self, extra_steps: float, at: Span) -> "DearSteps":
        """Return the state after one more, which ended within `at` and cost `extra_steps` steps beyond its own."""
        if self.n == 1 and self.mean_steps < _OF_THE_KIND * extra_steps:
            return DearSteps(self.since).seen(extra_steps, at)
        n = self.n + 1
        every = self.every
        if self.n:
            between = at.minus(self.first)
            every = every.within(at.minus(self.last)).within(Span(between.least / self.n, between.most / self.n))
        return DearSteps(
            since=self.since,
            n=n,
            mean_steps=self.mean_steps + (extra_steps - self.mean_steps) / n,
            most_steps=max(self.most_steps, extra_steps),
            first=self.first if self.n else at,
            last=at,
            every=every,
        )

    def left(self, steps_done: float, steps_total: float) -> tuple[float, float]:
        """Dear steps until the last step: how many are expected, and how many there may be."""
        if not self.n:
            return 0.0, 0.0
        to_come = max(steps_total - steps_done, 0.0)
        if self.n == 1:
            return 0.0, to_come / max(self.last.most - self.since, steps_done - self.last.most)
        if not self._are_regular(steps_done):
            expected = to_come * self.n / (steps_done - self.since)
            return expected, expected
        least = max(floor((steps_total - self.last.most) / self.every.most), 0)
        most = max(floor((steps_total - self.last.least) / self.every.least), least)
        return (least + most) / 2, most

    def _are_regular(self, steps_done: float) -> bool:
        every = self.every
        is_first_missing = self.first.least - self.since > every.most
        return (
            every.least <= every.most and not is_first_missing and steps_done <= self.last.most + _OVERDUE * every.most
        )
