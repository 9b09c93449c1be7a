"""Free devices over spans of time of different lengths, taken by one job after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from punctual.core.errors import InvalidSpec
from punctual.optim.solution import FloatArray, IntArray

#: Work left below this share of a job's work is rounding, not work.
_TOLERANCE_FRAC = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The amounts of devices that one job can hold, and how fast it is with each.

    Attributes
    ----------
    amounts, rates
        Shape (m,), devices, ascending, the first 0; work per second, the first 0, none falling.
    steps
        Shape (S + 1,), the columns on the upper concave hull of the rates, those on its straight parts included; the
        first is 0.
    """

    amounts: IntArray
    rates: FloatArray
    steps: IntArray

    @classmethod
    def of(cls, amounts: Sequence[int], rates: Sequence[float]) -> "Ladder":
        """The ladder of `amounts` above zero, ascending; an amount that is not faster than a smaller one is left out.

        Examples
        --------
        >>> Ladder.of([1, 2, 3, 4], [1.0, 2.0, 2.1, 3.0]).steps.tolist()
        [0, 1, 2, 4]
        """
        pairs = [(0, 0.0)]
        for amount, rate in zip(amounts, rates, strict=True):
            if rate > pairs[-1][1]:
                pairs.append((amount, rate))
        return cls(
            np.array([amount for amount, _ in pairs], dtype=np.int64),
            np.array([rate for _, rate in pairs]),
            np.array(_hull(pairs), dtype=np.int64),
        )

    def slower(self, factor: float) -> "Ladder":
        """The same at `factor` times the rates."""
        return Ladder(self.amounts, self.rates * factor, self.steps)


class Spans:
    """Devices that are free in consecutive spans of time; jobs take what they need to be done in time.

    Spans end where deadlines lie: a hundred jobs with deadlines between minutes and weeks need a hundred spans, not ten
    thousand slots of one length.

    Parameters
    ----------
    ends_s
        Shape (T,), seconds from now to the end of each span, ascending.
    n_devices
        Free in every span.

    Raises
    ------
    InvalidSpec
        The ends do not ascend, or the first is not above zero.

    Notes
    -----
    *Symbols.* τ_t length of span t, F_t devices free in it, r(c) rate with c devices, W work.

    *Formula.* A job takes in span t the best amount of the first s steps of its hull that F_t allows, for the least s
    with Σ_t τ_t r(·) ≥ W; then, from the last span on, spans go back to step s − 1, and one at last to the least amount
    with which the work is just done. Up to this last rounding and to what lies under the hull that is the least number
    of device-seconds. With `late`, the spans that go back are the first ones.

    *Properties.* Deterministic, O(S T) for a job.

    Examples
    --------
    >>> spans = Spans([10.0, 20.0], 4)
    >>> spans.least(Ladder.of([1, 2], [1.0, 1.5]), work=16.0, until_s=20.0).tolist()
    [1, 1]
    """

    def __init__(self, ends_s: Sequence[float], n_devices: int) -> None:
        self.ends_s = np.asarray(ends_s, dtype=np.float64)
        self.lengths_s = np.diff(self.ends_s, prepend=0.0)
        if not (self.lengths_s > 0).all():
            raise InvalidSpec("ends of spans must ascend from zero", f"{self.ends_s} s", "spans of time", "Sort them.")
        self.free = np.full(len(self.ends_s), n_devices, dtype=np.int64)

    def take(self, amounts: IntArray) -> None:
        """Take `amounts`, shape (T,) or the first of it, out of what is free; negative ones are given back."""
        self.free[: len(amounts)] -= amounts

    def least(self, ladder: Ladder, work: float, until_s: float, *, late: bool = False) -> IntArray | None:
        """What the job takes in each span before `until_s`; None if its work cannot be done. Nothing is taken yet."""
        n_spans = int(np.searchsorted(self.ends_s, until_s * (1 + _TOLERANCE_FRAC), side="right"))
        lengths_s = self.lengths_s[:n_spans]
        caps = np.searchsorted(ladder.amounts, self.free[:n_spans], side="right") - 1
        goal = work * (1 - _TOLERANCE_FRAC)
        below = np.searchsorted(ladder.steps, caps, side="right") - 1
        levels = ladder.steps[np.minimum(np.arange(len(ladder.steps))[:, None], below)]
        done = ladder.rates[levels] @ lengths_s
        i_enough = int(np.searchsorted(done, goal))
        if i_enough == 0:
            return np.zeros(n_spans, dtype=np.int64)
        if i_enough == len(done):
            columns = self._all(ladder, caps, lengths_s, goal)
            if columns is None:
                return None
            low = levels[-1]
        else:
            columns, low = levels[i_enough].copy(), levels[i_enough - 1]
        return ladder.amounts[_lowered(ladder, columns, low, lengths_s, goal, late=late)]

    @staticmethod
    def _all(ladder: Ladder, caps: IntArray, lengths_s: FloatArray, goal: float) -> IntArray | None:
        """Everything that is free, also between steps of the hull, if that is enough."""
        return caps.copy() if float(ladder.rates[caps] @ lengths_s) >= goal else None


def _lowered(
    ladder: Ladder, columns: IntArray, low: IntArray, lengths_s: FloatArray, goal: float, *, late: bool
) -> IntArray:
    """`columns` with as many spans at `low` as the goal allows, the last ones or the first, and one just as needed."""
    rates = ladder.rates
    saved = (rates[columns] - rates[low]) * lengths_s
    surplus = float(rates[columns] @ lengths_s) - goal
    order = np.arange(len(columns)) if late else np.arange(len(columns))[::-1]
    n_whole = int(np.searchsorted(np.cumsum(saved[order]), surplus, side="right"))
    whole = order[:n_whole]
    columns[whole] = low[whole]
    if n_whole < len(order):
        t = order[n_whole]
        surplus -= float(saved[whole].sum())
        columns[t] = np.searchsorted(rates, rates[columns[t]] - surplus / lengths_s[t])
    return columns


def _hull(pairs: Sequence[tuple[int, float]]) -> list[int]:
    """Indices of the points on the upper concave hull."""
    hull: list[int] = []
    for i, (x, y) in enumerate(pairs):
        while len(hull) > 1 and _is_under(pairs[hull[-2]], pairs[hull[-1]], (x, y)):
            hull.pop()
        hull.append(i)
    return hull


def _is_under(left: tuple[int, float], middle: tuple[int, float], right: tuple[int, float]) -> bool:
    """Whether the middle point lies under the line through the others, by more than rounding."""
    (x0, y0), (x1, y1), (x2, y2) = left, middle, right
    return (y1 - y0) * (x2 - x0) < (y2 - y0) * (x1 - x0) * (1 - 1e-12)
