"""Multiple-choice vector knapsack (one configuration for each job, several resources), with a proven bound."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from punctual.solvers._tables import choice_sum, cost_table, require, rows_without_choice, value_table
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, Solution, infeasible, relative_gap

#: The temperature of the smoothing falls by this factor from stage to stage.
_COOLING = 6.0
_N_STAGES = 6
_N_STEPS_MAX = 12
_N_HALVINGS_MAX = 12
#: A step is taken if it brings this share of what the gradient promises.
_SUFFICIENT_FRAC = 1e-4
#: Added to the second derivative, in units of resource over the worth of all jobs.
_DAMPING = 1e-2
#: A stage ends when no resource is over- or underused by more than this share of its capacity.
_BALANCE_FRAC = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class _DualPoint:
    """The smoothed bound at some multipliers, and the fractional choice that belongs to it."""

    multipliers: FloatArray
    smooth: float
    weights: FloatArray

    def is_balanced(self, gradient: FloatArray) -> bool:
        """Whether no resource is overused, and none that has a price is underused."""
        wanted = np.where(self.multipliers > 0, np.abs(gradient), np.maximum(-gradient, 0.0))
        return bool((wanted <= _BALANCE_FRAC).all())


class SmoothDual:
    """Minimises the bound over multipliers that are not negative; the capacity of each resource is 1.

    Parameters
    ----------
    share
        Shape (n_jobs, n_configurations, n_resources), costs as shares of the capacity.
    value
        Shape (n_jobs, n_configurations); -inf: forbidden; every row has a finite value.

    Attributes
    ----------
    multipliers
        Shape (n_resources,), where the bound was least.
    bound
        The least bound seen.
    weights
        Shape (n_jobs, n_configurations): the fractional choice that the last stage ended with.
    """

    def __init__(self, share: FloatArray, value: FloatArray) -> None:
        self._share = share.reshape(-1, share.shape[2])
        self._value = value
        self.multipliers = np.zeros(share.shape[2])
        self.weights = np.zeros_like(value)
        self.bound = inf
        self._damping = 0.0
        self.n_rounds = 0

    def run(self) -> None:
        """Search."""
        temperature = self._temperature()
        self._damping = _DAMPING / (temperature * len(self._value))
        point = self._at(np.zeros(self._share.shape[1]), temperature)
        for i in range(_N_STAGES):
            if i:
                temperature /= _COOLING
                point = self._at(point.multipliers, temperature)
            point = self._descend(point, temperature)
        self.weights = point.weights

    def _temperature(self) -> float:
        """Return the mean spread of a job's values: at this temperature the smoothed bound is nearly quadratic."""
        least = np.where(self._value > -inf, self._value, inf).min(axis=1)
        return float((self._value.max(axis=1) - least).mean()) or 1.0

    def _descend(self, point: _DualPoint, temperature: float) -> _DualPoint:
        for _ in range(_N_STEPS_MAX):
            gradient, hessian = self._derivatives(point, temperature)
            if point.is_balanced(gradient):
                break
            further = self._line_search(point, gradient, hessian, temperature)
            if further is None:
                break
            point = further
        return point

    def _line_search(
        self, point: _DualPoint, gradient: FloatArray, hessian: FloatArray, temperature: float
    ) -> _DualPoint | None:
        """Return a sufficiently lower point on Newton's step, bent along the axes; None if none is found."""
        step = _newton_step(point.multipliers, gradient, hessian, self._damping)
        for _ in range(_N_HALVINGS_MAX):
            multipliers = np.maximum(point.multipliers + step, 0.0)
            promised = float(gradient @ (point.multipliers - multipliers))
            if promised > 0:
                further = self._at(multipliers, temperature)
                if further.smooth <= point.smooth - _SUFFICIENT_FRAC * promised:
                    return further
            step = step / 2
        return None

    def _at(self, multipliers: FloatArray, temperature: float) -> _DualPoint:
        self.n_rounds += 1
        reduced = self._value - (self._share @ multipliers).reshape(self._value.shape)
        top = reduced.max(axis=1)
        weights = np.exp((reduced - top[:, None]) / temperature)
        totals = weights.sum(axis=1)
        weights /= totals[:, None]
        exact = float(multipliers.sum() + top.sum())
        if exact < self.bound:
            self.bound, self.multipliers = exact, multipliers
        return _DualPoint(multipliers, exact + temperature * float(np.log(totals).sum()), weights)

    def _derivatives(self, point: _DualPoint, temperature: float) -> tuple[FloatArray, FloatArray]:
        """Gradient: capacity less expected usage. Second derivative: the covariance of the usage over temperature."""
        n_resources = self._share.shape[1]
        weighted = self._share * point.weights.reshape(-1, 1)
        means = weighted.reshape(*self._value.shape, n_resources).sum(axis=1)
        hessian = (weighted.T @ self._share - means.T @ means) / temperature
        return 1.0 - means.sum(axis=0), hessian


def _newton_step(multipliers: FloatArray, gradient: FloatArray, hessian: FloatArray, damping: float) -> FloatArray:
    """Newton's step for the multipliers that are not held at zero."""
    free = (multipliers > 0) | (gradient < 0)
    step = np.zeros_like(gradient)
    if not free.any():
        return step
    system = hessian[np.ix_(free, free)]
    # The system is singular without damping once all jobs have decided, or if two resources are proportional.
    ridge = damping + 1e-9 * float(np.trace(system))
    step[free] = -np.linalg.solve(system + ridge * np.eye(len(system)), gradient[free])
    return step


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


_N_REPAIRS_MAX = 1000


def solve_vector_knapsack(
    costs: ArrayLike,
    values: ArrayLike,
    capacities: ArrayLike,
    *,
    allowed: ArrayLike | None = None,
    gap_limit: float = 1e-2,
) -> Solution:
    """Choose one configuration for each job, so that every resource suffices and the sum of values is large.

    Use it for cores, devices and memory together. It proves a bound but never searches to the end; for one resource
    `punctual.solvers.knapsack` does, and for small problems `scipy.optimize.milp`.

    Parameters
    ----------
    costs
        Not negative, shape (n_jobs, n_configurations, n_resources), or without the first axis if equal for all jobs.
    values
        Shape (n_jobs, n_configurations), any sign; -inf: forbidden.
    capacities
        Shape (n_resources,), each in the unit of its costs. Exceeding one by a share of 1e-9 counts as fitting.
    allowed
        Truth values, shape of `values` or (n_configurations,); None: every finite value is allowed.
    gap_limit
        Stop improving when no choice can be better by more than this share of the value.

    Returns
    -------
    Solution
        `multipliers`: value of one more unit of each resource.

    Raises
    ------
    InvalidSpec
        A value is NaN or +inf, a cost or capacity negative or not finite, a shape does not match.

    Notes
    -----
    *Symbols.* v_jk value, c_jk vector of costs, C vector of capacities, μ ≥ 0 vector of multipliers.

    *Formula.* L(μ) = μ·C + Σ_j max_k (v_jk − μ·c_jk) is an upper bound for each μ. Its kinks are smoothed,
    max_k → τ log Σ_k exp(·/τ), which makes it differentiable twice: Newton's method with a system of n_resources
    equations, for τ falling in stages. `bound` is the least L seen, without smoothing. The weights of the smoothed
    maximum are a fractional choice; it is rounded at evenly spread thresholds, repaired at the least loss per amount
    relieved, filled up, and improved by exchanges of one or two jobs.

    *Source.* [geoffrion1974] for the bound, [nesterov2005] for the smoothing.

    *Properties.* Deterministic. O(n_jobs · n_configurations · n_resources²) for each of about thirty Newton steps.

    *Fails when* capacities are so tight that hardly any choice fits: a choice may be missed (status *infeasible* with
    a finite bound). With few jobs the gap is wide, because L is: use `scipy.optimize.milp` there.

    Examples
    --------
    >>> costs = [[[0, 0], [1, 4], [2, 5]], [[0, 0], [1, 1], [2, 2]]]
    >>> found = solve_vector_knapsack(costs, [[0, 4, 5], [0, 2, 3]], [3, 6])
    >>> found.choices.tolist(), found.value
    ([1, 2], 7.0)
    """
    value = value_table(values, allowed)
    capacity = _capacities(capacities)
    cost = cost_table(costs, (*value.shape, len(capacity)), integral=False)
    require(gap_limit >= 0, "`gap_limit` must not be negative", f"{gap_limit}", "Give a share of the value, as 0.01.")
    if not len(value):
        return Solution.of(np.empty(0, dtype=np.int64), 0.0, 0.0, multipliers=np.zeros(len(capacity)))
    share = cost / np.where(capacity > 0, capacity, 1.0)
    # A configuration that does not fit alone is excluded, so that the bound does not count on it.
    value = np.where((share > np.where(capacity > 0, 1.0 + TOLERANCE, 0.0)).any(axis=2), -inf, value)
    if rows_without_choice(value).any() or _cannot_fit(share, value):
        return infeasible()
    return _solve(share, value, capacity, gap_limit)


def _solve(share: FloatArray, value: FloatArray, capacity: FloatArray, limit: float) -> Solution:
    dual = SmoothDual(share, value)
    dual.run()
    usable = np.where(capacity > 0, capacity, inf)
    choices = _fitting(share, value, dual)
    if choices is None:
        return infeasible(dual.bound, dual.n_rounds)
    choices = _filled(share, value, choices, dual.multipliers)
    reduced = value - share @ dual.multipliers
    search = PairSearch(share, value, reduced.max(axis=1)[:, None] - reduced, choices)
    n_rounds = 0
    # At most 60 exchanges are tried to improve the choice.
    while n_rounds < 60 and relative_gap(search.value, dual.bound) > limit and search.improve(dual.bound):
        n_rounds += 1
    n_rounds += dual.n_rounds
    return Solution.of(search.choices, search.value, dual.bound, limit, dual.multipliers / usable, n_rounds)


def _fitting(share: FloatArray, value: FloatArray, dual: SmoothDual) -> IntArray | None:
    """A choice that fits: the fractional one rounded and repaired, or the smallest one repaired."""
    reduced = value - share @ dual.multipliers
    choices = _repaired(share, reduced, _rounded(dual.weights, reduced))
    if choices is not None:
        return choices
    footprint = np.where(value > -inf, share.max(axis=2), inf)
    return _repaired(share, reduced, footprint.argmin(axis=1))


def _rounded(weights: FloatArray, reduced: FloatArray) -> IntArray:
    """Round to one configuration for each job, such that equal jobs together come close to their fractions.

    Thresholds at multiples of the golden section spread evenly over any run of jobs, so that no chance is needed.
    """
    # Multiples of the golden ratio fall evenly between 0 and 1.
    thresholds = ((np.arange(len(weights)) + 0.5) * ((5**0.5 - 1) / 2)) % 1.0
    choices = (np.cumsum(weights, axis=1) < thresholds[:, None]).sum(axis=1)
    choices = np.minimum(choices, weights.shape[1] - 1)
    forbidden = reduced[np.arange(len(reduced)), choices] == -inf
    rounded: IntArray = np.where(forbidden, reduced.argmax(axis=1), choices)
    return rounded


def _repaired(share: FloatArray, reduced: FloatArray, choices: IntArray) -> IntArray | None:
    """Return `choices` made to fit by the changes of least loss per amount relieved; None if that fails."""
    choices = choices.copy()
    for _ in range(_N_REPAIRS_MAX):
        usage = choice_sum(share, choices)
        over = usage > 1 + TOLERANCE
        if not over.any():
            return choices
        jobs, columns = _reliefs(share, reduced, choices, over)
        steps = share[jobs, columns] - share[jobs, choices[jobs]]
        excess = np.maximum(usage + np.cumsum(steps, axis=0) - 1, 0.0).sum(axis=1)
        if not len(jobs) or excess.min() >= np.maximum(usage - 1, 0.0).sum() - TOLERANCE:
            return None
        n_taken = int(excess.argmin()) + 1
        choices[jobs[:n_taken]] = columns[:n_taken]
    return None


def _reliefs(share: FloatArray, reduced: FloatArray, choices: IntArray, over: BoolArray) -> tuple[IntArray, IntArray]:
    """Return jobs that can relieve the overused resources, the best first, with the best change of each."""
    rows = np.arange(len(choices))
    load = share @ over.astype(np.float64)
    relief = load[rows, choices][:, None] - load
    loss = reduced[rows, choices][:, None] - reduced
    price = np.where((relief > TOLERANCE) & (loss < inf), loss / np.maximum(relief, TOLERANCE), inf)
    columns = price.argmin(axis=1)
    jobs = np.argsort(price[rows, columns], kind="stable")
    jobs = jobs[price[jobs, columns[jobs]] < inf]
    return jobs, columns[jobs]


def _filled(share: FloatArray, value: FloatArray, choices: IntArray, multipliers: FloatArray) -> IntArray:
    """Return `choices` with the changes of most gain per price of their use, while they fit."""
    choices = choices.copy()
    worth = share @ multipliers
    rows = np.arange(len(choices))
    for _ in range(_N_REPAIRS_MAX):
        slack = 1 + TOLERANCE - choice_sum(share, choices)
        gain = value - value[rows, choices][:, None]
        possible = gain > 0
        for r in range(share.shape[2]):
            possible &= share[:, :, r] - share[rows, choices, r][:, None] <= slack[r]
        if not possible.any():
            return choices
        used = np.maximum(worth - worth[rows, choices][:, None], TOLERANCE)
        rate = np.where(possible, gain / used, -inf)
        columns = rate.argmax(axis=1)
        jobs = np.argsort(-rate[rows, columns], kind="stable")
        jobs = jobs[rate[jobs, columns[jobs]] > -inf]
        steps = np.cumsum(share[jobs, columns[jobs]] - share[jobs, choices[jobs]], axis=0)
        fits = (steps <= slack).all(axis=1)
        n_taken = len(jobs) if fits.all() else int(fits.argmin())
        choices[jobs[:n_taken]] = columns[jobs[:n_taken]]
    return choices


def _cannot_fit(share: FloatArray, value: FloatArray) -> bool:
    """Whether the smallest amounts of some one resource already exceed it."""
    least = np.where((value > -inf)[:, :, None], share, inf).min(axis=1).sum(axis=0)
    return bool((least > 1 + TOLERANCE).any())


def _capacities(capacities: ArrayLike) -> FloatArray:
    capacity = np.asarray(capacities, dtype=np.float64)
    require(capacity.ndim == 1, "`capacities` must have one dimension", f"{capacity.ndim}", "Give one per resource.")
    fine = bool((np.isfinite(capacity) & (capacity >= 0)).all())
    require(fine, "`capacities` must be finite and not negative", f"{capacity}", "Leave out what is unlimited.")
    return capacity
