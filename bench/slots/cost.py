"""All jobs on time, with the fewest device-slots."""

from dataclasses import replace
from math import ceil

import numpy as np

from punctual.core.plan import PlanStatus
from punctual.solvers.solution import FloatArray, IntArray, status_of
from slots.filling import Filling
from slots.hull import upper_hulls
from slots.on_time import most_on_time
from slots.prices import Cost, Market, OnTime, cost_bound, descend, floored, on_time_bound
from slots.problem import SlotPlan, SlotProblem, is_done
from slots.share import admit

_N_STEPS_MAX = 12
#: A sum of whole numbers that is this close to one is that one.
_ROUNDING = 1e-6
#: Rounds of moving jobs forward before those left out are dealt with by `most_on_time`.
_N_ROUNDS_ALONE = 5


def least_cost(
    problem: SlotProblem, *, gap_limit: float = 1e-3, n_price_steps: int = 30, n_plans_max: int = 8000
) -> SlotPlan:
    """Meet all deadlines with as few device-slots as possible. Weights do not matter.

    Use it for promises that were already made; `most_on_time` decides which ones to make.

    Parameters
    ----------
    problem
        Jobs and free devices.
    gap_limit
        Stop as soon as the plan is proven to be within this share of the best.
    n_price_steps
        Subgradient steps for the prices of slots.
    n_plans_max
        Most plans of single jobs; a plan takes about 40 µs at 100 slots.

    Returns
    -------
    SlotPlan
        `value` and `bound` are device-slots; `prices` (beyond the 1 that each device-slot costs) prove the bound
        (`cost_bound`). Both are infinite if it is proven that not all jobs can be on time. If only the value is, jobs
        were left out without proof that they must be. `on_time` says which.

    Notes
    -----
    *Formula.* By deadline, each job gets the cheapest plan at prices 1 + p in what is free. Then one job after the other
    is taken out and placed again at price 1, as long as that saves anything. Jobs that do not fit, and those that pay
    most beyond what they would pay alone, move forward, and the profile is filled again (squeaky wheel). The first
    filling is that of minimum satisfactory shares. If jobs are still left out after some rounds, `most_on_time` packs
    them. The cheapest plan is kept.

    *Properties.* Deterministic; O((n_plans_max + n)(S T log T) + n_price_steps n S log T). The bound is rounded up to a
    whole number.

    *Fails when* deadlines can be met only just: a feasible order may not be found.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1, 2], rates=[[0, 2, 3]], work=[5], deadlines=[2], weights=[1], free=[2, 2])
    >>> plan = least_cost(problem)
    >>> plan.value, plan.status
    (3.0, 'optimal')
    """
    prices = _prices(problem, n_price_steps)
    bound = cost_bound(problem, prices)
    bound = float(ceil(bound - _ROUNDING)) if np.isfinite(bound) else bound
    search = _Search(problem, prices, bound * (1.0 + gap_limit), n_plans_max)
    search.run()
    counts = search.counts()
    on_time = is_done(problem, counts, problem.ends)
    if not on_time.all() and (np.isinf(bound) or _is_impossible(problem, n_price_steps)):
        bound = np.inf
    value = float(counts.sum()) if on_time.all() else np.inf
    status: PlanStatus = "infeasible" if np.isinf(bound) else status_of(-value, -bound, gap_limit)
    return SlotPlan(status=status, value=value, bound=bound, counts=counts, on_time=on_time, prices=prices)


def _prices(problem: SlotProblem, n_steps: int) -> FloatArray:
    market = Market(upper_hulls(problem.counts, problem.rates, _N_STEPS_MAX), problem.work, problem.ends)
    if not np.isfinite(market.respond(np.ones(problem.n_slots)).costs).all():
        return np.zeros(problem.n_slots)
    return descend(Cost(problem, market), np.zeros(problem.n_slots), n_steps, lambda prices: np.maximum(prices, 0.0))


def _is_impossible(problem: SlotProblem, n_steps: int) -> bool:
    """Whether prices prove that fewer than all jobs can be on time, each counted once."""
    market = Market(upper_hulls(problem.counts, problem.rates, _N_STEPS_MAX), problem.work, problem.ends)
    counted = replace(problem, weights=np.ones(problem.n_jobs))
    start = np.full(problem.n_slots, 0.5 * problem.n_jobs / max(1.0, float(problem.free.sum())))
    prices = descend(OnTime(counted, market), floored(start), n_steps, floored)
    return on_time_bound(counted, prices) < problem.n_jobs - _ROUNDING


class _Search:
    """Fillings in several orders; the one that leaves fewest out, and of those the cheapest, is kept."""

    def __init__(self, problem: SlotProblem, prices: FloatArray, goal: float, n_plans_max: int) -> None:
        self._filling = Filling(problem)
        self._problem = problem
        self._ones = np.ones(problem.n_slots)
        self._prices = 1.0 + prices
        self._n_jobs, self._deadlines = problem.n_jobs, problem.deadlines
        self._goal, self._n_plans_max = goal, n_plans_max
        self._best: dict[int, IntArray] = {}
        self.n_left_out, self.cost = problem.n_jobs, 0.0

    def run(self) -> None:
        """Fill, improve, move the unlucky forward, until the goal is reached or the work is spent."""
        alone = self._costs_alone()
        order = np.argsort(self._deadlines, kind="stable")
        self._filling.restart()
        admit(self._filling, order.tolist())
        self._improve()
        self._keep()
        scores, i_round = np.argsort(order).astype(np.float64), 0
        while not self._finished():
            n_before, i_round = self._filling.n_plans, i_round + 1
            if i_round == _N_ROUNDS_ALONE and self.n_left_out:
                self._pack()
            self._pour(np.argsort(scores, kind="stable").tolist())
            self._improve()
            self._keep()
            scores -= 0.25 * self._n_jobs * self._complaints(alone)
            if self._filling.n_plans == n_before:
                break

    def _pack(self) -> None:
        """Find the plan with the most jobs on time, where moving jobs forward was not enough."""
        counted = replace(self._problem, weights=np.ones(self._n_jobs))
        packed = most_on_time(counted, gap_limit=0.0, n_plans_max=3 * self._n_plans_max)
        columns = np.searchsorted(self._problem.counts, packed.counts)
        self._filling.restart()
        for job in np.flatnonzero(packed.on_time).tolist():
            self._filling.hold(job, columns[job, : self._problem.ends[job]])
        self._improve()
        self._keep()

    def counts(self) -> IntArray:
        """The best filling."""
        self._filling.restart()
        for job, columns in self._best.items():
            self._filling.hold(job, columns)
        return self._filling.counts()

    def _costs_alone(self) -> FloatArray:
        """Return what each job would pay if it were alone."""
        costs = np.ones(self._n_jobs)
        for job in range(self._n_jobs):
            self._filling.restart()
            if self._filling.place(job, self._ones):
                costs[job] = max(1.0, self._filling.cost(job, self._ones))
        return costs

    def _complaints(self, alone: FloatArray) -> FloatArray:
        """1 for each job left out; for the others what they pay too much, as a share of that."""
        paid = np.array([self._paid(job) for job in range(self._n_jobs)])
        excess = np.clip((paid - alone) / alone, 0.0, 1.0)
        return np.where(np.isfinite(paid), excess, 1.0)

    def _paid(self, job: int) -> float:
        return self._filling.cost(job, self._ones) if job in self._filling.placed else np.inf

    def _finished(self) -> bool:
        return (self.n_left_out == 0 and self.cost <= self._goal) or self._filling.n_plans >= self._n_plans_max

    def _pour(self, order: list[int]) -> None:
        self._filling.restart()
        for job in order:
            self._filling.place(job, self._prices)

    def _improve(self) -> None:
        """Take each job out and place it again, as long as that saves something."""
        saved = 1.0
        while saved > 0 and self._filling.n_plans < self._n_plans_max:
            saved = sum([self._replan(job) for job in list(self._filling.placed)])

    def _replan(self, job: int) -> float:
        before = self._filling.cost(job, self._ones)
        columns = self._filling.remove(job)
        if self._filling.place(job, self._ones, most=before - 1.0):
            return before - self._filling.cost(job, self._ones)
        self._filling.hold(job, columns)
        return 0.0

    def _keep(self) -> None:
        placed = self._filling.placed
        cost = sum([self._filling.cost(job, self._ones) for job in placed])
        if (self._n_jobs - len(placed), cost) < (self.n_left_out, self.cost) or not self._best:
            self._best, self.n_left_out, self.cost = dict(placed), self._n_jobs - len(placed), cost
