"""Which deadlines are promised, and what each promised job must hold from now on so that its promise is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from punctual.core.ids import JobId
from punctual.optim.solution import IntArray
from punctual.optim.spans import Ladder, Spans
from punctual.policies._configurations import Pool

#: Spans of time that the plan distinguishes at most; beyond that deadlines are rounded down.
_N_SPANS_MAX = 96
#: Spans between deadlines are no longer than this share of the whole time.
_SPAN_FRAC = 1 / 24
#: How often promised jobs that find no room are moved to the front.
_N_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job that has, or may get, a promise.

    Attributes
    ----------
    work_steps
        What is left.
    until_s
        Seconds from now by which it has to be done, restarts already taken off.
    due_at
        The promised instant.
    ladders
        By pool, the preferred one first.
    promised
        Whether it has the promise already.
    overdue
        Whether it is promised an end of its waiting, not its deadline.
    """

    id: JobId
    work_steps: float
    until_s: float
    due_at: float
    ladders: Mapping[Pool, Ladder]
    promised: bool
    overdue: bool = False


@dataclass(slots=True)
class Promise:
    """What a promised job holds in each span, of which pool; `in_danger`: that is not enough."""

    pool: Pool
    amounts: IntArray
    in_danger: bool = False


@dataclass(slots=True)
class Book:
    """All promises, with the plan that keeps them.

    Parameters
    ----------
    capacities
        What each pool has for promises that were made.
    offered
        What of that deadlines to be promised may take, together with those that were; ends of waiting may take all.
    late
        Whether work is put off as long as its devices allow.
    """

    capacities: Mapping[Pool, int]
    offered: Mapping[Pool, int]
    late: bool = False
    promises: dict[JobId, Promise] = field(default_factory=dict)
    ends_s: Sequence[float] = ()
    _spans: dict[Pool, Spans] = field(default_factory=dict)

    def keep(self, claims: Sequence[Claim], others: Sequence[Claim]) -> None:
        """Plan for those that are promised, earliest deadline first; what fails moves to the front.

        Within what is offered if that is enough: with all there is, work would be put off until it needs all there is.
        """
        self.ends_s = _grid([claim.until_s for claim in (*claims, *others)])
        order = sorted(claims, key=lambda claim: (claim.until_s, claim.id))
        if not self._fill(order, self.offered):
            return
        for _ in range(_N_ROUNDS):
            failed = self._fill(order, self.capacities)
            if not failed:
                break
            order = [*failed, *(claim for claim in order if claim not in failed)]
        else:
            for claim in self._fill(order, self.capacities):
                self._rescue(claim)
        self._withhold()

    def offer(self, claim: Claim) -> bool:
        """Promise the job its deadline if that can be kept beside all others."""
        found = self._room(claim)
        if found is not None:
            self._book(claim, found)
        return found is not None

    def offer_again(self, claim: Claim, claims: Sequence[Claim]) -> bool:
        """The same, with all others planned anew around it."""
        before, spans = self.promises, self._spans
        order = sorted((*claims, claim), key=lambda one: (one.until_s, one.id))
        capacities = self.capacities if claim.overdue else self.offered
        failed = self._fill(order, capacities)
        if failed and not self._fill([*failed, *(one for one in order if one not in failed)], capacities):
            failed = []
        if failed:
            self.promises, self._spans = before, spans
        elif claim.overdue:
            self._withhold()
        return not failed

    def needed_at(self, held: Mapping[JobId, tuple[Pool, int]]) -> float | None:
        """Seconds until the plan first wants more for a job than it holds; None: never."""
        first = len(self.ends_s)
        for id, promise in self.promises.items():
            pool, amount = held.get(id, (promise.pool, 0))
            short = np.flatnonzero(promise.amounts > (amount if pool == promise.pool else 0))
            if len(short):
                first = min(first, int(short[0]))
        return None if first in (0, len(self.ends_s)) else float(self.ends_s[first - 1])

    def _fill(self, order: Sequence[Claim], capacities: Mapping[Pool, int]) -> list[Claim]:
        """Book all in this order; those without room."""
        self.promises = {}
        self._spans = {pool: Spans(self.ends_s, n) for pool, n in capacities.items()} if self.ends_s else {}
        failed = []
        for claim in order:
            found = self._room(claim)
            if found is None:
                failed.append(claim)
            else:
                self._book(claim, found)
        return failed

    def _withhold(self) -> None:
        """Leave free in the plan only what may still be promised."""
        for pool, spans in self._spans.items():
            spans.free = np.maximum(spans.free - (self.capacities[pool] - self.offered[pool]), 0)

    def _room(self, claim: Claim) -> Promise | None:
        for pool, ladder in claim.ladders.items():
            if pool in self._spans:
                amounts = self._spans[pool].least(ladder, claim.work_steps, claim.until_s, late=self.late)
                if amounts is not None:
                    return Promise(pool, amounts)
        return None

    def _book(self, claim: Claim, promise: Promise) -> None:
        self.promises[claim.id] = promise
        self._spans[promise.pool].take(promise.amounts)

    def _rescue(self, claim: Claim) -> None:
        """A promise that cannot be kept any more gets everything that the others leave it."""
        pool = max(claim.ladders, key=lambda pool: int(self._spans[pool].free[0]) if pool in self._spans else -1)
        if pool not in self._spans:
            return
        free, amounts = self._spans[pool].free, claim.ladders[pool].amounts
        most = amounts[np.searchsorted(amounts, np.maximum(free, 0), side="right") - 1]
        self._book(claim, Promise(pool, most, in_danger=True))


def _grid(ends_s: Sequence[float]) -> list[float]:
    """Ends of spans: the deadlines, and points between those that are far apart."""
    ends = sorted({end for end in ends_s if end > 0})
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
