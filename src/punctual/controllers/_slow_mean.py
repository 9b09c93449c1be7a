"""Mean over time of a quantity with a slow disturbance, and the mean's uncertainty.

The cost of a step, its time, and the cores that a job can use deviate from their mean as long as neighbours are busy, which
is for seconds to minutes: neighbouring samples are alike. Many samples of a few seconds therefore say little about the mean.
"""

from dataclasses import dataclass, replace
from math import exp, sqrt
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
