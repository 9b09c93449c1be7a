"""Cost of a step, in core-seconds, from noisy samples.

A scalar Kalman filter that notices when the world has changed, beside a slow mean to which the cost tends to return.
"""

from dataclasses import dataclass, replace
from math import exp, log, sqrt

#: Standard deviation of one step's cost, as a share of the cost (measured: 5 to 7 % on three small models).
STEP_NOISE_FRAC = 0.06
#: Random walk of the cost per 0.1 core-second of use, as a share of it.
DRIFT_FRAC = 0.004
#: Innovations beyond this many standard deviations, twice in a row and in the same direction, mean a change.
SURPRISE_SIGMAS = 3.0
#: How far off the cost on a machine of another kind is until it was seen, as a share of it.
ELSEWHERE_FRAC = 0.3
#: Time over which a passing deviation of the cost decays, and over which the mean is taken, seconds.
REVERSION_S = 5.0
MEAN_S = 25.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What is believed of the cost.

    Attributes
    ----------
    now_s
        Cost of one step now, core-seconds.
    variance
        Of `now_s`.
    mean_s
        Slow mean.
    spread_frac
        Standard deviation of the cost around its mean, as a share of it.
    seen_s
        Wall seconds over which samples were seen.
    surprise
        Sign of the last innovation if it was beyond `SURPRISE_SIGMAS`, otherwise 0.
    """

    now_s: float
    variance: float
    mean_s: float
    spread_frac: float = 0.1
    seen_s: float = 0.0
    surprise: int = 0

    def forecast_s(self, horizon_s: float) -> float:
        """Mean cost of a step over the next `horizon_s` seconds."""
        return reverting(self.now_s, self.mean_s, horizon_s)

    def risk_frac(self, horizon_s: float) -> float:
        """Standard deviation of that mean, as a share of it."""
        return self.spread_frac * sqrt(min(1.0, 2.0 * REVERSION_S / max(horizon_s, 1e-6)))


def first(sample_s: float, n_steps: float) -> Cost:
    """The belief after the first sample: `sample_s` core-seconds a step, seen over `n_steps` steps."""
    variance = (0.2 * sample_s) ** 2 + (STEP_NOISE_FRAC * sample_s) ** 2 / max(n_steps, 1.0)
    return Cost(now_s=sample_s, variance=variance, mean_s=sample_s)


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
    return replace(
        _drifted(cost, sample_s, wall_s),
        now_s=cost.now_s + gain * innovation,
        variance=(1.0 - gain) * predicted,
        surprise=0 if changed else surprise,
    )


def elsewhere(cost: Cost) -> Cost:
    """What `cost` tells of a kind of machine on which nothing was seen yet: what is seen there counts for nearly all."""
    return replace(
        cost,
        variance=(0.5 * cost.now_s) ** 2,
        spread_frac=max(cost.spread_frac, ELSEWHERE_FRAC),
        seen_s=0.0,
        surprise=0,
    )


def reverting(now: float, mean: float, horizon_s: float) -> float:
    """Mean over the next `horizon_s` seconds of what is `now` and tends to return to `mean`.

    The deviation is expected to decay with `REVERSION_S` (tau), so that over the horizon (T) it is
    ``mean + (now - mean) * tau / T * (1 - exp(-T / tau))``.
    """
    ratio = max(horizon_s, 1e-6) / REVERSION_S
    return mean + (now - mean) * (1.0 - exp(-ratio)) / ratio


def surprise_of(innovation: float, variance: float) -> int:
    """Sign of an innovation that is beyond `SURPRISE_SIGMAS`, otherwise 0."""
    if innovation * innovation <= SURPRISE_SIGMAS**2 * variance:
        return 0
    return 1 if innovation > 0 else -1


def _drifted(cost: Cost, sample_s: float, wall_s: float) -> Cost:
    """The slow mean and the spread around it, averaged over what was seen and at most `MEAN_S`."""
    if wall_s <= 0.0:
        return cost
    seen_s = cost.seen_s + wall_s
    share = min(1.0, wall_s / min(MEAN_S, seen_s))
    deviation = log(max(sample_s, 1e-9) / cost.mean_s)
    # The first seconds say little about the spread: it starts at 10 % and is only ever forgotten at the slow rate.
    spread_share = min(1.0, wall_s / MEAN_S)
    spread_frac = sqrt((1.0 - spread_share) * cost.spread_frac**2 + spread_share * deviation**2)
    mean_s = max(cost.mean_s + share * (sample_s - cost.mean_s), 1e-12)
    return replace(cost, mean_s=mean_s, spread_frac=spread_frac, seen_s=seen_s)
