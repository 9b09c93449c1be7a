"""Exact search among the few configurations that can still matter."""

from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from punctual.optim.solution import FloatArray, IntArray

#: Which of a job's changes is best, at each difference in cost; there is one such array per job, so it is small.
_PickArray = NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class CoreAnswer:
    """What one search found.

    Attributes
    ----------
    choices
        Shape (n_jobs,): the best choice among those looked at; None: none is better than the one known.
    least_left_out
        The smallest loss of a configuration that could have mattered and was not looked at; inf: all were.
    limited
        Whether the limit of work kept it from looking at as many as asked.
    """

    choices: IntArray | None
    least_left_out: float
    limited: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Configurations looked at, sorted by job: which, what they cost beyond the job's present one, what they lose."""

    jobs: IntArray
    configurations: IntArray
    shifts: IntArray
    losses: FloatArray

    def groups(self) -> list[slice]:
        """One slice per job."""
        cuts = np.flatnonzero(np.diff(self.jobs)) + 1
        ends = [0, *cuts.tolist(), len(self.jobs)]
        return [slice(begin, end) for begin, end in pairwise(ends) if end > begin]


class CoreSearch:
    """Dynamic programming over the difference in cost from a choice that loses nothing at the multiplier.

    Parameters
    ----------
    cost, loss
        Shape (n_jobs, n_configurations); a loss of inf: forbidden.
    multiplier
        The one that `loss` belongs to, above zero.
    base
        Shape (n_jobs,): a choice that fits.
    capacity
        In the unit of `cost`.
    """

    def __init__(self, cost: FloatArray, loss: FloatArray, multiplier: float, base: IntArray, capacity: int) -> None:
        rows = np.arange(len(cost))
        self._loss, self._multiplier, self._base = loss, multiplier, base
        self._shift = cost - cost[rows, base][:, None]
        self._slack = round(capacity - float(cost[rows, base].sum()))

    def run(self, missing: float, n_candidates: int, n_states_max: int) -> CoreAnswer:
        """The best choice that loses less than `missing`, made of the `n_candidates` configurations that lose least."""
        could_matter = np.flatnonzero((self._loss < missing) & (self._shift != 0))
        losses = self._loss.ravel()[could_matter]
        order = np.argsort(losses, kind="stable")
        n_taken = self._n_affordable(could_matter[order], missing, min(n_candidates, len(order)), n_states_max)
        left_out = float(losses[order[n_taken]]) if n_taken < len(order) else inf
        choices = self._search(self._candidates(could_matter[order[:n_taken]]), missing)
        return CoreAnswer(choices, left_out, limited=n_taken < min(n_candidates, len(order)))

    def _n_affordable(self, ordered: IntArray, missing: float, n_wanted: int, n_states_max: int) -> int:
        while n_wanted:
            first, last = self._window(self._candidates(ordered[:n_wanted]), missing)
            if n_wanted * (last - first + 1) <= n_states_max:
                break
            n_wanted //= 2
        return n_wanted

    def _candidates(self, flat: IntArray) -> _Candidates:
        flat = np.sort(flat)
        jobs, configurations = np.divmod(flat, self._loss.shape[1])
        shifts = self._shift.ravel()[flat].astype(np.int64)
        return _Candidates(jobs, configurations, shifts, self._loss.ravel()[flat])

    def _window(self, candidates: _Candidates, missing: float) -> tuple[int, int]:
        """The differences in cost that can be passed on the way to one that fits and leaves little unused."""
        down = up = 0
        for group in candidates.groups():
            down -= min(0, int(candidates.shifts[group].min()))
            up += max(0, int(candidates.shifts[group].max()))
        # To leave more than missing/multiplier unused costs more than `missing`, so the end lies within this of slack.
        unused = min(missing, self._multiplier * (self._slack + down + up)) / self._multiplier
        return max(-down, int(np.floor(self._slack - unused)) - up), min(up, self._slack + down)

    def _search(self, candidates: _Candidates, missing: float) -> IntArray | None:
        first, last = self._window(candidates, missing)
        if last < first or not first <= 0 <= last:
            return None
        width = last - first + 1
        margin = int(np.abs(candidates.shifts).max(initial=0))
        # With margins of inf on both sides every shifted copy is a plain slice.
        buffer = np.full(width + 2 * margin, inf)
        losses = buffer[margin : margin + width]
        losses[-first] = 0.0
        groups = candidates.groups()
        picks = [_step(buffer, margin, candidates, group) for group in groups]
        differences = np.arange(first, last + 1)
        totals = np.where(differences <= self._slack, losses + self._multiplier * (self._slack - differences), inf)
        end = int(totals.argmin())
        return self._walk_back(candidates, groups, picks, end) if totals[end] < missing else None

    def _walk_back(self, candidates: _Candidates, groups: list[slice], picks: list[_PickArray], end: int) -> IntArray:
        choices = self._base.copy()
        for group, pick in zip(reversed(groups), reversed(picks), strict=True):
            if pick[end] >= 0:
                i = group.start + int(pick[end])
                choices[candidates.jobs[i]] = candidates.configurations[i]
                end -= int(candidates.shifts[i])
        return choices


def _step(buffer: FloatArray, margin: int, candidates: _Candidates, group: slice) -> _PickArray:
    """Let one job change its configuration; which change is best at each difference in cost, -1: none."""
    width = len(buffer) - 2 * margin
    losses = buffer[margin : margin + width]
    options = sliding_window_view(buffer, width)[margin - candidates.shifts[group]] + candidates.losses[group, None]
    best = options.argmin(axis=0)
    changed = options[best, np.arange(width)]
    pick = np.where(changed < losses, best, -1).astype(np.int16)
    np.minimum(losses, changed, out=losses)
    return pick
