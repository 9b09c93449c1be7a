"""Exact references by HiGHS, a solver for mixed-integer programmes; needs the extra `mip`. Nothing else does."""

import importlib
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.core.errors import InvalidSpec
from punctual.core.plan import PlanStatus
from punctual.optim._tables import choice_sum, cost_table, rows_without_choice, value_table
from punctual.optim.solution import FloatArray, IntArray, Solution, infeasible, relative_gap

#: HiGHS calls it optimal within this.
_OPTIMAL_GAP = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A matrix by rows: row i has `entries[starts[i]:starts[i + 1]]` in `columns[starts[i]:starts[i + 1]]`."""

    starts: IntArray
    columns: IntArray
    entries: FloatArray


def solve_mip(
    objective: ArrayLike,
    matrix: Any,
    row_lower: ArrayLike,
    row_upper: ArrayLike,
    *,
    lower: ArrayLike = 0.0,
    upper: ArrayLike = inf,
    integral: ArrayLike = True,
    gap_limit: float = 0.0,
    time_limit_s: float = inf,
    n_nodes_max: int | None = None,
) -> Solution:
    """Maximise objective · x with row_lower ≤ matrix · x ≤ row_upper, lower ≤ x ≤ upper.

    Parameters
    ----------
    objective
        Shape (n_variables,). To minimise, give the negative and negate `value` and `bound`.
    matrix
        Shape (n_rows, n_variables): an array, a `SparseRows`, or a matrix of scipy.sparse.
    row_lower, row_upper
        Shape (n_rows,) or one number; may be infinite.
    lower, upper
        Shape (n_variables,) or one number; may be infinite.
    integral
        Truth values, shape (n_variables,) or one: which variables have to be whole.
    gap_limit
        Stop when (bound − value) / |value| is not larger.
    time_limit_s
        Stop then, by the solver's own clock, in seconds. A run that is stopped so is not reproducible.
    n_nodes_max
        Stop after that many nodes of the search tree. Reproducible.

    Returns
    -------
    Solution
        `choices`: the values of the variables, shape (n_variables,), whole ones rounded.

    Raises
    ------
    InvalidSpec
        highspy is missing, or the problem malformed.

    Notes
    -----
    *Source.* [highs2018].

    *Properties.* One thread and a fixed seed: the same answer each time, unless time runs out.

    *Fails when* the problem is large: exponential time in the worst case. A value is valid within HiGHS's tolerances
    (1e-6 on rows, before rounding).

    Examples
    --------
    >>> found = solve_mip([2, 3], [[1, 2]], 0, 4, upper=3)  # doctest: +SKIP
    >>> found.choices.tolist(), found.value  # doctest: +SKIP
    ([2.0, 1.0], 7.0)
    """
    highspy = _highspy()
    gains = np.asarray(objective, dtype=np.float64)
    rows = _rows(matrix, len(gains))
    whole = np.broadcast_to(np.asarray(integral, dtype=np.bool_), gains.shape)
    model = highspy.Highs()
    options = {
        "output_flag": False, "threads": 1, "random_seed": 0, "mip_rel_gap": gap_limit, "mip_abs_gap": 0.0,
        "time_limit": time_limit_s,
    }  # fmt: skip
    for name, setting in options.items():
        model.setOptionValue(name, setting)
    if n_nodes_max is not None:
        model.setOptionValue("mip_max_nodes", n_nodes_max)
    programme = _programme(highspy, gains, rows, (row_lower, row_upper), (lower, upper), whole)
    if model.passModel(programme) == highspy.HighsStatus.kError:
        raise InvalidSpec("the programme must be well formed", "an error of HiGHS", "solve_mip", "Look for NaN.")
    model.run()
    return _answer(highspy, model, gains, whole, gap_limit)


def exact_knapsack(
    costs: ArrayLike,
    values: ArrayLike,
    capacity: int,
    *,
    allowed: ArrayLike | None = None,
    gap_limit: float = 0.0,
    time_limit_s: float = inf,
) -> Solution:
    """The problem of `punctual.optim.knapsack.solve_knapsack` by HiGHS: to compare with.

    Parameters
    ----------
    costs, values, capacity, allowed
        As there.
    gap_limit, time_limit_s
        As in `solve_mip`.

    Raises
    ------
    InvalidSpec
        As there, and if highspy is missing.
    """
    value = value_table(values, allowed)
    cost = cost_table(costs, value.shape, whole=True)
    return _knapsack(cost[:, :, None], value, np.array([float(capacity)]), gap_limit, time_limit_s)


def exact_vector_knapsack(
    costs: ArrayLike,
    values: ArrayLike,
    capacities: ArrayLike,
    *,
    allowed: ArrayLike | None = None,
    gap_limit: float = 0.0,
    time_limit_s: float = inf,
) -> Solution:
    """The problem of `punctual.optim.vector_knapsack.solve_vector_knapsack` by HiGHS: the exact one for small cases.

    Parameters
    ----------
    costs, values, capacities, allowed
        As there.
    gap_limit, time_limit_s
        As in `solve_mip`.

    Raises
    ------
    InvalidSpec
        As there, and if highspy is missing.
    """
    value = value_table(values, allowed)
    capacity = np.asarray(capacities, dtype=np.float64)
    cost = cost_table(costs, (*value.shape, len(capacity)), whole=False)
    return _knapsack(cost, value, capacity, gap_limit, time_limit_s)


def _knapsack(
    cost: FloatArray, value: FloatArray, capacity: FloatArray, gap_limit: float, time_limit_s: float
) -> Solution:
    """One variable per allowed configuration; one row per job (exactly one is chosen) and one per resource."""
    n_jobs = len(value)
    if rows_without_choice(value).any():
        return infeasible()
    jobs, columns = np.nonzero(value > -inf)
    used = cost[jobs, columns]
    found = solve_mip(
        value[jobs, columns],
        _knapsack_rows(jobs, used, n_jobs),
        np.concatenate([np.ones(n_jobs), np.full(len(capacity), -inf)]),
        np.concatenate([np.ones(n_jobs), capacity]),
        upper=1.0,
        gap_limit=gap_limit,
        time_limit_s=time_limit_s,
    )
    if found.status == "infeasible":
        return found
    choices = np.zeros(n_jobs, dtype=np.int64)
    chosen = found.choices > 0.5
    choices[jobs[chosen]] = columns[chosen]
    best = float(choice_sum(value, choices))
    return _solution(choices, best, found.bound, gap_limit, found.n_rounds)


def _knapsack_rows(jobs: IntArray, used: FloatArray, n_jobs: int) -> SparseRows:
    variables = np.arange(len(jobs))
    columns, entries = [variables], [np.ones(len(jobs))]
    starts = [*np.searchsorted(jobs, np.arange(n_jobs + 1)).tolist()]
    for r in range(used.shape[1]):
        not_zero = np.flatnonzero(used[:, r])
        columns.append(not_zero)
        entries.append(used[not_zero, r])
        starts.append(starts[-1] + len(not_zero))
    return SparseRows(np.array(starts), np.concatenate(columns), np.concatenate(entries))


def _rows(matrix: Any, n_variables: int) -> SparseRows:
    if isinstance(matrix, SparseRows):
        return matrix
    if hasattr(matrix, "tocsr"):
        by_rows = matrix.tocsr()
        return SparseRows(by_rows.indptr, by_rows.indices, by_rows.data)
    dense = np.asarray(matrix, dtype=np.float64)
    if dense.ndim != 2 or dense.shape[1] != n_variables:
        raise InvalidSpec(
            "`matrix` must have one column per variable", f"shape {dense.shape} for {n_variables} variables",
            "solve_mip", "Give shape (n_rows, n_variables).",
        )  # fmt: skip
    row, column = np.nonzero(dense)
    return SparseRows(np.searchsorted(row, np.arange(len(dense) + 1)), column, dense[row, column])


def _programme(
    highspy: Any,
    gains: FloatArray,
    rows: SparseRows,
    row_bounds: tuple[ArrayLike, ArrayLike],
    bounds: tuple[ArrayLike, ArrayLike],
    whole: NDArray[np.bool_],
) -> Any:
    programme = highspy.HighsLp()
    n_rows = len(rows.starts) - 1
    programme.num_col_, programme.num_row_ = len(gains), n_rows
    programme.sense_ = highspy.ObjSense.kMaximize
    programme.col_cost_ = gains
    programme.col_lower_, programme.col_upper_ = (_spread(bound, len(gains)) for bound in bounds)
    programme.row_lower_, programme.row_upper_ = (_spread(bound, n_rows) for bound in row_bounds)
    programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    programme.a_matrix_.start_ = rows.starts.astype(np.int32)
    programme.a_matrix_.index_ = rows.columns.astype(np.int32)
    programme.a_matrix_.value_ = rows.entries.astype(np.float64)
    if whole.any():
        kinds = highspy.HighsVarType
        programme.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in whole.tolist()]
    return programme


def _answer(highspy: Any, model: Any, gains: FloatArray, whole: NDArray[np.bool_], gap_limit: float) -> Solution:
    facts = model.getInfo()
    has_bound = bool(whole.any())
    n_rounds = max(0, int(facts.mip_node_count)) if has_bound else int(facts.simplex_iteration_count)
    if facts.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        proven = model.getModelStatus() == highspy.HighsModelStatus.kInfeasible
        return infeasible(-inf if proven else inf, n_rounds)
    found = np.array(model.getSolution().col_value)
    found[whole] = np.round(found[whole])
    value = float(gains @ found)
    is_optimal = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = float(facts.mip_dual_bound) if has_bound else (value if is_optimal else inf)
    return _solution(found, value, bound, gap_limit, n_rounds)


def _solution(choices: NDArray[Any], value: float, bound: float, gap_limit: float, n_rounds: int) -> Solution:
    gap = relative_gap(value, bound)
    status: PlanStatus = "optimal" if gap <= _OPTIMAL_GAP else "feasible" if gap <= gap_limit else "partial"
    return Solution(
        status=status,
        choices=choices,
        value=value,
        bound=max(value, bound),
        multipliers=np.empty(0),
        n_rounds=n_rounds,
    )


def _spread(bound: ArrayLike, n: int) -> FloatArray:
    return np.broadcast_to(np.asarray(bound, dtype=np.float64), (n,)).copy()


def _highspy() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError:
        raise InvalidSpec(
            "the package highspy must be installed", "none", "an exact reference",
            "Install the extra: `pip install 'punctual[mip]'`.",
        ) from None  # fmt: skip
