"""Utility of an early end of a job."""

from dataclasses import dataclass
from math import exp, isfinite

from punctual.core.errors import check_above_zero, check_not_negative

#: Beyond this the exponential is written as 0 or as infinite anyway.
_EXPONENT_MAX = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmoid:
    """A utility that falls from `height` to nothing as the completion time grows.

    Parameters
    ----------
    height
        Utility of a job that ends at once, nearly; above zero. In a unit of the user's, the same for all jobs.
    steepness_per_s
        Steepness of the fall, per second; 0: half the height whenever the job ends.
    middle_s
        Completion time at which half of the height is left, in seconds since submission.

    Raises
    ------
    InvalidSpec
        A number is not finite, or outside of its range.

    Notes
    -----
    *Formula.* height / (1 + e^(steepness_per_s · (t − middle_s))).

    *Source.* [smd2021], μ(π) with γ1, γ2, γ3.

    Examples
    --------
    >>> Sigmoid(height=80.0, steepness_per_s=0.01, middle_s=3600.0).at_s(3600.0)
    40.0
    """

    height: float
    steepness_per_s: float
    middle_s: float

    def __post_init__(self) -> None:
        where = "the utility of a job"
        check_above_zero(where, height=self.height)
        check_not_negative(where, steepness_per_s=self.steepness_per_s, middle_s=self.middle_s)

    def at_s(self, completion_s: float) -> float:
        """Return the utility of a job that ends `completion_s` seconds after its submission; 0 if it never does."""
        exponent = self.steepness_per_s * (completion_s - self.middle_s) if isfinite(completion_s) else _EXPONENT_MAX
        return self.height / (1.0 + exp(exponent)) if exponent < _EXPONENT_MAX else 0.0
