"""Knapsacks solved exactly by HiGHS, which comes with scipy: what the project's own solvers are compared with."""

from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from punctual.solvers._tables import choice_sum, cost_table, rows_without_choice, value_table
from punctual.solvers.solution import FloatArray, IntArray, Solution, infeasible, relative_gap

#: HiGHS calls a solution optimal within this gap.
_OPTIMAL_GAP = 1e-9


def exact_knapsack(
    costs: ArrayLike, values: ArrayLike, capacity: int, *, gap_limit: float = 0.0, time_limit_s: float = inf
) -> Solution:
    """The problem of `punctual.solvers.knapsack.solve_knapsack`, with the same arguments.

    A run that is ended by `time_limit_s` is not reproducible.
    """
    value = value_table(values, None)
    cost = cost_table(costs, value.shape, integral=True)
    return _solved(cost[:, :, None], value, np.array([float(capacity)]), gap_limit, time_limit_s)


def exact_vector_knapsack(
    costs: ArrayLike, values: ArrayLike, capacities: ArrayLike, *, gap_limit: float = 0.0, time_limit_s: float = inf
) -> Solution:
    """The problem of `punctual.solvers.vector_knapsack.solve_vector_knapsack`, with the same arguments."""
    value = value_table(values, None)
    capacity = np.asarray(capacities, dtype=np.float64)
    cost = cost_table(costs, (*value.shape, len(capacity)), integral=False)
    return _solved(cost, value, capacity, gap_limit, time_limit_s)


def _solved(
    cost: FloatArray, value: FloatArray, capacity: FloatArray, gap_limit: float, time_limit_s: float
) -> Solution:
    """One binary variable for each allowed configuration; one row for each job and one for each resource."""
    n_jobs = len(value)
    if rows_without_choice(value).any():
        return infeasible()
    jobs, columns = np.nonzero(value > -inf)
    rows = vstack([_one_each(jobs, n_jobs), csr_array(cost[jobs, columns].T)])
    options = {"mip_rel_gap": gap_limit} | ({"time_limit": time_limit_s} if isfinite(time_limit_s) else {})
    answer = milp(
        -value[jobs, columns],
        constraints=LinearConstraint(
            rows, [*np.ones(n_jobs), *np.full(len(capacity), -inf)], [*np.ones(n_jobs), *capacity]
        ),
        integrality=np.ones(len(jobs)),
        bounds=Bounds(0, 1),
        options=options,
    )
    if answer.x is None:
        return infeasible(inf if answer.status == 1 else -inf)
    choices = np.zeros(n_jobs, dtype=np.int64)
    choices[jobs[answer.x > 0.5]] = columns[answer.x > 0.5]
    return _solution(choices, float(choice_sum(value, choices)), -float(answer.mip_dual_bound), gap_limit, answer)


def _one_each(jobs: IntArray, n_jobs: int) -> Any:
    return coo_array((np.ones(len(jobs)), (jobs, np.arange(len(jobs)))), shape=(n_jobs, len(jobs))).tocsr()


def _solution(choices: IntArray, value: float, bound: float, gap_limit: float, answer: Any) -> Solution:
    gap = relative_gap(value, bound)
    return Solution(
        status="optimal" if gap <= _OPTIMAL_GAP else "feasible" if gap <= gap_limit else "partial",
        choices=choices,
        value=value,
        bound=max(value, bound),
        multipliers=np.empty(0),
        n_rounds=int(answer.mip_node_count or 0),
    )
