"""Shares that keep a promise: the job is done in time, with all its starts and changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from punctual.core.ids import JobId
from punctual.policies._configurations import PARTS, Pool
from punctual.policies._jobs import ROUNDING_S
from punctual.policies._reservations import ReservationRequest
from punctual.solvers.solution import FloatArray
from punctual.solvers.timeline import ROOM_TOLERANCE, ChangeCosts, Share, Timeline

#: Number of repeats with more work, for the changes that a share contains.
_N_TRIES = 4
#: Changes that cost nothing.
_FREE = ChangeCosts()
#: Spans of time that the plan distinguishes at most; beyond that deadlines are rounded down.
_N_SPANS_MAX = 96
#: Spans between deadlines are no longer than this share of the whole time.
_SPAN_FRAC = 1 / 24


@dataclass(frozen=True, slots=True)
class Hold:
    """Amounts of a pool that a job cannot give up.

    Attributes
    ----------
    amount, starting_s
        What the job holds, and the seconds for which it cannot give that up, because it is starting; 0: it can.
    least
        What the job needs at all times until it is done, because it may not be paused; 0: it may be.
    least_until_s
        Seconds for which it holds `least` already, so that no other job can have that; infinite: nobody knows for how long;
        0: it holds nothing yet.
    """

    amount: int = 0
    starting_s: float = 0.0
    least: int = 0
    least_until_s: float = 0.0

    @property
    def withheld(self) -> int:
        """The least of a job that runs without a promise; nobody is promised that."""
        return self.least if self.least_until_s == inf else 0

    def least_at(self, starts_s: FloatArray) -> FloatArray:
        """Return what it holds at these times because it may not be paused."""
        return np.where(starts_s < self.least_until_s - ROUNDING_S, self.least, 0.0)

    def starting_at(self, starts_s: FloatArray) -> FloatArray:
        """Return what it holds at these times because it is starting."""
        return np.where(starts_s < self.starting_s - ROUNDING_S, self.amount, 0.0)

    def kept_at(self, starts_s: FloatArray) -> FloatArray:
        """Return what it cannot give up at these times."""
        return np.maximum(self.starting_at(starts_s), self.least_at(starts_s))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PromiseRequest(ReservationRequest):
    """Request for a share that does a job's work in time, including the time that changes cost.

    Attributes
    ----------
    changes
        Its amount of the pool, and the costs of changes.
    n_nodes
        Number of nodes on which its workers may lie: those of the pool when it was promised, though more have joined.
    hold
        What it cannot give up of the pool.
    """

    changes: ChangeCosts
    n_nodes: int = 1
    hold: Hold = Hold()

    @property
    def reserve_s(self) -> float:
        """Seconds that one more change than planned costs, and the way back."""
        return 2 * self.changes.change_s

    def room(self, timeline: Timeline) -> Timeline:
        """Return the part of `timeline` for the job, with the amounts that it cannot give up."""
        if not self.hold.starting_s and not self.hold.least_until_s:
            return timeline
        return Timeline(timeline.starts_s, timeline.free + self.hold.kept_at(timeline.starts_s))

    def planned(self, timeline: Timeline, planned: "PlannedShare", due_s: float) -> Share | None:
        """Return the share of an earlier plan; None if it is not free, does not suffice, or ends after `due_s`."""
        share = timeline.planned_share(planned.starts_s, planned.amounts)
        if share is None or share.end_s > due_s:
            return None
        share = self._holding(share)
        return share if _fits(share, timeline) and self.is_done_with(share) else None

    def everything(self, timeline: Timeline) -> Share:
        """Return all of the timeline until its deadline, as a share."""
        share = timeline.everything(self.levels)
        n_spans = max(1, int(np.searchsorted(share.starts_s, self.until_s * (1 - 1e-9))))
        if n_spans >= len(share.amounts):
            return share
        return Share(share.starts_s[:n_spans], share.amounts[:n_spans], float(share.starts_s[n_spans]))

    def _holding(self, share: Share) -> Share:
        """Return the share, at least the amounts that the job cannot give up."""
        if not self.hold.starting_s and not self.hold.least:
            return share
        held = np.maximum(self.hold.starting_at(share.starts_s), self.hold.least)
        return replace(share, amounts=np.maximum(share.amounts, held))

    def cheapest(self, timeline: Timeline, *, late: bool, with_reserve: bool) -> Share | None:
        """Return the share of least device-seconds that meets the deadline with all its changes; None if none does.

        The changes follow from the share, so it is computed again with as much more work as they cost.

        Parameters
        ----------
        with_reserve
            Whether it must still be in time after one more change and the way back.
        """
        changes = replace(self.changes, reserve_s=self.reserve_s) if with_reserve else self.changes
        work = self.work
        for _ in range(_N_TRIES):
            share = timeline.cheapest_share(self.levels, work, self.until_s, late=late)
            if share is None:
                return None
            share = self._holding(share)
            if self.hold.least and not _fits(share, timeline):
                return None
            missing = self.work - share.work(self.levels, changes)
            if missing <= self._rounding:
                return share
            work = share.work(self.levels, _FREE) + missing  # more than this share does, or it would come again
        return None

    @property
    def _rounding(self) -> float:
        """Work that counts as none."""
        # Rounding: this share of the work, and what is done in this time, may be left.
        return 1e-7 * self.work + 1e-5 * float(self.levels.rates[-1])

    def is_done_with(self, share: Share) -> bool:
        """Whether the share is enough."""
        return self.work - share.work(self.levels, self.changes) <= self._rounding

    def left_after(self, share: Share) -> float:
        """The part of the work that the share leaves."""
        return 1.0 - share.work(self.levels, self.changes) / self.work if self.work > 0 else 0.0

    def bears_a_change(self, share: Share) -> bool:
        """Whether the job is in time after a change to another amount now, and back to its share."""
        changes, now = self.changes, share.now
        cost_s = changes.change_s if changes.holds > 0 else changes.start_s
        back_s = changes.change_s if now > 0 else 0.0  # otherwise it is part of the start that follows
        changed = replace(changes, holds=now, ready_s=changes.ready_s + cost_s + back_s)
        return self.work - share.work(self.levels, changed) <= self._rounding


def _fits(share: Share, timeline: Timeline) -> bool:
    return bool(np.all(share.amounts <= timeline.free[: len(share.amounts)] + ROOM_TOLERANCE))


@dataclass(frozen=True, slots=True, eq=False)
class ShareRequest:
    """A job that has, or may get, a promise.

    Attributes
    ----------
    requests
        Requests by pool, the preferred one first.
    due_at
        The promised instant.
    promised
        Whether it has the promise already.
    overdue
        Whether it is promised an end of its waiting, not its deadline.
    awaits_report
        Whether it was started again and has still to say how far it is; it had better do so soon.
    """

    requests: Sequence[PromiseRequest]
    due_at: float
    promised: bool
    overdue: bool
    awaits_report: bool

    @property
    def id(self) -> JobId:
        return self.requests[0].id

    @property
    def until_s(self) -> float:
        return self.requests[0].until_s


@dataclass(frozen=True, slots=True, eq=False)
class PlannedShare:
    """The share of a plan made before, from now on.

    Attributes
    ----------
    starts_s, amounts
        Instants, and the amounts from each on; the last amount is 0.
    n_nodes
        See `PromiseRequest`.
    """

    pool: Pool
    starts_s: Sequence[float]
    amounts: Sequence[float]
    n_nodes: int


def as_carried(pool: Pool, share: Share, at: float, n_nodes: int) -> dict[str, object]:
    """The share for the plan's carry, in GPUs or cores."""
    steps: list[list[float]] = []
    for start_s, amount in zip([*share.starts_s.tolist(), share.end_s], [*share.amounts.tolist(), 0.0], strict=True):
        if not steps or steps[-1][1] != amount / PARTS:
            steps.append([at + start_s, amount / PARTS])
    return {"kind": pool[0], "gpus": pool[1], "n_nodes": n_nodes, "steps": steps}


def shares_carried(carried: Mapping[JobId, Mapping[str, Any]], at: float) -> dict[JobId, PlannedShare]:
    """Return what is still to come of the last plan's reservations, from values of `as_carried`."""
    planned = {}
    for id, share in carried.items():
        starts_s = [start - at if start - at > ROUNDING_S else 0.0 for start, _ in share["steps"]]
        begun = max(starts_s.count(0.0) - 1, 0)
        amounts = [amount * PARTS for _, amount in share["steps"][begun:]]
        if len(amounts) > 1:
            planned[id] = PlannedShare((share["kind"], share["gpus"]), starts_s[begun:], amounts, share["n_nodes"])
    return planned


def spans_until(ends_s: Sequence[float]) -> list[float]:
    """Return the ends of spans: the deadlines, and points in long gaps between them."""
    ends = sorted({end for end in ends_s if end > ROUNDING_S})
    if not ends:
        return []
    if len(ends) > _N_SPANS_MAX:
        chosen = np.unique(np.linspace(0, len(ends) - 1, _N_SPANS_MAX).astype(int))
        ends = [ends[i] for i in chosen]
    step, grid, last = ends[-1] * _SPAN_FRAC, [], 0.0
    for end in ends:
        n_parts = max(1, min(4, int((end - last) / step)))
        grid += [last + (end - last) * i / n_parts for i in range(1, n_parts)] + [end]
        last = end
    return grid
