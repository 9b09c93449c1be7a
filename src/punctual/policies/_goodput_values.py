"""What each number of workers is worth to each job, by how much faster it is than with a fair share."""

from dataclasses import dataclass
from math import inf

import numpy as np

from punctual.optim.solution import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where each job stands; all of shape (n_jobs,).

    Attributes
    ----------
    weights
        How much it counts.
    fair_sps
        Its rate with a fair share.
    ages_s
        Since its submission.
    n_restarts
        Changes that it has been through, its first start not counted.
    delays_s
        What one more would cost.
    columns
        That of what it has; 0: it holds nothing; -1: it may not have that any more.
    """

    weights: FloatArray
    fair_sps: FloatArray
    ages_s: FloatArray
    n_restarts: FloatArray
    delays_s: FloatArray
    columns: IntArray

    def factors(self) -> FloatArray:
        """What is left of a speed-up after a change, (T − R δ) / (T + δ); a job that holds nothing counts as δ older."""
        ages_s = self.ages_s + np.where(self.columns == 0, self.delays_s, 0.0)
        left_s, past_s = np.maximum(0.0, ages_s - self.n_restarts * self.delays_s), ages_s + self.delays_s
        return np.where(self.delays_s > 0, left_s / np.where(past_s > 0, past_s, 1.0), 1.0)


def speedups_of(standing: Standing, rates: FloatArray) -> FloatArray:
    """Speed-up of each column over a fair share, after the penalty for a change, shape (n_jobs, n_columns).

    Parameters
    ----------
    rates
        Shape (n_jobs, n_columns), 0 where there is no such number, and in column 0.
    """
    changes = np.not_equal(standing.columns[:, None], np.arange(rates.shape[1]))
    plain = rates / standing.fair_sps[:, None]
    return np.where(changes, plain * standing.factors()[:, None], plain)


def values_of(speedups: FloatArray, weights: FloatArray, power: float, least: float) -> FloatArray:
    """The terms of which the power mean is made, the larger the better: w (s + least)^p / p."""
    return np.asarray(weights[:, None] * (speedups + least) ** power / power)


def power_mean(value: float, weight: float, power: float) -> float:
    """The power mean of speed-ups of which the terms add up to `value`; infinite where no speed-ups have so large a sum."""
    mean = power * value / weight
    return float(mean ** (1.0 / power)) if mean > 0 else inf
