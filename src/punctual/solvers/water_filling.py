"""Water filling: one level for all jobs, within the bounds of each."""

from bisect import bisect_left
from collections.abc import Sequence
from math import fsum


def fill(weights: Sequence[float], floors: Sequence[float], caps: Sequence[float], capacity: float) -> list[float]:
    """Share a capacity in proportion to weights, none below its floor or above its cap.

    Parameters
    ----------
    weights
        Shape (n,), above zero.
    floors, caps
        Shape (n,), in the unit of `capacity`, with 0 ≤ floors ≤ caps and Σ floors ≤ capacity.
    capacity
        The amount to share.

    Returns
    -------
    list of float
        Shape (n,); the caps themselves if they fit.

    Notes
    -----
    *Formula.* g_i = min(cap_i, max(floor_i, λ·weight_i)) with the level λ for which Σ g_i = capacity.

    *Properties.* Exact: the sum is piecewise linear in λ, and its breaks are at floor_i/weight_i and cap_i/weight_i.
    O(n log n).

    Examples
    --------
    >>> fill([1.0, 1.0, 2.0], [0.0, 1.5, 0.0], [4.0, 4.0, 1.0], 4.0)
    [1.5, 1.5, 1.0]
    """
    if fsum(caps) <= capacity:
        return list(caps)
    level = _level(weights, floors, caps, capacity)
    bounds = zip(weights, floors, caps, strict=True)
    return [min(cap, max(floor, level * weight)) for weight, floor, cap in bounds]


def _level(weights: Sequence[float], floors: Sequence[float], caps: Sequence[float], capacity: float) -> float:
    """Return the level λ, which exists because the caps do not fit.

    It lies between two neighbouring breaks. All sums are made anew: weights of many sizes would lose digits otherwise.
    """
    starts = [floor / weight for floor, weight in zip(floors, weights, strict=True)]
    ends = [cap / weight for cap, weight in zip(caps, weights, strict=True)]
    breaks = sorted({0.0, *starts, *ends})

    def held(level: float) -> float:
        bounds = zip(weights, floors, caps, strict=True)
        return fsum(min(cap, max(floor, level * weight)) for weight, floor, cap in bounds)

    i = bisect_left(breaks, capacity, key=held)
    if i in (0, len(breaks)):  # what there is differs from all floors, or caps, by rounding
        return breaks[min(i, len(breaks) - 1)]
    low, high = breaks[i - 1], breaks[i]
    between = {j for j in range(len(weights)) if starts[j] <= low and ends[j] >= high}
    bounded = fsum(caps[j] if ends[j] <= low else floors[j] for j in range(len(weights)) if j not in between)
    slope = fsum(weights[j] for j in between)
    return min(max(low, (capacity - bounded) / slope), high) if slope else high
