"""Exact search among the few configurations that can still matter."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, inf

import numpy as np
from numpy.typing import NDArray

from punctual.solvers.solution import FloatArray, IntArray

#: Index of a job's best change at each difference in cost; small integers, because each job has such an array.
_PickArray = NDArray[np.int16]

#: Least number of changes, those that lose least, among which repeats are searched.
_N_SIFTED = 4096


@dataclass(frozen=True, slots=True, eq=False)
class CoreAnswer:
    """Result of one search.

    Attributes
    ----------
    choices
        Shape (n_jobs,): the best choice among those searched; None: none is better than the known one.
    least_missing
        Any other better choice misses at least that much of the bound; inf: no other exists.
    limited
        Whether the limit of work kept it from searching as many configurations as asked.
    """

    choices: IntArray | None
    least_missing: float
    limited: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _SingleChanges:
    """Changes of one job's configuration each, with the remaining possible gain.

    Attributes
    ----------
    flat
        Place in the table of job and new configuration.
    shifts
        Cost beyond that of the present configuration, in multiples of `unit`.
    losses
        Loss of each at the multiplier.
    unit
        Divides every shift.
    slack
        Unused capacity, in multiples of `unit`, rounded down.
    price
        The multiplier times `unit`.
    missing
        What a better choice may lose, or leave unused at that price, beyond what nobody can use.
    """

    flat: IntArray
    shifts: IntArray
    losses: FloatArray
    unit: int
    slack: int
    price: float
    missing: float

    def at(self, places: IntArray | slice) -> "_SingleChanges":
        return replace(self, flat=self.flat[places], shifts=self.shifts[places], losses=self.losses[places])

    def n_changed_max(self) -> int:
        """Return an upper bound of the jobs that a best choice with the fewest changes changes.

        No part of its changes adds up to a shift of zero, because without that part it would lose no more. So they
        can be put in an order in which their sums stay within the largest shift of the way from nothing to their
        total, and no sum comes twice.
        """
        furthest = max(self.slack, ceil(min(self.missing / self.price, 2**53)) - self.slack)
        return 2 * int(np.abs(self.shifts).max()) + furthest


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
        Capacity in the unit of `cost`.
    """

    def __init__(self, cost: FloatArray, loss: FloatArray, multiplier: float, base: IntArray, capacity: int) -> None:
        rows = np.arange(len(cost))
        self._loss, self._multiplier, self._base = loss, multiplier, base
        self._shift = cost - cost[rows, base][:, None]
        self._slack = round(capacity - float(cost[rows, base].sum()))

    def run(self, missing: float, n_wanted: int, n_states_max: int) -> CoreAnswer:
        """The best choice that misses less than `missing`, made of the `n_wanted` changes that lose least."""
        all_changes = self._that_matter(missing)
        if not len(all_changes.flat):
            return CoreAnswer(None, inf)
        n_changed_max = all_changes.n_changed_max()
        changes, sifted_out = self._sifted(all_changes, n_wanted, n_changed_max)
        n_asked = min(n_wanted, len(changes.flat))
        core = self._affordable(changes, n_asked, n_changed_max, n_states_max)
        n_taken = len(core.changes.flat)
        left_out = min(sifted_out, float(changes.losses[n_taken:].min(initial=inf)))
        return CoreAnswer(self._search(core), left_out + missing - changes.missing, limited=n_taken < n_asked)

    def _that_matter(self, missing: float) -> _SingleChanges:
        """The changes that lose less than is missing, after what no combination of them can use is taken off."""
        flat = np.flatnonzero((self._loss < missing) & (self._shift != 0))
        shifts, losses = self._shift.ravel()[flat].astype(np.int64), self._loss.ravel()[flat]
        changes = _SingleChanges(flat, shifts, losses, 1, self._slack, self._multiplier, missing)
        while len(changes.flat) and (unit := _common_divisor(changes.shifts)) > 1:
            unused = changes.price * (changes.slack % unit)
            changes = replace(
                changes,
                shifts=changes.shifts // unit,
                unit=changes.unit * unit,
                slack=changes.slack // unit,
                price=changes.price * unit,
                missing=changes.missing - unused,
            )
            changes = changes.at(np.flatnonzero(changes.losses < changes.missing))
        return changes

    def _sifted(self, changes: _SingleChanges, n_wanted: int, n_changed_max: int) -> tuple[_SingleChanges, float]:
        """Return the changes that lose least, without repeats, and the least loss among those left out.

        If at most m jobs are changed, only the m changes of least loss are needed among those of equal shift: instead
        of a later one, one of these has a job that is not changed yet.
        """
        n_sifted = max(_N_SIFTED, 4 * n_wanted)
        beyond = inf
        if len(changes.flat) > n_sifted:
            order = np.argpartition(changes.losses, n_sifted)
            beyond = float(changes.losses[order[n_sifted]])
            changes = changes.at(np.sort(order[:n_sifted]))
        changes = changes.at(np.argsort(changes.losses, kind="stable"))
        if len(changes.flat) <= n_wanted:
            return changes, beyond
        changes = changes.at(self._first_of_job_and_shift(changes))
        ranks = _ranks(changes.shifts)
        needed = np.flatnonzero(ranks < n_changed_max)
        # Among equal losses, each shift has its turn.
        # Losses that differ by less than this share of what is missing count as equal where it is only about the
        # order.
        coarse = np.round(changes.losses[needed] / (1e-6 * changes.missing))
        return changes.at(needed[np.lexsort((ranks[needed], coarse))]), beyond

    def _first_of_job_and_shift(self, changes: _SingleChanges) -> IntArray:
        jobs = changes.flat // self._loss.shape[1]
        least = int(changes.shifts.min())
        keys = jobs * (int(changes.shifts.max()) - least + 1) + changes.shifts - least
        return np.sort(np.unique(keys, return_index=True)[1])

    def _affordable(self, changes: _SingleChanges, n_asked: int, n_changed_max: int, n_states_max: int) -> "_Core":
        """Return a core of as many of the first changes as asked, or as the limit of work allows."""
        core = self._core(changes.at(slice(n_asked)), n_changed_max)
        while n_asked and n_asked * (core.last - core.first + 1) > n_states_max:
            n_asked //= 2
            core = self._core(changes.at(slice(n_asked)), n_changed_max)
        return core

    def _core(self, changes: _SingleChanges, n_changed_max: int) -> "_Core":
        changes = changes.at(np.argsort(changes.flat, kind="stable"))
        begins = np.flatnonzero(np.diff(changes.flat // self._loss.shape[1], prepend=-1))
        down = _sum_of_largest(-np.minimum.reduceat(changes.shifts, begins), n_changed_max)
        up = _sum_of_largest(np.maximum.reduceat(changes.shifts, begins), n_changed_max)
        # Leaving more than missing/price unused costs more than `missing`, so the end lies within this of slack.
        unused = min(changes.missing / changes.price, float(changes.slack + down + up))
        first = max(-down, floor(changes.slack - unused) - up)
        return _Core(changes, begins, first, min(up, changes.slack + down))

    def _search(self, core: "_Core") -> IntArray | None:
        changes, first, last = core.changes, core.first, core.last
        if not first <= 0 <= last:
            return None
        width = last - first + 1
        margin = int(np.abs(changes.shifts).max(initial=0, where=np.abs(changes.shifts) < width))
        # Margins of inf on both sides make every shifted copy a plain slice.
        buffer = np.full(width + 2 * margin, inf)
        losses = buffer[margin : margin + width]
        losses[-first] = 0.0
        groups = core.groups()
        picks = [_step(buffer, margin, changes, group) for group in groups]
        differences = np.arange(first, last + 1)
        totals = np.where(differences <= changes.slack, losses + changes.price * (changes.slack - differences), inf)
        end = int(totals.argmin())
        return self._walk_back(changes, groups, picks, end) if totals[end] < changes.missing else None

    def _walk_back(self, changes: _SingleChanges, groups: list[slice], picks: list[_PickArray], end: int) -> IntArray:
        choices = self._base.copy()
        for group, pick in zip(reversed(groups), reversed(picks), strict=True):
            if pick[end] >= 0:
                i = group.start + int(pick[end])
                job, column = divmod(int(changes.flat[i]), self._loss.shape[1])
                choices[job] = column
                end -= int(changes.shifts[i])
        return choices


@dataclass(frozen=True, slots=True, eq=False)
class _Core:
    """Changes under search, job by job.

    Attributes
    ----------
    begins
        Start of each job's changes.
    first, last
        The differences in cost that can be passed on the way to one that fits and leaves little unused.
    """

    changes: _SingleChanges
    begins: IntArray
    first: int
    last: int

    def groups(self) -> list[slice]:
        """Slices of the changes, one for each job."""
        return [slice(*ends) for ends in pairwise([*self.begins.tolist(), len(self.changes.flat)])]


def _sum_of_largest(numbers: IntArray, n: int) -> int:
    """Return the sum of the `n` largest numbers, negative ones left out."""
    return int(np.sort(np.maximum(numbers, 0))[::-1][:n].sum())


def _step(buffer: FloatArray, margin: int, changes: _SingleChanges, group: slice) -> _PickArray:
    """Let one job change its configuration. Returns the best change at each difference in cost, -1: none."""
    width = len(buffer) - 2 * margin
    losses = buffer[margin : margin + width]
    best, pick = losses.copy(), np.full(width, -1, dtype=np.int16)
    shifts_and_losses = zip(changes.shifts[group].tolist(), changes.losses[group].tolist(), strict=True)
    for i, (shift, loss) in enumerate(shifts_and_losses):
        if abs(shift) >= width:  # it leads beyond the differences that are searched, wherever it is made
            continue
        changed = buffer[margin - shift : margin - shift + width] + loss
        np.copyto(pick, i, where=changed < best)
        np.minimum(best, changed, out=best)
    losses[:] = best
    return pick


def _common_divisor(shifts: IntArray) -> int:
    # Nearly always the first few already have none but 1.
    divisor = int(np.gcd.reduce(shifts[:64]))
    return divisor if divisor == 1 else int(np.gcd.reduce(shifts))


def _ranks(shifts: IntArray) -> IntArray:
    """Return for each element the number of equal ones before it."""
    order = np.argsort(shifts, kind="stable")
    ordered = shifts[order]
    places = np.arange(len(shifts))
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    ranks = np.empty(len(shifts), dtype=np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks
