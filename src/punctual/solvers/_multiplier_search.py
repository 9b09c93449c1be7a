"""Minimise the Lagrangian bound of a multiple-choice knapsack over its multiplier."""

from math import inf

import numpy as np

from punctual.solvers.solution import FloatArray, IntArray


class MultiplierSearch:
    """Brackets the multiplier between a choice that fits (`low`) and one that does not (`high`).

    Both are best choices for some multiplier, so a job that has the same configuration in both keeps it for every
    multiplier between, and is not looked at again. For the others the next multiplier is the one at which the capacity
    is used up if each of them had only its two configurations: these are fractions of a relaxation that sorting
    solves. When no third configuration does better at that multiplier, it is the minimiser.

    Parameters
    ----------
    cost, value
        Shape (n_jobs, n_configurations); `value` -inf: forbidden; every row has a finite value.
    capacity
        Capacity in the unit of `cost`.

    Attributes
    ----------
    most
        Shape (n_jobs,): most valuable choice without regard to the capacity, the cheapest of several.
    least_usage, most_usage
        Usage of the cheapest choice, and of `most`.
    low, high
        Shape (n_jobs,): both best at `multiplier`, the first fits, the second uses at least the capacity.
    """

    def __init__(self, cost: FloatArray, value: FloatArray, capacity: float) -> None:
        self.low = _cheapest(cost, value)
        self.most = self.high = _ends(value, cost, 0.0)[0]
        self.multiplier = 0.0
        self.n_rounds = 0
        rows = np.arange(len(cost))
        self._low_cost, self._high_cost = cost[rows, self.low], cost[rows, self.high]
        self.least_usage, self.most_usage = float(self._low_cost.sum()), float(self._high_cost.sum())
        self._low_value, self._high_value = value[rows, self.low], value[rows, self.high]
        self._rows, self._cost, self._value = rows, cost, value
        self._room = capacity
        self._found = False

    def run(self, start: float | None = None) -> None:
        """Search, near `start` first if given; `most` must not fit, and the cheapest choice must."""
        self.low, self.high = self.low.copy(), self.high.copy()
        self._keep_undecided()
        if start is not None:
            fits = self._try(start)
            # The second one lies inside the bracket that the first one left: below it if that one fits.
            # Relative half-width of the first bracket around a given multiplier.
            self._try(start * (0.98 if fits else 1.02))
        while not self._found and self.n_rounds < 200 and len(self._rows):
            self._try(self._crossing())
        if not self._found:
            # Out of rounds: every multiplier proves a bound; the choice that fits is the one to go on from.
            self.high = self.low

    def _try(self, multiplier: float) -> bool:
        """Narrow the bracket at `multiplier`, which must lie in it; return whether a best choice there fits."""
        if self._found or not len(self._rows):
            return False
        self.n_rounds += 1
        self.multiplier = multiplier
        reduced = self._value - multiplier * self._cost
        # Reduced values this close, relative to the largest, count as equal: the multiplier is a quotient of
        # differences.
        tolerance = 1e-12 * float(np.abs(self._low_value).max() + multiplier * self._high_cost.max())
        low, high = _ends(reduced, self._cost, tolerance)
        local = np.arange(len(low))
        low_cost, high_cost = self._cost[local, low], self._cost[local, high]
        fits, fills = low_cost.sum() <= self._room, high_cost.sum() >= self._room
        if fits:
            chosen, chosen_cost = (low, low_cost) if fills else (high, high_cost)
            self.low[self._rows], self._low_cost = chosen, chosen_cost
            self._low_value = self._value[local, chosen]
        if fills:
            chosen, chosen_cost = (high, high_cost) if fits else (low, low_cost)
            self.high[self._rows], self._high_cost = chosen, chosen_cost
            self._high_value = self._value[local, chosen]
        self._found = bool(fits and fills)
        self._keep_undecided()
        return bool(fits)

    def _keep_undecided(self) -> None:
        undecided = self._low_cost < self._high_cost
        self._room -= float(self._low_cost[~undecided].sum())
        self._rows = self._rows[undecided]
        self._cost, self._value = self._cost[undecided], self._value[undecided]
        self._low_cost, self._high_cost = self._low_cost[undecided], self._high_cost[undecided]
        self._low_value, self._high_value = self._low_value[undecided], self._high_value[undecided]

    def _crossing(self) -> float:
        """The slope of the job at which the capacity is used up, with the steepest first."""
        step = self._high_cost - self._low_cost
        slope = (self._high_value - self._low_value) / step
        order = np.argsort(-slope, kind="stable")
        used = np.cumsum(step[order])
        i = int(np.searchsorted(used, self._room - self._low_cost.sum(), side="right"))
        return max(0.0, float(slope[order[min(i, len(order) - 1)]]))


def _cheapest(cost: FloatArray, value: FloatArray) -> IntArray:
    """The cheapest configuration of each job, the most valuable of several."""
    usable = np.where(value > -inf, cost, inf)
    is_least = usable == usable.min(axis=1)[:, None]
    columns: IntArray = np.where(is_least, value, -inf).argmax(axis=1)
    return columns


def _ends(reduced: FloatArray, cost: FloatArray, tolerance: float) -> tuple[IntArray, IntArray]:
    """The cheapest and the dearest of the best configurations of each job."""
    is_best = reduced >= (reduced.max(axis=1) - tolerance)[:, None]
    return np.where(is_best, cost, inf).argmin(axis=1), np.where(is_best, cost, -inf).argmax(axis=1)
