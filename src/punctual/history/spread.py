"""Distribution of the values of many jobs: mean, quantiles and maximum."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from punctual.core.errors import InvalidSpec


def quantile(ascending: Sequence[float], p: float) -> float:
    """The `p`-quantile: below it lies the share `p` of the values.

    Parameters
    ----------
    ascending
        The values, in order; at least one.
    p
        Share from 0 to 1.

    Raises
    ------
    InvalidSpec
        The values are empty, or `p` is not a share.

    Notes
    -----
    With values x₀ ≤ … ≤ xₙ₋₁, h = p (n − 1), k = ⌊h⌋: the quantile is xₖ + (h − k)(xₖ₊₁ − xₖ), that is linear between
    the values (definition 7 of [hyndman1996], the default of NumPy and R).

    Examples
    --------
    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    if not ascending or not 0 <= p <= 1:
        raise InvalidSpec(
            "a quantile needs values and a share from 0 to 1", f"{len(ascending)} values and {p}", "a quantile",
            "Leave it out where there are no values.",
        )  # fmt: skip
    h = p * (len(ascending) - 1)
    below = int(h)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (h - below) * (ascending[above] - ascending[below])


@dataclass(frozen=True, slots=True)
class Spread:
    """`n` values in five numbers, in the unit of the values; quantiles as in `quantile`."""

    n: int
    mean: float
    median: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Return the spread of `values`, in any order; None if they are empty."""
        ascending = sorted(values)
        if not ascending:
            return None
        return cls(
            n=len(ascending),
            mean=fsum(ascending) / len(ascending),
            median=quantile(ascending, 0.5),
            p95=quantile(ascending, 0.95),
            p99=quantile(ascending, 0.99),
            max=ascending[-1],
        )
