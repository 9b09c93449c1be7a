"""Upper concave hulls of rate tables: what mixing counts over many slots can reach."""

from dataclasses import dataclass

import numpy as np

from punctual.solvers.solution import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Hulls:
    """Upper concave hulls of n rate tables, each a staircase of steps of falling efficiency.

    Attributes
    ----------
    columns
        Shape (n, S + 1), columns of the rate table that are vertices of the hull, padded with the last one.
    n_steps
        Shape (n,), steps of each hull, at most S.
    step_counts, step_rates
        Shape (n, S), devices and work per slot that each step adds; 0 behind the last step.
    """

    columns: IntArray
    n_steps: IntArray
    step_counts: FloatArray
    step_rates: FloatArray

    @property
    def densities(self) -> FloatArray:
        """Shape (n, S), work per device of each step, not increasing along a row; 0 behind the last step."""
        return np.divide(
            self.step_rates, self.step_counts, out=np.zeros_like(self.step_rates), where=self.step_counts > 0
        )


def upper_hulls(counts: IntArray, rates: FloatArray, n_steps_max: int | None = None) -> Hulls:
    """Hulls of the points (counts[k], rates[i, k]) and the origin.

    Parameters
    ----------
    counts
        Shape (m,), ascending, the first 0.
    rates
        Shape (n, m), with 0 in the first column.
    n_steps_max
        Most steps of a hull. One with more keeps its last vertex and others at equal ratios, which makes it a little
        lower: still reachable, no longer an upper bound. None: all.

    Returns
    -------
    Hulls

    Notes
    -----
    From each vertex the next one is where the slope is largest, the farthest of those if there are several. It is
    found for all tables at once: O(n m S).

    Examples
    --------
    >>> import numpy as np
    >>> upper_hulls(np.array([0, 1, 2, 3]), np.array([[0, 1.0, 1.0, 2.5]])).columns
    array([[0, 1, 3]])
    """
    columns, n_steps = _vertices(counts, rates)
    if n_steps_max is not None and columns.shape[1] > n_steps_max + 1:
        columns, n_steps = _thinned(columns, n_steps, n_steps_max)
    at = np.take_along_axis(rates, columns, axis=1)
    return Hulls(columns, n_steps, np.diff(counts[columns], axis=1).astype(np.float64), np.diff(at, axis=1))


def _vertices(counts: IntArray, rates: FloatArray) -> tuple[IntArray, IntArray]:
    n, m = rates.shape
    rows, current = np.arange(n), np.zeros(n, dtype=np.int64)
    columns, n_steps = [current], np.zeros(n, dtype=np.int64)
    while True:
        following, climbs = _next_vertex(counts, rates, rows, current)
        if m == 1 or not climbs.any():
            break
        current = np.where(climbs, following, current)
        n_steps += climbs
        columns.append(current)
    return np.stack(columns, axis=1), n_steps


def _next_vertex(counts: IntArray, rates: FloatArray, rows: IntArray, current: IntArray) -> tuple[IntArray, IntArray]:
    """Column of the next vertex of each table, and 1 where there is one."""
    rise = rates - rates[rows, current][:, None]
    run = counts[None, :] - counts[current][:, None]
    slopes = np.divide(rise, run, out=np.full(rates.shape, -np.inf), where=run > 0)
    following = rates.shape[1] - 1 - np.argmax(slopes[:, ::-1], axis=1)
    return following, (slopes[rows, following] > 0).astype(np.int64)


def _thinned(columns: IntArray, n_steps: IntArray, n_steps_max: int) -> tuple[IntArray, IntArray]:
    """At most `n_steps_max` steps a table, at equal ratios of their number."""
    chosen = np.zeros((len(columns), n_steps_max + 1), dtype=np.int64)
    kept = np.zeros(len(columns), dtype=np.int64)
    for length in np.unique(n_steps):
        positions = _ratios(int(length), n_steps_max)
        rows = n_steps == length
        kept[rows] = len(positions) - 1
        padded = np.full(n_steps_max + 1, positions[-1])
        padded[: len(positions)] = positions
        chosen[rows] = padded
    return np.take_along_axis(columns, chosen, axis=1), kept


def _ratios(length: int, n_steps_max: int) -> IntArray:
    """At most `n_steps_max` + 1 of the positions 0..length, with both ends."""
    if length <= n_steps_max:
        return np.arange(length + 1)
    spaced = np.round(length ** (np.arange(n_steps_max) / (n_steps_max - 1))).astype(np.int64)
    return np.unique(np.concatenate([[0], spaced]))
