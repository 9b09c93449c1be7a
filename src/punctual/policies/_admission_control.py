"""Which deadlines `promises-first` promises in one round, and the reservations that keep them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Any

import numpy as np

from punctual.core.ids import JobId
from punctual.core.story import Reason
from punctual.optim.solution import FloatArray
from punctual.optim.timeline import Share, Timeline
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._configurations import PARTS_PER_CORE, Pool
from punctual.policies._jobs import is_protected, span_text
from punctual.policies._reservations import ReservationLedger, ReservationRequest

#: Newcomers of one round for which everything is planned anew if there is no room beside it.
_N_NEW_MAX = 3
#: Share of the way to the deadline that is kept free against rounding.
_ROUNDING_FRAC = 1e-6
#: A job may wait this many times as long as it takes at its fastest, and a constant time more.
_WAIT_FACTOR = 10.0
#: Spans of time that the plan distinguishes at most; beyond that deadlines are rounded down.
_N_SPANS_MAX = 96
#: Spans between deadlines are no longer than this share of the whole time.
_SPAN_FRAC = 1 / 24
_NOTHING: FloatArray = np.zeros(0)
_NOBODY: Mapping[Pool, Timeline] = {}
#: How often promised jobs that find no room are moved to the front.
_N_ROUNDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A job that has, or may get, a promise.

    Attributes
    ----------
    requests
        By pool, the preferred one first; restarts are taken off their time.
    due_at
        The promised instant.
    promised
        Whether it has the promise already.
    overdue
        Whether it is promised an end of its waiting, not its deadline.
    """

    requests: Sequence[ReservationRequest]
    due_at: float
    promised: bool
    overdue: bool

    @property
    def id(self) -> JobId:
        return self.requests[0].id

    @property
    def until_s(self) -> float:
        return self.requests[0].until_s


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
    taken
        What others are to hold of a pool later beyond what they hold now, over time.
    admission, late, offered_frac, risk_sigmas, max_wait_s, prior_s
        Parameters of the policy.
    """

    def __init__(
        self,
        at: float,
        carry: Mapping[str, object],
        problem: AllocationProblem,
        *,
        admission: str,
        late: bool,
        offered_frac: float,
        risk_sigmas: float,
        max_wait_s: float,
        prior_s: float,
        taken: Mapping[Pool, Timeline] = _NOBODY,
    ) -> None:
        self._at, self._candidates, self._admission = at, problem.candidates, admission
        self._late, self._risk_sigmas = late, risk_sigmas
        self._max_wait_s, self._prior_s, self._taken = max_wait_s, prior_s, taken
        self._overdue = {JobId(id): until_at for id, until_at in amounts_in(carry.get("overdue")).items()}
        self._refused = {JobId(str(id)) for id in _listed(carry.get("refused"))}
        self._claims: dict[JobId, Claim] = {}
        #: Jobs that are turned away.
        self.declines: dict[JobId, Reason] = {}
        #: What promises may count on, and what of that deadlines to be promised may take; ends of waiting may take all.
        self._reserved = self._reserved_of(problem.capacities)
        self._offered = {
            pool: ceil(offered_frac * n - 1e-9) for pool, n in self._reserved.items()
        }  # of a few devices, one
        #: Ends of the spans of time that the plan distinguishes.
        self._ends_s: list[float] = []
        self._ledgers: dict[Pool, ReservationLedger[ReservationRequest]] = {}
        self._promise()
        #: What each promised job holds in each span, and of which pool.
        self._promises: dict[JobId, tuple[Pool, FloatArray]] = {
            request.id: (pool, share.amounts)
            for pool, ledger in self._ledgers.items()
            for request, share in zip(ledger.requests, ledger.shares, strict=True)
        }

    def needs(self) -> list[tuple[Pool, int] | None]:
        """For each candidate the pool and the least amount that its promise needs now; None without a promise."""
        needs: list[tuple[Pool, int] | None] = []
        for candidate in self._candidates:
            pool, amounts = self._promises.get(candidate.id, (candidate.pool, _NOTHING))
            needs.append((pool, int(amounts[0])) if len(amounts) else None)
        return needs

    def asks_for_workers(self, candidate: Candidate) -> bool:
        """Whether its promise wants it to hold something now."""
        _, amounts = self._promises.get(candidate.id, (candidate.pool, _NOTHING))
        return len(amounts) > 0 and bool(amounts[0] > 0)

    def is_promised(self, candidate: Candidate) -> bool:
        """Whether its deadline is promised. False if only an end of its waiting is."""
        return candidate.id in self._promises and not self._claims[candidate.id].overdue

    def promises(self) -> dict[JobId, float]:
        """By when each promised job is to be done."""
        promised = [
            candidate.view
            for candidate in self._candidates
            if self.is_promised(candidate) or self._is_pending(candidate)
        ]
        return {view.id: view.deadline_at for view in promised if view.deadline_at is not None}

    def handed_on(self, present: set[JobId]) -> dict[str, object]:
        """What the next round needs, for the plan's carry; `present`: the jobs that still exist."""
        claims = [claim for id, claim in sorted(self._claims.items()) if id in self._promises]
        return {
            "overdue": {claim.id: claim.due_at for claim in claims if claim.overdue},
            "refused": sorted(self._refused & present),
        }

    def _is_pending(self, candidate: Candidate) -> bool:
        """Whether nothing is known just now of a job with a promise, because its process was started again."""
        until_at = candidate.view.promised_until_at
        is_open = until_at is not None and self._at < until_at and candidate.left_s < inf
        return is_open and candidate.remaining is None and self._admission != "none"

    def _promise(self) -> None:
        """Reserve for the promised jobs first, then for as many others as there is room for."""
        if self._admission == "none":
            return
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
        self._ends_s = self._spans([claim.until_s for claim in self._claims.values()])
        self._keep(kept)
        n_new = 0
        for candidate, claim in sorted(others, key=lambda pair: not pair[1].overdue):
            given = self._reserve(claim)
            if not given and claim.id not in self._refused and n_new < _N_NEW_MAX:
                n_new += 1
                given = self._reserve_anew(claim, kept)
            if given:
                kept.append(claim)
                self._refused.discard(claim.id)
            else:
                self._refuse(candidate)

    def _spans(self, dues_s: Sequence[float]) -> list[float]:
        """Ends of spans, also where what others take changes."""
        last_s = max(dues_s, default=0.0)
        changes_s = [float(start) for taken in self._taken.values() for start in taken.starts_s if start < last_s]
        return _grid([*dues_s, *changes_s])

    def _keep(self, claims: Sequence[Claim]) -> None:
        """Plan for those that are promised, earliest deadline first; what fails moves to the front.

        Within what is offered if that is enough: with all there is, work would be put off until it needs all there is.
        """
        order = sorted(claims, key=lambda claim: (claim.until_s, claim.id))
        if not self._fill(order, self._offered):
            return
        for _ in range(_N_ROUNDS):
            failed = self._fill(order, self._reserved)
            if not failed:
                break
            order = [*failed, *(claim for claim in order if claim not in failed)]
        else:
            for claim in self._fill(order, self._reserved):
                self._rescue(claim)
        self._withhold()

    def _fill(self, order: Sequence[Claim], capacities: Mapping[Pool, int]) -> list[Claim]:
        """Reserve for all in this order; those without room."""
        timelines = {pool: self._free_of(pool, n) for pool, n in capacities.items()}
        self._ledgers = (
            {pool: ReservationLedger(timeline) for pool, timeline in timelines.items()} if self._ends_s else {}
        )
        return [claim for claim in order if not self._reserve(claim)]

    def _free_of(self, pool: Pool, n: int) -> Timeline:
        """What there is of a pool in the spans of the plan, of `n` devices in all."""
        spans, taken = Timeline.of(n).split(self._ends_s), self._taken.get(pool)
        if taken is None:
            return spans
        taken = taken.split(self._ends_s)
        most = np.zeros(len(spans.starts_s))
        np.maximum.at(most, np.searchsorted(spans.starts_s, taken.starts_s, side="right") - 1, taken.free)
        return Timeline(spans.starts_s, np.maximum(spans.free - most, 0.0))

    def growth(self, held: Mapping[JobId, tuple[Pool, int]]) -> dict[str, list[list[float]]]:
        """By kind of node, from when on promised jobs are to hold how many cores beyond what all jobs hold now.

        Parameters
        ----------
        held
            What each job of workers holds: of which pool, and how much.
        """
        growth: dict[str, list[list[float]]] = {}
        for (kind, uses_gpus), ledger in self._ledgers.items():
            if uses_gpus or not ledger.shares:
                continue
            now = sum(amount for pool, amount in held.values() if pool == (kind, uses_gpus))
            amounts = np.zeros(len(self._ends_s))
            for share in ledger.shares:
                amounts[: len(share.amounts)] += share.amounts
            more = np.maximum(amounts - now, 0.0) / PARTS_PER_CORE
            starts_at = [self._at, *(self._at + end_s for end_s in self._ends_s)]
            growth[kind] = [[at, float(cores)] for at, cores in zip(starts_at, [*more, 0.0], strict=True)]
        return growth

    def _reserve(self, claim: Claim) -> bool:
        """Reserve for one job; False if there is no room beside the others in any of its pools."""
        own = (request for request in claim.requests if request.pool in self._ledgers)
        return any(self._ledgers[request.pool].reserve(request, self._cheapest) for request in own)

    def _cheapest(self, timeline: Timeline, request: ReservationRequest) -> tuple[Timeline, Share] | None:
        share = timeline.cheapest_share(request.levels, request.work, request.until_s, late=self._late)
        return None if share is None else (timeline, share)

    def _reserve_anew(self, claim: Claim, claims: Sequence[Claim]) -> bool:
        """Reserve for one job, planning all others anew; False, and nothing changes, if somebody finds no room."""
        before = self._ledgers
        order = sorted((*claims, claim), key=lambda other: (other.until_s, other.id))
        capacities = self._reserved if claim.overdue else self._offered
        failed = self._fill(order, capacities)
        if failed and not self._fill([*failed, *(other for other in order if other not in failed)], capacities):
            failed = []
        if failed:
            self._ledgers = before
        elif claim.overdue:
            self._withhold()
        return not failed

    def _withhold(self) -> None:
        """Leave for later reservations only what is offered."""
        for pool, ledger in self._ledgers.items():
            ledger.withhold(self._reserved[pool] - self._offered[pool])

    def _rescue(self, claim: Claim) -> None:
        """Reserve everything that is free for a job whose promise cannot be kept any more."""
        own = [request for request in claim.requests if request.pool in self._ledgers]
        if own:
            best = max(own, key=lambda request: self._ledgers[request.pool].free.free[0])
            self._ledgers[best.pool].reserve(
                best, lambda timeline, request: (timeline, timeline.everything(request.levels))
            )

    def needed_at(self, held: Mapping[JobId, tuple[Pool, int]]) -> float | None:
        """Seconds until the plan first wants more for a job than it holds; None: never."""
        first = len(self._ends_s)
        for id, (pool, amounts) in self._promises.items():
            on, amount = held.get(id, (pool, 0))
            short = np.flatnonzero(amounts > (amount if pool == on else 0))
            if len(short):
                first = min(first, int(short[0]))
        return None if first in (0, len(self._ends_s)) else self._ends_s[first - 1]

    def _refuse(self, candidate: Candidate) -> None:
        self._refused.add(candidate.id)
        if self._admission == "decline" and candidate.view.status == "queued":
            text = f"its deadline in {span_text(candidate.left_s)} cannot be promised beside what is promised already"
            self.declines[candidate.id] = Reason("declined", text, {"left_s": candidate.left_s})

    def _claim(self, candidate: Candidate) -> Claim | None:
        """What the job would need for its promise; None if there is none to be had."""
        promised = candidate.view.promised_until_at is not None and 0 < candidate.left_s < inf
        overdue = not promised and (candidate.id in self._overdue or self._is_overdue(candidate))
        due_s = self._waits_until_s(candidate) if overdue else candidate.left_s
        until_s = due_s * (1 - _ROUNDING_FRAC) - candidate.restarts_s
        if not 0 < due_s < inf or (candidate.remaining is None and not overdue):
            return None
        kept, risk_sigmas = promised or (overdue and candidate.id in self._overdue), self._risk_sigmas
        work_steps = self._work_steps(candidate)
        if not kept and (until_s <= 0 or work_steps > candidate.options.surely_fastest(risk_sigmas) * until_s):
            return None
        view, within_s = candidate.view, max(until_s, 1e-3)
        requests = [
            ReservationRequest(
                id=candidate.id,
                submitted_at=view.submitted_at,
                pool=pool,
                work=work_steps,
                until_s=within_s,
                levels=candidate.options.levels(pool[0], self._risk_sigmas),
            )
            for pool in candidate.pools
        ]
        return Claim(requests, self._at + due_s, promised=kept, overdue=overdue)

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

    def _reserved_of(self, capacities: Mapping[Pool, int]) -> dict[Pool, int]:
        """What promises may count on: what jobs that may not be paused need at least is not for them."""
        left = dict(capacities)
        for candidate in self._candidates:
            if (
                is_protected(candidate.view)
                and candidate.n
                and candidate.view.promised_until_at is None
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
