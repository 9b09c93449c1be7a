"""Water filling: one level for all jobs, within the bounds of each."""

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

    Going through the breaks upwards, `fixed` is what those at a bound hold and `slope` the weight of the others: up to
    the next break the sum is fixed + slope·λ. In the segment found, the sums are computed again, because the additions
    and subtractions on the way have lost digits.
    """
    starts = [(floor / weight, i, True) for i, (floor, weight) in enumerate(zip(floors, weights, strict=True))]
    ends = [(cap / weight, i, False) for i, (cap, weight) in enumerate(zip(caps, weights, strict=True))]
    between: set[int] = set()
    fixed, slope = fsum(floors), 0.0
    at_cap: set[int] = set()
    for at, i, begins in sorted(starts + ends, key=lambda each: (each[0], not each[2], each[1])):
        if between and fixed + slope * at >= capacity:
            break
        if begins:
            between.add(i)
            fixed, slope = fixed - floors[i], slope + weights[i]
        else:
            between.discard(i)
            at_cap.add(i)
            fixed, slope = fixed + caps[i], slope - weights[i]
    if not between:  # the caps exceed the capacity by no more than rounding
        return max(at for at, _, _ in ends)
    bounded = fsum(caps[i] if i in at_cap else floors[i] for i in range(len(caps)) if i not in between)
    return max(0.0, (capacity - bounded) / fsum(weights[i] for i in between))
