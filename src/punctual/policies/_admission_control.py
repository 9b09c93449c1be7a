"""Who is promised what in one round, and what the next round has to know of it."""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite
from typing import Any

from punctual.core.ids import JobId
from punctual.core.story import Reason
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._configurations import Pool
from punctual.policies._jobs import is_protected, span_text
from punctual.policies._promises import Book, Claim

#: Newcomers of one round for which everything is planned anew if there is no room beside it.
_N_NEW_MAX = 3
#: Share of the way to the deadline that is kept free against rounding.
_ROUNDING_FRAC = 1e-6
#: A job may wait this many times as long as it takes at its fastest, and a constant time more.
_WAIT_FACTOR = 10.0


class AdmissionControl:
    """Which deadlines are promised in one round.

    Parameters
    ----------
    at
        Seconds since the epoch.
    carry
        What the last round handed on.
    problem
        The candidates, and what there is of each pool.
    admission, late, offered_frac, risk_sigmas, max_wait_s, prior_s
        Parameters of the policy.
    """

    def __init__(
        self, at: float, carry: Mapping[str, object], problem: AllocationProblem, *, admission: str, late: bool,
        offered_frac: float, risk_sigmas: float, max_wait_s: float, prior_s: float,
    ) -> None:  # fmt: skip
        self._at, self._candidates, self._admission = at, problem.candidates, admission
        self._late, self._offered_frac, self._risk_sigmas = late, offered_frac, risk_sigmas
        self._max_wait_s, self._prior_s = max_wait_s, prior_s
        #: Until when promised jobs are to be done.
        self._promised = {JobId(id): until_at for id, until_at in amounts_in(carry.get("promised")).items()}
        self._overdue = {JobId(id): until_at for id, until_at in amounts_in(carry.get("overdue")).items()}
        self._refused = {JobId(str(id)) for id in _listed(carry.get("refused"))}
        self._claims: dict[JobId, Claim] = {}
        #: Jobs that are turned away.
        self.declines: dict[JobId, Reason] = {}
        self.book = self._booked(self._reserved(problem.capacities))

    def needs(self) -> list[tuple[Pool, int] | None]:
        """Of each candidate, what its promise wants it to hold at least now."""
        needs: list[tuple[Pool, int] | None] = []
        for candidate in self._candidates:
            promise = self.book.promises.get(candidate.id)
            needs.append((promise.pool, int(promise.amounts[0])) if promise and len(promise.amounts) else None)
        return needs

    def is_promised(self, candidate: Candidate) -> bool:
        """Whether its deadline is promised; the end of its waiting does not count."""
        return candidate.id in self.book.promises and not self._claims[candidate.id].overdue

    def handed_on(self, present: set[JobId]) -> dict[str, object]:
        """What the next round has to know of this one; `present`: the jobs that are there."""
        claims = [claim for id, claim in sorted(self._claims.items()) if id in self.book.promises]
        return {
            "promised": {claim.id: claim.due_at for claim in claims if not claim.overdue},
            "overdue": {claim.id: claim.due_at for claim in claims if claim.overdue},
            "refused": sorted(self._refused & present),
        }

    def _booked(self, reserved: Mapping[Pool, int]) -> Book:
        offered = {pool: ceil(self._offered_frac * n - 1e-9) for pool, n in reserved.items()}  # of a few devices, one
        book = Book(reserved, offered, late=self._late)
        if self._admission == "none":
            return book
        kept: list[Claim] = []
        others: list[tuple[Candidate, Claim]] = []
        for candidate in self._candidates:
            claim = self._claim(candidate)
            if claim is not None:
                self._claims[candidate.id] = claim
                if claim.promised:
                    kept.append(claim)
                else:
                    others.append((candidate, claim))
        book.keep(kept, [claim for _, claim in others])
        self._offer(book, kept, others)
        return book

    def _offer(self, book: Book, kept: list[Claim], others: Sequence[tuple[Candidate, Claim]]) -> None:
        """Promise what can be promised to those that have no promise yet."""
        n_new = 0
        for candidate, claim in sorted(others, key=lambda pair: not pair[1].overdue):
            given = book.offer(claim)
            if not given and claim.id not in self._refused and n_new < _N_NEW_MAX:
                n_new += 1
                given = book.offer_again(claim, kept)
            if given:
                kept.append(claim)
                self._refused.discard(claim.id)
            else:
                self._refuse(candidate)

    def _refuse(self, candidate: Candidate) -> None:
        self._refused.add(candidate.id)
        if self._admission == "decline" and candidate.view.status == "queued":
            text = f"its deadline in {span_text(candidate.left_s)} cannot be promised beside what is promised already"
            self.declines[candidate.id] = Reason("declined", text, {"left_s": candidate.left_s})

    def _claim(self, candidate: Candidate) -> Claim | None:
        """What the job would need for its promise; None if there is none to be had."""
        promised = candidate.id in self._promised and 0 < candidate.left_s < inf
        overdue = not promised and (candidate.id in self._overdue or self._is_overdue(candidate))
        due_s = self._waits_until_s(candidate) if overdue else candidate.left_s
        until_s = due_s * (1 - _ROUNDING_FRAC) - candidate.restarts_s
        if not 0 < due_s < inf or (candidate.remaining is None and not overdue):
            return None
        kept, risk_sigmas = promised or (overdue and candidate.id in self._overdue), self._risk_sigmas
        work_steps = self._work_steps(candidate)
        if not kept and (until_s <= 0 or work_steps > candidate.options.surely_fastest(risk_sigmas) * until_s):
            return None
        ladders = {pool: candidate.options.ladder(pool[0], risk_sigmas) for pool in candidate.pools}
        return Claim(
            id=candidate.id, work_steps=work_steps, until_s=max(until_s, 1e-3), due_at=self._at + due_s,
            ladders=ladders, promised=kept, overdue=overdue,
        )  # fmt: skip

    def _waits_until_s(self, candidate: Candidate) -> float:
        """Seconds from now by which a job that has waited too long is to be done."""
        until_at = self._overdue.get(candidate.id, 0.0)
        return until_at - self._at if until_at > self._at else self._longest_wait_s(candidate)

    def _is_overdue(self, candidate: Candidate) -> bool:
        """Whether the job holds nothing and has waited longer than anyone should."""
        if candidate.n or self._max_wait_s <= 0:
            return False
        since_at = candidate.view.submitted_at if candidate.view.started_at is None else candidate.view.granted_at
        return self._at - since_at > self._longest_wait_s(candidate)

    def _longest_wait_s(self, candidate: Candidate) -> float:
        """The longer a job takes, the longer it can wait."""
        return self._max_wait_s + _WAIT_FACTOR * self._work_steps(candidate) / candidate.options.fastest

    def _work_steps(self, candidate: Candidate) -> float:
        """What is left; of a job that nobody knows the end of, so much is promised at a time."""
        if candidate.remaining is not None:
            return candidate.remaining
        return float(candidate.options.rates[1]) * self._prior_s

    def _reserved(self, capacities: Mapping[Pool, int]) -> dict[Pool, int]:
        """What promises may count on: what jobs that may not be paused need at least is not for them."""
        left = dict(capacities)
        for candidate in self._candidates:
            if (
                is_protected(candidate.view)
                and candidate.n
                and candidate.id not in self._promised
                and candidate.pool in left
            ):
                left[candidate.pool] -= (
                    min(candidate.n, candidate.options.least_on(candidate.kind)) * candidate.options.per_worker
                )
        return {pool: max(0, n) for pool, n in left.items()}


def amounts_in(value: object) -> dict[Any, float]:
    """A table of amounts that a round has handed on, without what means nothing."""
    if not isinstance(value, dict):
        return {}
    return {
        key: float(candidate)
        for key, candidate in value.items()
        if isinstance(candidate, int | float) and isfinite(candidate) and candidate >= 0
    }


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
