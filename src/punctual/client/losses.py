"""The losses that a training reports, and whether it may end."""

import os
from collections import deque
from math import isfinite
from statistics import median

from punctual.client.complaint import warn
from punctual.wire import GOAL_VARIABLE, N_LOSSES_MAX, Page

#: One low batch is no arrival: the middle of so many losses counts.
_N_ARRIVED = 3


class Losses:
    """Tells the page of each loss.

    Parameters
    ----------
    page
        None: nobody listens, and there is no goal.
    """

    def __init__(self, page: Page | None) -> None:
        self.goal_reached = False
        self._page = page
        self._goal = None if page is None else _goal()
        self._n_losses = page.losses()[0] if page is not None else 0
        self._latest: deque[tuple[int, float]] = deque(maxlen=N_LOSSES_MAX)

    def mute(self) -> None:
        """Say nothing from here on."""
        self._page = self._goal = None

    def report(self, n_steps: int, loss: float) -> None:
        """The training loss after `n_steps` steps; one that is no number is left out."""
        if self._page is None or not isfinite(loss):
            return
        self._latest.append((n_steps, loss))
        self._n_losses += 1
        self._page.publish_losses(self._n_losses, self._latest)
        if self._goal is not None and len(self._latest) >= _N_ARRIVED:
            last = [one for _, one in self._latest][-_N_ARRIVED:]
            self.goal_reached = self.goal_reached or median(last) <= self._goal


def _goal() -> float | None:
    text = os.environ.get(GOAL_VARIABLE)
    try:
        return float(text) if text else None
    except ValueError:
        warn(f"`{GOAL_VARIABLE}` must be a number", repr(text), "this training",
             'Training goes on to its last step; say it as `punctual run --until "loss<0.1"`.')  # fmt: skip
        return None
