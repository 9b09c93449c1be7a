"""Improve a choice by exchanges between jobs."""

from math import inf

import numpy as np

from punctual.solvers._tables import choice_sum
from punctual.solvers.solution import FloatArray, IntArray

#: Tolerance of a fit, as a share of the capacity: amounts are sums of floating-point numbers.
TOLERANCE = 1e-9
#: Changes that take part in pairs: those that lose least at the multipliers.
_N_CHANGES = 400


class PairSearch:
    """Changes the configuration of one job or of two at a time, where that fits and gains most.

    Parameters
    ----------
    share
        Shape (n_jobs, n_configurations, n_resources), costs as shares of the capacity.
    value
        Shape (n_jobs, n_configurations).
    loss
        Shape of `value`: what each configuration loses at the multipliers. One that loses more than is missing to
        the bound is in no better choice.
    choices
        Shape (n_jobs,), fits.

    Attributes
    ----------
    choices, value
        The present choice, and the sum of its values.
    """

    def __init__(self, share: FloatArray, value: FloatArray, loss: FloatArray, choices: IntArray) -> None:
        self._share, self._values, self._loss = share, value, loss
        self.choices = choices.copy()
        self.value = float(choice_sum(value, choices))
        self._jobs, self._columns = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def improve(self, bound: float) -> bool:
        """Make the best exchange; return whether one was found."""
        self._choose_changes(bound - self.value)
        if not len(self._jobs):
            return False
        now = self.choices[self._jobs]
        gains = self._values[self._jobs, self._columns] - self._values[self._jobs, now]
        steps = self._share[self._jobs, self._columns] - self._share[self._jobs, now]
        slack = 1 + TOLERANCE - choice_sum(self._share, self.choices)
        pair = _best_pair(self._jobs, gains, steps, slack)
        if pair is None:
            return False
        for i in pair:
            self.choices[self._jobs[i]] = self._columns[i]
        before, self.value = self.value, float(choice_sum(self._values, self.choices))
        return self.value > before

    def _choose_changes(self, missing: float) -> None:
        possible = self._loss < missing
        possible[np.arange(len(self.choices)), self.choices] = False
        flat = np.flatnonzero(possible)
        losses = self._loss.ravel()[flat]
        if len(flat) > _N_CHANGES:
            flat = flat[np.argsort(losses, kind="stable")[:_N_CHANGES]]
        self._jobs, self._columns = np.divmod(flat, self._loss.shape[1])


def _best_pair(jobs: IntArray, gains: FloatArray, steps: FloatArray, slack: FloatArray) -> tuple[int, ...] | None:
    """Return the one or two changes, of different jobs, that gain most together and fit."""
    total = gains[:, None] + gains[None, :]
    fits = jobs[:, None] != jobs[None, :]
    # The diagonal stands for a change alone.
    np.fill_diagonal(fits, val=True)
    np.fill_diagonal(total, gains)
    for r in range(steps.shape[1]):
        both = steps[:, None, r] + steps[None, :, r]
        np.fill_diagonal(both, steps[:, r])
        fits &= both <= slack[r]
    total[~fits] = -inf
    i, j = divmod(int(total.argmax()), len(jobs))
    if total[i, j] <= 0:
        return None
    return (i,) if i == j else (i, j)
