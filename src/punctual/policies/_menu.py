"""Several ways for each job to run, each with its use and utility: which one each gets, or none."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from punctual.optim.solution import FloatArray, IntArray, Solution
from punctual.optim.sum_of_ratios import PairProblem, pairs
from punctual.optim.vector_knapsack import solve_vector_knapsack

#: Rows of a table are padded to the longest list of ways.
_NOT_THERE = -np.inf


def undominated(uses: FloatArray, utilities: FloatArray) -> IntArray:
    """Indices of the ways that no other beats: as useful, for no more of anything; the most useful first.

    Parameters
    ----------
    uses
        Shape (k, R).
    utilities
        Shape (k,); those of zero or below are left out.
    """
    # Of equally useful ways the smallest comes first, so that it is the one that stays.
    order = np.lexsort((uses.sum(axis=1), -utilities))
    kept: list[int] = []
    for i in order[utilities[order] > 0].tolist():
        if not kept or not (uses[kept] <= uses[i]).all(axis=1).any():
            kept.append(i)
    return np.array(kept, dtype=np.int64)


def fill(
    uses: Sequence[FloatArray], utilities: Sequence[FloatArray], capacity: FloatArray, *, gap_limit: float
) -> Solution:
    """Choose a way for each job, or none; `choices` counts ways from 1, and 0 is none.

    Parameters
    ----------
    uses, utilities
        Of each job shapes (k, R) and (k,), k may differ.
    capacity
        Shape (R,).
    """
    n_ways = max((len(one) for one in utilities), default=0)
    costs = np.zeros((len(uses), n_ways + 1, len(capacity)))
    values = np.full((len(uses), n_ways + 1), _NOT_THERE)
    values[:, 0] = 0.0
    for i, (use, utility) in enumerate(zip(uses, utilities, strict=True)):
        costs[i, 1 : len(use) + 1], values[i, 1 : len(utility) + 1] = use, utility
    return solve_vector_knapsack(costs, values, capacity, gap_limit=gap_limit)


def choose(
    problems: Sequence[PairProblem],
    utilities: Sequence[Callable[[float], float]],
    capacity: ArrayLike,
    *,
    gap_limit: float,
) -> tuple[list[tuple[int, int]], float, float]:
    """Workers and servers of each job, or zeros; what they are worth together, and a bound of that."""
    found = [_ways(problem, utility) for problem, utility in zip(problems, utilities, strict=True)]
    filled = fill(
        [uses for _, uses, _ in found], [worths for _, _, worths in found], np.asarray(capacity, dtype=np.float64),
        gap_limit=gap_limit,
    )  # fmt: skip
    chosen = [ways[int(way) - 1] if way else (0, 0) for (ways, _, _), way in zip(found, filled.choices, strict=True)]
    return chosen, filled.value, filled.bound


def _ways(
    problem: PairProblem, utility: Callable[[float], float]
) -> tuple[list[tuple[int, int]], FloatArray, FloatArray]:
    """The pairs of one job that no other beats, their uses (k, R) and utilities (k,)."""
    workers, servers, times = pairs(problem)
    uses = workers[:, None] * problem.per_worker + servers[:, None] * problem.per_server
    worths = np.array([utility(time) for time in times.tolist()], dtype=np.float64)
    kept = undominated(uses, worths)
    ways = list(zip(workers[kept].tolist(), servers[kept].tolist(), strict=True))
    return ways, uses[kept], worths[kept]
