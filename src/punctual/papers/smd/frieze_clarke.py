"""Multi-dimensional 0-1 knapsack: admit jobs that take fixed amounts of several resources."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from punctual.core.errors import InvalidSpec
from punctual.solvers.solution import BoolArray, FloatArray, Solution

_WHERE = "the packing problem"
#: A basic variable this close to 1 is 1.
_WHOLE = 1.0 - 1e-9
#: Relative gap that counts as equal.
_PROVEN_FRAC = 1e-9


def frieze_clarke(profits: ArrayLike, costs: ArrayLike, capacities: ArrayLike, *, subset_size: int = 1) -> Solution:
    """Fix each small subset of jobs, fill the rest by a linear programme, round it down; keep the best.

    The published way to choose the admitted jobs; `exact_packing` is better.

    Parameters
    ----------
    profits
        Shape (n,), not below zero.
    costs
        Shape (n, R), what each job takes of each resource, not below zero.
    capacities
        Shape (R,), not below zero.
    subset_size
        Most jobs that are fixed, k.
    """
    profit, cost, capacity = _checked(profits, costs, capacities)
    bound, admitted = _relaxed(profit, cost, capacity, np.zeros(len(profit), dtype=bool), np.ones(len(profit), dtype=bool))  # fmt: skip
    best, n_programmes = admitted, 1
    for subset in _subsets(len(profit), subset_size):
        fixed = np.zeros(len(profit), dtype=bool)
        fixed[list(subset)] = True
        if np.any(cost[fixed].sum(axis=0) > capacity):
            continue
        if len(subset) == subset_size:
            open_to = ~fixed & (profit <= profit[fixed].min())
            _, fixed = _relaxed(profit, cost, capacity, fixed, open_to)
            n_programmes += 1
        if profit[fixed].sum() > profit[best].sum():
            best = fixed
    return _packing(profit, best, bound, n_programmes)


def exact_packing(profits: ArrayLike, costs: ArrayLike, capacities: ArrayLike) -> Solution:
    """The most profitable jobs that fit, by branch and bound (HiGHS).

    Parameters
    ----------
    profits, costs, capacities
        As in `frieze_clarke`.
    """
    profit, cost, capacity = _checked(profits, costs, capacities)
    if not len(profit):
        return _packing(profit, np.zeros(0, dtype=bool), 0.0, 0)
    answer = milp(
        -profit, constraints=LinearConstraint(cost.T, -np.inf, capacity), integrality=np.ones(len(profit)),
        bounds=Bounds(0, 1), options={"mip_rel_gap": 0.0},
    )  # fmt: skip
    admitted = np.zeros(len(profit), dtype=bool) if answer.x is None else answer.x > 0.5
    bound = float(profit.sum()) if answer.mip_dual_bound is None else -float(answer.mip_dual_bound)
    return _packing(profit, admitted, bound, int(answer.mip_node_count or 0))


def _subsets(n: int, size: int) -> Iterator[tuple[int, ...]]:
    for k in range(1, min(size, n) + 1):
        yield from combinations(range(n), k)


def _relaxed(
    profit: FloatArray, cost: FloatArray, capacity: FloatArray, fixed: BoolArray, open_to: BoolArray
) -> tuple[float, BoolArray]:
    """Value of the linear relaxation beside the fixed jobs, and its basic solution rounded down."""
    left = np.maximum(capacity - cost[fixed].sum(axis=0), 0.0)
    base = float(profit[fixed].sum())
    if not open_to.any():
        return base, fixed
    # The dual simplex method: its solution is basic, which the guarantee needs.
    answer = linprog(-profit[open_to], A_ub=cost[open_to].T, b_ub=left, bounds=(0, 1), method="highs-ds")
    # HiGHS gave up: the fixed jobs fit, and the others are worth no more than all of them together.
    if answer.x is None:
        return base + float(profit[open_to].sum()), fixed
    rounded = fixed.copy()
    rounded[np.flatnonzero(open_to)[answer.x >= _WHOLE]] = True
    return base - float(answer.fun), rounded


def _packing(profit: FloatArray, admitted: BoolArray, bound: float, n_programmes: int) -> Solution:
    value = float(profit[admitted].sum())
    bound = max(bound, value)
    if bound - value <= _PROVEN_FRAC * bound:
        bound = value
    return Solution.of(admitted, value, bound, n_rounds=n_programmes)


def _checked(profits: ArrayLike, costs: ArrayLike, capacities: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    profit, cost, capacity = (np.asarray(values, dtype=np.float64) for values in (profits, costs, capacities))
    wanted = (len(profit), len(capacity)) if profit.ndim == capacity.ndim == 1 else None
    if cost.shape != wanted:
        raise InvalidSpec(
            "`costs` must have a row for each profit and a column for each capacity", f"shape {cost.shape}", _WHERE,
            "Give what each job takes of each resource.",
        )  # fmt: skip
    for name, values in (("profits", profit), ("costs", cost), ("capacities", capacity)):
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            raise InvalidSpec(f"`{name}` must be finite and not below zero", f"{values[wrong][0]}", _WHERE, "Leave out what can never be admitted.")  # fmt: skip
    # As shares of the capacity: the tolerances of HiGHS are absolute, and there may be cores beside bytes.
    units = np.where(capacity > 0, capacity, 1.0)
    return profit, cost / units, capacity / units
