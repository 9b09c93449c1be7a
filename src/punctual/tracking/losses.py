"""Losses that a training reports, and the test for its goal."""

import os
from collections import deque
from collections.abc import Sequence
from math import isfinite
from statistics import median
from typing import Any

from punctual.channel import GOAL_VARIABLE, N_LOSSES_MAX, SharedBlock
from punctual.tracking.complaint import warn

#: Number of losses whose middle counts: one low batch is no arrival.
N_ARRIVED = 3


def goal() -> float | None:
    """Loss at which the training may end; None: there is none."""
    text = os.environ.get(GOAL_VARIABLE)
    try:
        return float(text) if text else None
    except ValueError:
        warn(f"`{GOAL_VARIABLE}` must be a number", repr(text), "this training",
             'Training goes on to its last step; say it as `punctual run --until "loss<0.1"`.')  # fmt: skip
        return None


def number(loss: Any) -> float:
    """Convert a loss, a number or a tensor of one, to a number."""
    return float(loss.detach() if hasattr(loss, "detach") else loss)  # torch warns of one that has a gradient


def has_arrived(losses: Sequence[float], target: float | None) -> bool:
    """Whether `losses`, the latest one last, have come down to `target`; None: there is no target."""
    last = losses[-N_ARRIVED:]
    return target is not None and len(last) == N_ARRIVED and median(last) <= target


class Losses:
    """Reports each loss to the page. `target`: loss at which the training may end; None: there is none."""

    def __init__(self, page: SharedBlock, target: float | None) -> None:
        self.goal_reached = False
        self._page = page
        self._target = target
        # Another process of the job may have reported before this one.
        self._n_losses, latest = page.losses()
        self._latest = deque(latest, maxlen=N_LOSSES_MAX)

    def report(self, n_steps: int, loss: float) -> None:
        """Report the training loss after `n_steps` steps; one that is no number is left out."""
        if isfinite(loss):
            self._latest.append((n_steps, loss))
            self._n_losses += 1
            self._page.publish_losses(self._n_losses, self._latest)
            self.goal_reached |= has_arrived([number for _, number in self._latest], self._target)
