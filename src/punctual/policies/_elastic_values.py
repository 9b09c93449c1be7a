"""What each number of workers is worth to each job, by what it gets done until the next decision."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from punctual.optim.solution import BoolArray, FloatArray, IntArray

#: What a job that ends at once is worth more than one that ends when the interval does.
SOONER = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where each job stands; all of shape (n_jobs,).

    Attributes
    ----------
    weights
        Factor of its value.
    left
        What is left of it in the unit of its rates, seconds apart; infinite: nobody knows.
    change_s
        What it loses when it gets another number of workers than it has, seconds.
    columns
        That of the number it has; -1 where there is none.
    best
        Its highest rate for one unit of what is handed out.
    """

    weights: FloatArray
    left: FloatArray
    change_s: FloatArray
    columns: IntArray
    best: FloatArray


def values_of(
    standing: Standing, rates: FloatArray, objective: Literal["fraction", "throughput"], interval_s: float
) -> FloatArray:
    """The weighted value of each number of workers, shape (n_jobs, n_columns), 0 in column 0.

    Parameters
    ----------
    rates
        Shape (n_jobs, n_columns), 0 where there is no such number.
    interval_s
        Until the next decision, above zero.
    """
    lost_s = np.where(_changes(standing.columns, rates.shape[1]), standing.change_s[:, None], 0.0)
    value = _fraction if objective == "fraction" else _throughput
    table = np.asarray(standing.weights[:, None] * value(standing, rates, lost_s, interval_s))
    table[:, 0] = 0.0
    return table


def _fraction(standing: Standing, rates: FloatArray, lost_s: FloatArray, interval_s: float) -> FloatArray:
    """The share of what is left that gets done, if progress were even over the time to the end.

    What ends within the interval is worth a little more the sooner it does: where there is enough for all it would
    otherwise have to do with the fewest workers, beside idle ones.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        end_s = standing.left[:, None] / rates + lost_s
        share = interval_s / end_s
    # What ends at once and what cannot run at all both divide by zero.
    sooner = SOONER * np.fmax(0.0, 1.0 - end_s / interval_s)
    return np.where(rates > 0, np.fmin(1.0, share) + sooner, 0.0)


def _throughput(standing: Standing, rates: FloatArray, lost_s: FloatArray, interval_s: float) -> FloatArray:
    """The work that gets done, in units of what is handed out, each used as well as the job can use one."""
    done = np.minimum(rates * np.maximum(0.0, interval_s - lost_s), standing.left[:, None])
    return np.asarray(done / (standing.best[:, None] * interval_s))


def _changes(columns: IntArray, width: int) -> BoolArray:
    return np.not_equal(columns[:, None], np.arange(width))
