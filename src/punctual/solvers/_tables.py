"""The tables that the knapsack solvers are given, checked and in one form."""

from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.core.errors import InvalidSpec
from punctual.solvers.solution import BoolArray, FloatArray

_SHAPES = "Give one row per job and one column per configuration; pad short rows and forbid the padding."


def value_table(values: ArrayLike, allowed: ArrayLike | None) -> FloatArray:
    """`values` with -inf where a configuration is forbidden, shape (n_jobs, n_configurations)."""
    table = np.asarray(values, dtype=np.float64)
    require(table.ndim == 2, "`values` must have two dimensions", f"{table.ndim}", _SHAPES)
    if table.size:
        top = float(table.max())
        require(top < inf, "`values` must be finite, or -inf where forbidden", f"{top}", "Mend or forbid that entry.")
    if allowed is None:
        return table
    mask = np.asarray(allowed)
    require(mask.dtype == np.bool_, "`allowed` must hold truth values", f"{mask.dtype}", "Give an array of booleans.")
    return np.where(_spread(mask, table.shape, "allowed"), table, -inf)


def cost_table(costs: ArrayLike, shape: tuple[int, ...], *, integral: bool) -> FloatArray:
    """Broadcast `costs` to `shape`; with `integral`, refuse an array of other numbers."""
    table = np.asarray(costs)
    if integral:
        require(
            table.dtype.kind in "iu" or not table.size,
            "`costs` must be integers", f"{table.dtype}", "Count in whole units: devices, or megabytes.",
        )  # fmt: skip
    # Contiguous, also when one row is spread over all jobs: everything below runs along rows.
    spread = _spread(table, shape, "costs").astype(np.float64, order="C")
    if spread.size:
        least, most = float(spread.min()), float(spread.max())
        require(
            least >= 0 and isfinite(most), "`costs` must be finite and not negative", f"{least} to {most}",
            "Forbid a configuration with `allowed`, not by its cost.",
        )  # fmt: skip
    return spread


def require(holds: bool, must: str, got: str, remedy: str) -> None:
    """Refuse malformed input."""
    if not holds:
        raise InvalidSpec(must, got, "a knapsack", remedy)


def choice_sum(table: FloatArray, choices: NDArray[np.int64]) -> Any:
    """Return the sum of the chosen entries over all jobs; one number per resource for a table with a third axis."""
    return table[np.arange(len(table)), choices].sum(axis=0)


def rows_without_choice(values: FloatArray) -> BoolArray:
    """Jobs for which everything is forbidden."""
    nothing: BoolArray = values.max(axis=1, initial=-inf) == -inf
    return nothing


def _spread(table: NDArray[Any], shape: tuple[int, ...], name: str) -> NDArray[Any]:
    try:
        return np.broadcast_to(table, shape)
    except ValueError:
        raise InvalidSpec(
            f"`{name}` must have shape {shape} or spread to it", f"shape {table.shape}", "a knapsack", _SHAPES
        ) from None
