"""Filling a profile of free devices with one job after the other, each as cheaply as it goes."""

from dataclasses import dataclass

import numpy as np

from punctual.solvers.solution import FloatArray, IntArray
from slots.hull import upper_hulls
from slots.problem import WORK_TOLERANCE_FRAC, SlotProblem

#: Steps of the hull that a job's water is poured over. More are hardly better: what is left after the last whole step
#: is made up by the best single change to any allowed count.
N_STEPS_MAX = 12


@dataclass(frozen=True, slots=True, eq=False)
class _Ladder:
    """Facts about one job before anything is placed. Columns are those of the rate table.

    `best_rates[k]` is the best rate with at most `counts[k]` devices, `best_columns[k]` the least count that has it;
    `steps_below[k]` says how many steps of the hull fit within `counts[k]`.
    """

    work: float
    tolerance: float
    rates: FloatArray
    best_rates: FloatArray
    best_columns: IntArray
    steps_below: IntArray
    columns: IntArray
    devices_per_work: FloatArray
    step_rates: FloatArray


class Filling:
    """Devices of each job in each slot, and the free ones.

    Parameters
    ----------
    problem
        Jobs and free devices.

    Attributes
    ----------
    free
        Shape (T,), devices left in each slot.
    placed
        Job -> columns of the rate table, one for each slot from the first to the last before its end.
    is_placed
        Shape (n,), whether a job is one of `placed`.
    n_plans
        How many plans were made: the measure of work.
    """

    def __init__(self, problem: SlotProblem) -> None:
        self.problem = problem
        self.free = problem.free.copy()
        self.placed: dict[int, IntArray] = {}
        self.n_plans = 0
        self.is_placed = np.zeros(problem.n_jobs, dtype=bool)
        self._counts = problem.counts
        self._ends: list[int] = problem.ends.tolist()
        self._ladders = _ladders(problem)
        # Of equally dear slots the later one is taken: only jobs with later deadlines compete for it.
        self._lateness = 1.0 + 1e-4 * np.linspace(1.0, 0.0, problem.n_slots)
        # The column of the largest count that fits within 0, 1, 2, ... devices.
        self._column_within = np.searchsorted(self._counts, np.arange(self._counts[-1] + 1), side="right") - 1
        self.caps = self._caps(self.free)

    def restart(self) -> None:
        """Take all jobs out."""
        self.free = self.problem.free.copy()
        self.caps = self._caps(self.free)
        self.placed = {}
        self.is_placed[:] = False

    def fits(self, job: int, end: int | None = None) -> bool:
        """Whether the job's work could be done before `end` with all that is free."""
        ladder = self._ladders[job]
        caps = self.caps[: self._ends[job] if end is None else end]
        return bool(ladder.best_rates.take(caps).sum() >= ladder.work - ladder.tolerance)

    def place(self, job: int, prices: FloatArray, end: int | None = None, most: float = np.inf) -> bool:
        """Place the job before `end` (its deadline) at the least price; False if it does not fit or costs over `most`."""
        end = self._ends[job] if end is None else end
        if not self.fits(job, end):
            return False
        self.n_plans += 1
        chosen = _cheapest(self._ladders[job], self._counts, self.caps[:end], prices[:end] * self._lateness[:end])
        if most < np.inf and self._counts[chosen] @ prices[:end] > most:
            return False
        self.hold(job, chosen)
        return True

    def least_share(self, job: int) -> IntArray | None:
        """Columns of the least share with which the job is on time, from its end backwards; None if there is none."""
        ladder, caps = self._ladders[job], self.caps[: self._ends[job]]
        shares = np.minimum(np.arange(len(self._counts))[:, None], caps)
        done = ladder.best_rates[shares][:, ::-1].cumsum(axis=1)
        enough = done >= ladder.work - ladder.tolerance
        if ladder.work <= 0:
            return np.zeros(len(caps), dtype=np.int64)
        if not enough.any():
            return None
        share = int(enough.any(axis=1).argmax())
        first = len(caps) - 1 - int(enough[share].argmax())
        return np.where(np.arange(len(caps)) >= first, ladder.best_columns[shares[share]], 0)

    def hold(self, job: int, columns: IntArray) -> None:
        """Place the job with these columns, which must fit."""
        self.placed[job] = columns
        self.is_placed[job] = True
        self._change(len(columns), -self._counts[columns])

    def remove(self, job: int) -> IntArray:
        """Take the job out; returns its columns."""
        columns = self.placed.pop(job)
        self.is_placed[job] = False
        self._change(len(columns), self._counts[columns])
        return columns

    def cost(self, job: int, prices: FloatArray) -> float:
        """Price of what the placed job holds."""
        columns = self.placed[job]
        return float(self._counts[columns] @ prices[: len(columns)])

    def left_out(self) -> IntArray:
        """Jobs that are not placed, in order."""
        return np.flatnonzero(~self.is_placed)

    def counts(self) -> IntArray:
        """Devices held, shape (n, T)."""
        held = np.zeros((self.problem.n_jobs, self.problem.n_slots), dtype=np.int64)
        for job, columns in self.placed.items():
            held[job, : len(columns)] = self._counts[columns]
        return held

    def _change(self, end: int, devices: IntArray) -> None:
        self.free[:end] += devices
        self.caps[:end] = self._caps(self.free[:end])

    def _caps(self, free: IntArray) -> IntArray:
        return self._column_within.take(free, mode="clip")


def _ladders(problem: SlotProblem) -> list[_Ladder]:
    hulls = upper_hulls(problem.counts, problem.rates, N_STEPS_MAX)
    best = np.maximum.accumulate(problem.rates, axis=1)
    grows = np.diff(best, axis=1, prepend=-1.0) > 0
    best_columns = np.maximum.accumulate(np.where(grows, np.arange(best.shape[1]), 0), axis=1)
    per_work = np.divide(hulls.step_counts, hulls.step_rates, out=np.zeros_like(hulls.step_rates), where=hulls.step_rates > 0)  # fmt: skip
    # Half of it: the other half is for sums in another order.
    tolerances = problem.work * (WORK_TOLERANCE_FRAC / 2)
    ladders = []
    for i, n_steps in enumerate(hulls.n_steps.tolist()):
        columns = hulls.columns[i, : n_steps + 1]
        below = np.searchsorted(columns, np.arange(len(problem.counts)), side="right") - 1
        ladders.append(
            _Ladder(
                work=float(problem.work[i]),
                tolerance=float(tolerances[i]),
                rates=problem.rates[i],
                best_rates=best[i],
                best_columns=best_columns[i],
                steps_below=below,
                columns=columns,
                devices_per_work=per_work[i, :n_steps, None],
                step_rates=hulls.step_rates[i, :n_steps],
            )
        )
    return ladders


def _cheapest(ladder: _Ladder, counts: IntArray, caps: IntArray, prices: FloatArray) -> IntArray:
    """Columns for each slot that do the job's work at a small price; it can be done within `caps`."""
    if ladder.work <= 0:
        return np.zeros(len(caps), dtype=np.int64)
    chosen, missing = _poured(ladder, caps, prices)
    if missing > ladder.tolerance:
        chosen, surplus = _made_up(ladder, counts, chosen, caps, prices, missing)
    else:
        surplus = -missing
    return _trimmed(ladder, counts, chosen, prices, surplus)


def _poured(ladder: _Ladder, caps: IntArray, prices: FloatArray) -> tuple[IntArray, float]:
    """All steps that fit whole, cheapest per work first, and the work that is then missing."""
    n_slots, n_steps = len(caps), len(ladder.step_rates)
    if n_steps == 0:
        return np.zeros(n_slots, dtype=np.int64), ladder.work
    fits = np.arange(n_steps)[:, None] < ladder.steps_below[caps]
    steps, slots = fits.nonzero()
    # Stable, and a step of a slot lies before its next one: of equal keys, too, a lower step comes first.
    order = (ladder.devices_per_work * prices)[fits].argsort(kind="stable")
    done = ladder.step_rates[steps[order]].cumsum()
    n_whole = int(done.searchsorted(ladder.work + ladder.tolerance, side="right"))
    levels = np.bincount(slots[order[:n_whole]], minlength=n_slots)
    return ladder.columns[levels], ladder.work - (float(done[n_whole - 1]) if n_whole else 0.0)


def _made_up(
    ladder: _Ladder, counts: IntArray, chosen: IntArray, caps: IntArray, prices: FloatArray, missing: float
) -> tuple[IntArray, float]:
    """The missing work done by the cheapest change of one slot, and the work done beyond."""
    goal = ladder.rates[chosen] + (missing - ladder.tolerance)
    raised = ladder.best_rates.searchsorted(goal)
    possible = raised <= caps
    if not possible.any():
        chosen = ladder.best_columns[caps]
        return chosen, float(ladder.rates[chosen].sum()) - ladder.work
    extra = np.where(possible, prices * (counts[np.minimum(raised, caps)] - counts[chosen]), np.inf)
    slot = int(extra.argmin())
    surplus = float(ladder.rates[raised[slot]] - ladder.rates[chosen[slot]]) - missing
    chosen[slot] = raised[slot]
    return chosen, surplus


def _trimmed(ladder: _Ladder, counts: IntArray, chosen: IntArray, prices: FloatArray, surplus: float) -> IntArray:
    """Less in one slot after the other, dearest saving first, as long as the work is done."""
    while surplus >= 0:
        lowered = ladder.best_rates.searchsorted(ladder.rates[chosen] - (surplus + ladder.tolerance))
        saved = prices * (counts[chosen] - counts[lowered])
        slot = int(saved.argmax())
        if saved[slot] <= 0:
            break
        surplus -= float(ladder.rates[chosen[slot]] - ladder.rates[lowered[slot]])
        chosen[slot] = lowered[slot]
    return chosen
