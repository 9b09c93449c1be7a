"""What is measured of a job's loss, when a job that trains to a loss has ended, and what is expected of that."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from punctual.core.errors import InvalidSpec

#: *ok*: an estimate; *too-few-points*: nothing to fit; *never*: the goal most probably lies below what the job will
#: reach; *failed*: the losses seen admit no fit.
StepsLeftStatus = Literal["ok", "too-few-points", "never", "failed"]


@dataclass(frozen=True, slots=True)
class SeenLoss:
    """The training loss after so many steps."""

    steps: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGoal:
    """When a job has ended: at a loss, or when an epoch no longer lowers it by much.

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
        amounts = (self.drop if self.target is None else 1.0, self.epoch_steps, self.n_epochs)
        if not all(one is not None and isfinite(one) and one > 0 for one in amounts):
            raise InvalidSpec(
                "`drop`, `epoch_steps` and `n_epochs` must be finite and above zero", str(amounts), "a loss goal",
                "Give positive numbers.",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepsLeft:
    """Steps expected until a goal, and the interval that holds the number in 80 of 100 cases; infinite if unknown."""

    expected: float
    least: float
    most: float
    status: StepsLeftStatus
