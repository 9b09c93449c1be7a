"""Who is promised what in one round, and what the next round has to know of it."""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite
from typing import Any, Protocol

from punctual.core.ids import JobId
from punctual.core.story import Reason
from punctual.policies._base import is_protected, span_text
from punctual.policies._candidates import Candidate
from punctual.policies._options import Pool
from punctual.policies._promises import Book, Claim

#: Newcomers of one round for which everything is planned anew if there is no room beside it.
_N_NEW_MAX = 3
#: Share of the way to the deadline that is kept free against rounding.
_ROUNDING_FRAC = 1e-6
#: A job may wait this many times as long as it takes at its fastest, and a constant time more.
_PATIENCE = 10.0


class Parameters(Protocol):
    """What promises take from the policy."""

    @property
    def admission(self) -> str: ...
    @property
    def work(self) -> str: ...
    @property
    def caution(self) -> float: ...
    @property
    def patience_s(self) -> float: ...
    @property
    def prior_s(self) -> float: ...
    @property
    def offered_frac(self) -> float: ...


class Pledges:
    """The promises of one round.

    Parameters
    ----------
    at
        Seconds since the epoch.
    carry
        What the last round handed on.
    capacities
        What there is of each pool.
    """

    def __init__(
        self, at: float, carry: Mapping[str, object], found: Sequence[Candidate], capacities: Mapping[Pool, int],
        parameters: Parameters,
    ) -> None:  # fmt: skip
        self._at, self._candidates, self._parameters = at, found, parameters
        #: Until when promised jobs are to be done.
        self._promised = {JobId(id): until_at for id, until_at in amounts(carry.get("promised")).items()}
        self._overdue = {JobId(id): until_at for id, until_at in amounts(carry.get("overdue")).items()}
        self._refused = {JobId(str(id)) for id in _listed(carry.get("refused"))}
        self._claims: dict[JobId, Claim] = {}
        #: Jobs that are turned away.
        self.declines: dict[JobId, Reason] = {}
        self.book = self._booked(self._reserved(capacities))

    def needs(self) -> list[tuple[Pool, int] | None]:
        """Of each candidate, what its promise wants it to hold at least now."""
        needs: list[tuple[Pool, int] | None] = []
        for one in self._candidates:
            promise = self.book.promises.get(one.id)
            needs.append((promise.pool, int(promise.amounts[0])) if promise and len(promise.amounts) else None)
        return needs

    def is_promised(self, one: Candidate) -> bool:
        """Whether its deadline is promised; the end of its waiting does not count."""
        return one.id in self.book.promises and not self._claims[one.id].overdue

    def handed_on(self, present: set[JobId]) -> dict[str, object]:
        """What the next round has to know of this one; `present`: the jobs that are there."""
        claims = [claim for id, claim in sorted(self._claims.items()) if id in self.book.promises]
        return {
            "promised": {claim.id: claim.due_at for claim in claims if not claim.overdue},
            "overdue": {claim.id: claim.due_at for claim in claims if claim.overdue},
            "refused": sorted(self._refused & present),
        }

    def _booked(self, reserved: Mapping[Pool, int]) -> Book:
        frac = self._parameters.offered_frac
        offered = {pool: ceil(frac * n - 1e-9) for pool, n in reserved.items()}  # of a few devices, one
        book = Book(reserved, offered, late=self._parameters.work == "late")
        if self._parameters.admission == "none":
            return book
        kept: list[Claim] = []
        others: list[tuple[Candidate, Claim]] = []
        for one in self._candidates:
            claim = self._claim(one)
            if claim is not None:
                self._claims[one.id] = claim
                if claim.promised:
                    kept.append(claim)
                else:
                    others.append((one, claim))
        book.keep(kept, [claim for _, claim in others])
        self._offer(book, kept, others)
        return book

    def _offer(self, book: Book, kept: list[Claim], others: Sequence[tuple[Candidate, Claim]]) -> None:
        """Promise what can be promised to those that have no promise yet."""
        n_new = 0
        for one, claim in sorted(others, key=lambda pair: not pair[1].overdue):
            given = book.offer(claim)
            if not given and claim.id not in self._refused and n_new < _N_NEW_MAX:
                n_new += 1
                given = book.offer_again(claim, kept)
            if given:
                kept.append(claim)
                self._refused.discard(claim.id)
            else:
                self._refuse(one)

    def _refuse(self, one: Candidate) -> None:
        self._refused.add(one.id)
        if self._parameters.admission == "decline" and one.view.status == "queued":
            text = f"its deadline in {span_text(one.left_s)} cannot be promised beside what is promised already"
            self.declines[one.id] = Reason("declined", text, {"left_s": one.left_s})

    def _claim(self, one: Candidate) -> Claim | None:
        """What the job would need for its promise; None if there is none to be had."""
        promised = one.id in self._promised and 0 < one.left_s < inf
        overdue = not promised and (one.id in self._overdue or self._is_overdue(one))
        due_s = self._waits_until_s(one) if overdue else one.left_s
        until_s = due_s * (1 - _ROUNDING_FRAC) - one.restarts_s
        if not 0 < due_s < inf or (one.remaining is None and not overdue):
            return None
        kept, caution = promised or (overdue and one.id in self._overdue), self._parameters.caution
        work_steps = self._work_steps(one)
        if not kept and (until_s <= 0 or work_steps > one.options.surely_fastest(caution) * until_s):
            return None
        ladders = {pool: one.options.ladder(pool[0], caution) for pool in one.pools}
        return Claim(
            id=one.id, work_steps=work_steps, until_s=max(until_s, 1e-3), due_at=self._at + due_s,
            ladders=ladders, promised=kept, overdue=overdue,
        )  # fmt: skip

    def _waits_until_s(self, one: Candidate) -> float:
        """Seconds from now by which a job that has waited too long is to be done."""
        until_at = self._overdue.get(one.id, 0.0)
        return until_at - self._at if until_at > self._at else self._patience_s(one)

    def _is_overdue(self, one: Candidate) -> bool:
        """Whether the job holds nothing and has waited longer than anyone should."""
        if one.n or self._parameters.patience_s <= 0:
            return False
        since_at = one.view.submitted_at if one.view.started_at is None else one.view.granted_at
        return self._at - since_at > self._patience_s(one)

    def _patience_s(self, one: Candidate) -> float:
        """The longer a job takes, the longer it can wait."""
        return self._parameters.patience_s + _PATIENCE * self._work_steps(one) / one.options.fastest

    def _work_steps(self, one: Candidate) -> float:
        """What is left; of a job that nobody knows the end of, so much is promised at a time."""
        if one.remaining is not None:
            return one.remaining
        return float(one.options.rates[1]) * self._parameters.prior_s

    def _reserved(self, capacities: Mapping[Pool, int]) -> dict[Pool, int]:
        """What promises may count on: what jobs that may not be paused need at least is not for them."""
        left = dict(capacities)
        for one in self._candidates:
            if is_protected(one.view) and one.n and one.id not in self._promised and one.pool in left:
                left[one.pool] -= min(one.n, one.options.least_on(one.kind)) * one.options.per_worker
        return {pool: max(0, n) for pool, n in left.items()}


def amounts(value: object) -> dict[Any, float]:
    """A table of amounts that a round has handed on, without what means nothing."""
    if not isinstance(value, dict):
        return {}
    return {
        key: float(one) for key, one in value.items() if isinstance(one, int | float) and isfinite(one) and one >= 0
    }


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
