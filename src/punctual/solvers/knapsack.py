"""Multiple-choice knapsack (one configuration for each job, one resource), with a proven bound."""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from punctual.core.errors import InvalidSpec
from punctual.solvers._core_search import CoreSearch
from punctual.solvers._tables import choice_sum, cost_table, require, rows_without_choice, value_table
from punctual.solvers.solution import FloatArray, IntArray, Solution, infeasible, relative_gap


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

    def run(self) -> None:
        """Search; `most` must not fit, and the cheapest choice must."""
        self.low, self.high = self.low.copy(), self.high.copy()
        self._keep_undecided()
        while not self._found and self.n_rounds < 200 and len(self._rows):
            self._try(self._crossing())
        if not self._found:
            # Out of rounds: every multiplier proves a bound; the choice that fits is the one to go on from.
            self.high = self.low

    def _try(self, multiplier: float) -> None:
        """Narrow the bracket at `multiplier`, which must lie in it."""
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


#: Configurations looked at in the first exact search; each further one looks at four times as many.
_N_CANDIDATES = 48


def solve_knapsack(
    costs: ArrayLike,
    values: ArrayLike,
    capacity: int,
    *,
    allowed: ArrayLike | None = None,
    gap_limit: float = 1e-4,
    n_states_max: int = 20_000_000,
) -> Solution:
    """Choose one configuration for each job, so that the costs fit and the sum of values is as large as possible.

    Use it whenever one resource (devices) is shared and the value of each count is known, whatever its shape. For
    several resources there is `punctual.solvers.vector_knapsack`.

    Parameters
    ----------
    costs
        Whole amounts, not negative, shape (n_jobs, n_configurations), or (n_configurations,) if equal for all jobs.
        Holding nothing is a configuration like any other: where it is allowed, it has a column of cost 0.
    values
        Shape (n_jobs, n_configurations), any sign; -inf: forbidden.
    capacity
        The amount to share, in the unit of `costs`.
    allowed
        Truth values, shape of `values` or (n_configurations,); None: every finite value is allowed.
    gap_limit
        Enough is proven when no choice can be better by more than this share of the value; 0: go on until it is
        proven best.
    n_states_max
        Most work one exact search may be, in table entries (about 10 ns each). Where it would be more, it looks at
        fewer configurations; if that is not enough for `gap_limit`, the status is *partial*.

    Returns
    -------
    Solution
        `multipliers` has one entry, the value of one more unit of capacity.

    Raises
    ------
    InvalidSpec
        A value is NaN or +inf, a cost negative or not whole, a shape does not match.

    Notes
    -----
    *Symbols.* v_jk, c_jk value and cost of configuration k of job j, C capacity, λ ≥ 0 multiplier.

    *Formula.* L(λ) = λC + Σ_j max_k (v_jk − λ c_jk) is an upper bound for each λ; `bound` starts as its minimum.
    With the loss of a configuration l_jk = max_i (v_ji − λ c_ji) − (v_jk − λ c_jk) ≥ 0, a choice x that uses U has
    value L(λ) − Σ_j l_jx(j) − λ(C − U). So a choice better than value z holds no configuration with l_jk ≥ L(λ) − z,
    and among the few others dynamic programming over the difference in cost finds the best one.

    *Source.* [sinha1979] for the bound, [pisinger1995] for the idea of a core.

    *Differs.* (1) The multiplier is found by solving the relaxation of two configurations per job, repeatedly, instead
    of by a partition around a median. (2) The core is chosen by configurations, not by jobs. (3) Jobs that are alike do
    not make it larger: what a divisor of all differences leaves unused is taken off the bound, and of changes with
    the same difference only as many are kept as can be needed.

    *Properties.* Deterministic. Finding λ takes O(n_jobs · n_configurations) a round, and about five rounds of which each
    looks only at the jobs that are still undecided. The exact search takes
    O(configurations looked at · range of their costs).

    *Fails when* (with a `gap_limit` of 0) costs are large numbers and values nearly proportional to them: the range of differences
    is then wide, and `n_states_max` ends the search.

    Examples
    --------
    >>> found = solve_knapsack([0, 1, 2, 4], [[0, 3, 5, 7], [0, 2, 4, 8]], 4, gap_limit=0.0)
    >>> found.choices.tolist(), found.value, found.status
    ([2, 2], 9.0, 'optimal')
    """
    value = value_table(values, allowed)
    cost = cost_table(costs, value.shape, integral=True)
    _check(capacity, gap_limit)
    if not len(value):
        return Solution.of(np.empty(0, dtype=np.int64), 0.0, 0.0, multipliers=[0.0])
    if rows_without_choice(value).any():
        return infeasible()
    search = MultiplierSearch(cost, value, float(capacity))
    if search.least_usage > capacity:
        return infeasible()
    if search.most_usage <= capacity:
        best = float(choice_sum(value, search.most))
        return Solution.of(search.most, best, best, gap_limit, [0.0])
    search.run()
    return _improve(cost, value, capacity, search, gap_limit, n_states_max)


def _improve(
    cost: FloatArray, value: FloatArray, capacity: int, search: MultiplierSearch, limit: float, n_states_max: int
) -> Solution:
    """Improve the two choices around the multiplier until one is good enough, and return it with its bound."""
    reduced = value - search.multiplier * cost
    top = reduced.max(axis=1)
    lagrangian = search.multiplier * capacity + float(top.sum())
    choices = _filled(cost, search.low, search.high, capacity)
    best, bound = float(choice_sum(value, choices)), lagrangian
    core = CoreSearch(cost, top[:, None] - reduced, search.multiplier, choices, capacity)
    n_candidates, n_rounds = _N_CANDIDATES, search.n_rounds
    # A multiplier of 0 leaves nothing to gain but rounding.
    while search.multiplier > 0 and relative_gap(best, bound) > limit:
        searched = core.run(lagrangian - best, n_candidates, n_states_max)
        n_rounds += 1
        if searched.choices is not None and choice_sum(value, searched.choices) > best:
            choices, best = searched.choices, float(choice_sum(value, searched.choices))
        bound = min(bound, max(best, lagrangian - searched.least_missing))
        if searched.least_missing == inf or searched.limited:
            break
        n_candidates *= 4
    return Solution.of(choices, best, bound, limit, [search.multiplier], n_rounds)


def _filled(cost: FloatArray, low: IntArray, high: IntArray, capacity: int) -> IntArray:
    """Return `low` with as many jobs at `high` as fit, the largest steps first; at the multiplier both are optimal."""
    rows = np.arange(len(cost))
    step = cost[rows, high] - cost[rows, low]
    choices = low.copy()
    slack = capacity - cost[rows, low].sum()
    waiting = np.flatnonzero(step > 0)
    waiting = waiting[np.argsort(-step[waiting], kind="stable")]
    # The rest after each round is less than the largest step of the round: it at least halves.
    while len(waiting := waiting[step[waiting] <= slack]):
        taken = waiting[np.cumsum(step[waiting]) <= slack]
        choices[taken] = high[taken]
        slack -= step[taken].sum()
        waiting = waiting[len(taken) :]
    return choices


def _check(capacity: int, gap_limit: float) -> None:
    if isinstance(capacity, bool) or int(capacity) != capacity or capacity < 0:
        raise InvalidSpec("`capacity` must be whole and not negative", f"{capacity}", "a knapsack", "Round it down.")
    require(gap_limit >= 0, "`gap_limit` must not be negative", f"{gap_limit}", "Give a share of the value, as 1e-4.")
