"""The least weighted tardiness: when not all can be on time, and none may be dropped."""

import numpy as np

from punctual.solvers.solution import FloatArray, IntArray, status_of
from slots.filling import Filling
from slots.hull import upper_hulls
from slots.prices import ROUNDING_FRAC, Market, descend, floored
from slots.problem import SlotPlan, SlotProblem, check_prices, rates_of

#: Ends that the bound tells apart for each job, deadline and horizon included.
_N_ENDS = 8
_N_STEPS_MAX = 12


def least_tardiness(
    problem: SlotProblem, *, gap_limit: float = 1e-3, n_price_steps: int = 30, n_plans_max: int = 4000
) -> SlotPlan:
    """Finish all jobs within the horizon so that Σ weight · slots behind the deadline is small.

    Parameters
    ----------
    problem
        Jobs and free devices.
    gap_limit
        Stop as soon as the plan is proven to be within this share of the best.
    n_price_steps
        Subgradient steps for the prices of slots.
    n_plans_max
        Most plans of single jobs.

    Returns
    -------
    SlotPlan
        `value` and `bound` are weight · slots; `prices` prove the bound (`tardiness_bound`). A job that is not done
        within the horizon counts as if it were done one slot behind it.

    Notes
    -----
    *Formula.* A job's finish is the end of the slot in which its work is done; tardiness = max(0, finish − deadline).
    In some order each job is placed before its deadline, or else before the earliest end that is free enough (found by
    bisection). Orders: by deadline, and by weight per device-slot; then jobs that contribute most move forward
    (squeaky wheel). The best is kept.

    *Properties.* Deterministic; O(n_plans_max (S T log T) + n_price_steps n S log T).

    *Fails when* the load is far above the capacity: the bound is then loose, because it lets all jobs hold mixtures
    of counts and be late by parts.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1], rates=[[0, 1]] * 2, work=[2, 2], deadlines=[2, 2], weights=[1, 3], free=[1] * 4)
    >>> least_tardiness(problem).value
    2.0
    """
    search = _Search(problem, n_plans_max)
    search.begin()
    prices = _prices(problem, n_price_steps, search.value)
    bound = tardiness_bound(problem, prices)
    search.improve(bound * (1.0 + gap_limit))
    counts = search.counts()
    late = tardiness(problem, counts)
    value = float(problem.weights @ late)
    return SlotPlan(
        status=status_of(-value, -bound, gap_limit), value=value, bound=min(bound, value), counts=counts,
        on_time=late == 0, prices=prices,
    )  # fmt: skip


def tardiness(problem: SlotProblem, counts: IntArray) -> FloatArray:
    """Slots behind its deadline at which each job is done, shape (n,); see `least_tardiness`."""
    done = rates_of(problem, counts).cumsum(axis=1) >= problem.work[:, None] * (1.0 - ROUNDING_FRAC)
    finish = np.where(done.any(axis=1), done.argmax(axis=1) + 1, problem.n_slots + 1)
    finish = np.where(problem.work <= 0, 0, finish)
    return np.maximum(0.0, (finish - problem.ends).astype(np.float64))


def tardiness_bound(problem: SlotProblem, prices: FloatArray) -> float:
    """Return a weighted tardiness that no plan falls below, whatever the prices.

    Parameters
    ----------
    problem
        Jobs and free devices.
    prices
        Shape (T,), not below zero.

    Notes
    -----
    *Formula.* max(0, Σ_i min_f (w_i (f − d_i) + cost_i(p, f)) − Σ p C), over ends f ≥ d_i. Ends are told apart on a
    grid: between two of its points the job is as late as the first and pays as little as at the second.
    """
    check_prices(problem, prices)
    dual = _Dual(problem, upper_hulls(problem.counts, problem.rates).columns.shape[1])
    value = -dual.evaluate(floored(prices))[0]
    return max(0.0, value - ROUNDING_FRAC * abs(value))


def _prices(problem: SlotProblem, n_steps: int, scale: float) -> FloatArray:
    """Good prices, from zero upwards; `scale` is a value that can be reached."""
    start = floored(np.zeros(problem.n_slots))
    return descend(_Dual(problem, _N_STEPS_MAX), start, n_steps, floored, scale) if scale > 0 else start


class _Dual:
    """The dual of the least weighted tardiness, negated: convex, to be made small. A row for each job and end."""

    def __init__(self, problem: SlotProblem, n_steps_max: int) -> None:
        self._free = problem.free.astype(np.float64)
        self._n_jobs = problem.n_jobs
        ends, since = _ends(problem)
        self._late = problem.weights[:, None] * (since - problem.ends[:, None])
        rows = np.repeat(np.arange(problem.n_jobs), _N_ENDS)
        hulls = upper_hulls(problem.counts, problem.rates[rows], n_steps_max)
        self._market = Market(hulls, problem.work[rows], ends.ravel())
        # Never within the horizon: one slot behind it, at no cost.
        self._never = problem.weights * (problem.n_slots + 1 - problem.ends)

    def evaluate(self, prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, a subgradient (T,), and what each job pays (n,)."""
        response = self._market.respond(prices)
        burdens = self._late + response.costs.reshape(self._n_jobs, _N_ENDS)
        least = np.minimum(burdens.min(axis=1, initial=np.inf), self._never)
        chosen = np.zeros_like(burdens)
        finishing = burdens.min(axis=1, initial=np.inf) <= self._never
        chosen[np.flatnonzero(finishing), burdens.argmin(axis=1)[finishing]] = 1.0
        slope = self._free - response.usage(chosen.ravel())
        return float(prices @ self._free - least.sum()), slope, least


def _ends(problem: SlotProblem) -> tuple[IntArray, IntArray]:
    """Grid of ends from the deadline to the horizon, (n, _N_ENDS), and for each the earliest finish that it stands for.

    Dense at the deadline, where most jobs end.
    """
    shares = (np.arange(_N_ENDS) / (_N_ENDS - 1)) ** 2
    span = (problem.n_slots - problem.ends)[:, None]
    ends = problem.ends[:, None] + np.ceil(span * shares).astype(np.int64)
    since = np.concatenate([ends[:, :1], np.minimum(ends[:, :-1] + 1, ends[:, 1:])], axis=1)
    return ends, since


class _Search:
    """Fillings in several orders; the one with the least weighted tardiness is kept."""

    def __init__(self, problem: SlotProblem, n_plans_max: int) -> None:
        self._problem, self._filling = problem, Filling(problem)
        self._prices, self._n_plans_max = np.ones(problem.n_slots), n_plans_max
        self._best: dict[int, IntArray] = {}
        self._scores = np.zeros(problem.n_jobs)
        self.value = np.inf

    def begin(self) -> None:
        """Each order once; the better one stays."""
        for order in (self._by_deadline(), self._by_weight()):
            before = self.value
            scores = np.argsort(order).astype(np.float64)
            self._pour(scores)
            self._keep()
            self._scores = scores if self.value < before else self._scores

    def improve(self, goal: float) -> None:
        """The order again and again, with those that are late moved forward."""
        burdens = np.ones(self._problem.n_jobs)
        while self.value > goal and burdens.any() and self._filling.n_plans < self._n_plans_max:
            n_before = self._filling.n_plans
            self._pour(self._scores)
            burdens = self._keep()
            if self._filling.n_plans == n_before:
                break
            pushed = self._scores - 0.3 * len(burdens) * burdens / max(float(burdens.max()), 1e-300)
            self._scores = np.argsort(np.argsort(pushed, kind="stable")).astype(np.float64)

    def counts(self) -> IntArray:
        """The best filling."""
        self._filling.restart()
        for job, columns in self._best.items():
            self._filling.hold(job, columns)
        return self._filling.counts()

    def _by_deadline(self) -> IntArray:
        return np.argsort(self._problem.deadlines, kind="stable")

    def _by_weight(self) -> IntArray:
        best = self._problem.rates.max(axis=1)
        slots = self._problem.work / np.where(best > 0, best, 1.0)
        return np.argsort(-self._problem.weights / np.maximum(slots, 1e-300), kind="stable")

    def _pour(self, scores: FloatArray) -> None:
        self._filling.restart()
        for job in np.argsort(scores, kind="stable").tolist():
            if not self._filling.place(job, self._prices):
                self._place_late(job)

    def _place_late(self, job: int) -> None:
        """Place the job before the earliest end that leaves it enough; nowhere if the horizon does not."""
        low, high = int(self._problem.ends[job]), self._problem.n_slots
        if not self._filling.fits(job, high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._filling.fits(job, middle) else (middle, high)
        self._filling.place(job, self._prices, high)

    def _keep(self) -> FloatArray:
        """Return what each job adds to the weighted tardiness; keeps the filling if it is the best."""
        burdens = self._problem.weights * tardiness(self._problem, self._filling.counts())
        if burdens.sum() < self.value:
            self._best, self.value = dict(self._filling.placed), float(burdens.sum())
        return burdens
