"""A solver's answer with its certificate."""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual.core.plan import PlanStatus

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: A bound this close to the value, relatively, differs from it by rounding only.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """A choice and how far it can be from the best one. All solvers maximise.

    Attributes
    ----------
    status
        *optimal*: proven best up to rounding; *feasible*: proven to lie within the gap that was asked for; *partial*:
        valid, but a limit was reached before that was proven; *infeasible*: nothing valid was found, and if `bound` is
        -inf, nothing valid exists.
    choices
        Shape (n_jobs,): the configuration of each job; of a general programme: the value of each variable. Empty if
        infeasible.
    value
        Value of `choices`; -inf if infeasible.
    bound
        No valid choice has a larger value.
    multipliers
        Shape (n_resources,): value of one more unit of each resource. Empty where the solver has none.
    n_rounds
        Number of steps of the search, to compare runs.
    """

    status: PlanStatus
    choices: NDArray[Any]
    value: float
    bound: float
    multipliers: FloatArray
    n_rounds: int = 0

    @classmethod
    def of(
        cls,
        choices: NDArray[Any],
        value: float,
        bound: float,
        gap_limit: float = 0.0,
        multipliers: ArrayLike = (),
        n_rounds: int = 0,
    ) -> "Solution":
        """Return a valid choice with the status that follows from its bound."""
        return cls(
            status=status_of(value, bound, gap_limit),
            choices=choices,
            value=value,
            bound=max(bound, value),
            multipliers=np.asarray(multipliers, dtype=np.float64),
            n_rounds=n_rounds,
        )

    @property
    def gap(self) -> float:
        """(bound − value) / |value|: no valid choice is better than this one by more than that share of its value."""
        return relative_gap(self.value, self.bound)


def relative_gap(value: float, bound: float) -> float:
    """Return (bound − value) / |value|; 0 within rounding, infinite if there is no value or it is zero.

    Examples
    --------
    >>> relative_gap(8.0, 9.0)
    0.125
    """
    if value == -inf:
        return inf
    difference = bound - value
    if difference <= ROUNDING * max(abs(bound), abs(value)):
        return 0.0
    return difference / abs(value) if value else inf


def status_of(value: float, bound: float, gap_limit: float) -> PlanStatus:
    """The status of a valid choice."""
    gap = relative_gap(value, bound)
    if gap == 0:
        return "optimal"
    return "feasible" if gap <= gap_limit else "partial"


def infeasible(bound: float = -inf, n_rounds: int = 0) -> Solution:
    """Return the answer without a valid choice; with `bound` -inf none exists."""
    return Solution(
        status="infeasible",
        choices=np.empty(0, dtype=np.int64),
        value=-inf,
        bound=bound,
        multipliers=np.empty(0),
        n_rounds=n_rounds,
    )
