"""Losses of a job that trains to a goal, the goal itself, and the expected steps to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Literal

from punctual.core.errors import InvalidSpec, check_above_zero

#: *ok*: an estimate; *too-few-points*: nothing to fit; *never*: the goal most probably lies below what the job will
#: reach; *failed*: the losses seen admit no fit.
StepsLeftStatus = Literal["ok", "too-few-points", "never", "failed"]


@dataclass(frozen=True, slots=True)
class SeenLoss:
    """The training loss after `steps` steps."""

    steps: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGoal:
    """Goal of a training: a loss to reach, or an epoch that lowers the loss by too little.

    Attributes
    ----------
    target
        The loss to reach.
    drop
        The job ends when the loss falls by less than this in an epoch, for `n_epochs` epochs in a row.
    epoch_steps
        Steps of an epoch.

    Raises
    ------
    InvalidSpec
        Not exactly one of `target` and `drop` is given, or a number is out of range.
    """

    target: float | None = None
    drop: float | None = None
    epoch_steps: float = 1.0
    n_epochs: int = 1

    def __post_init__(self) -> None:
        if (self.target is None) == (self.drop is None):
            raise InvalidSpec(
                "exactly one of `target` and `drop` must be given", f"{self.target} and {self.drop}", "a loss goal",
                "Say at which loss the job ends, or below which drop per epoch.",
            )  # fmt: skip
        drop = 1.0 if self.drop is None else self.drop
        check_above_zero("a loss goal", drop=drop, epoch_steps=self.epoch_steps, n_epochs=self.n_epochs)


@dataclass(frozen=True, slots=True)
class StepsLeft:
    """Steps expected until a goal, and the interval that holds the number in 80 of 100 cases; infinite if unknown."""

    expected: float
    least: float
    most: float
    status: StepsLeftStatus


@dataclass(frozen=True, slots=True)
class LossCurve:
    """A job's course to its goal: a convergence model, its state, and the expected remaining steps.

    Attributes
    ----------
    state
        The model's.
    at_steps
        Steps of the last loss seen, from which `left` counts.
    """

    model: Any
    goal: LossGoal
    state: Any
    at_steps: float = 0.0
    left: StepsLeft = StepsLeft(inf, 0.0, inf, "too-few-points")

    def after(self, losses: Sequence[SeenLoss]) -> "LossCurve":
        """Return the curve with more losses, in order of steps."""
        state = self.state
        for seen in losses:
            state = self.model.update(state, seen)
        at_steps = losses[-1].steps if losses else self.at_steps
        return replace(self, state=state, at_steps=at_steps, left=self.model.steps_left(state, self.goal))

    def steps_total(self, most_steps: float | None) -> tuple[float | None, float]:
        """Steps that the job is expected to take in all, and their standard deviation.

        Parameters
        ----------
        most_steps
            Steps after which it ends in any case; None: no limit. Expected as long as nothing is known of the goal.
        """
        if self.left.status != "ok":
            return most_steps, 0.0
        limit = inf if most_steps is None else max(0.0, most_steps - self.at_steps)
        least, expected, most = (min(limit, one) for one in (self.left.least, self.left.expected, self.left.most))
        if not isfinite(expected):
            return None, 0.0
        # An interval that holds 80 of 100 is 1.2816 standard deviations wide to either side.
        return self.at_steps + expected, ((most if isfinite(most) else 2 * expected) - least) / (2 * 1.2816)
