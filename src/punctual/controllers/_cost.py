"""Estimate the cost of a step, in core-seconds, from noisy samples.

A scalar Kalman filter that notices when the world has changed, beside a slow mean to which the cost tends to return.
"""

from dataclasses import dataclass, replace
from math import log

from punctual.controllers._slow_mean import SlowMean, drifted, reverting

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
