"""Promise deadlines with the fewest devices, and the shares that keep these promises [elasticflow2023]."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.policies._configurations import Pool, counts_on_kind
from punctual.policies._hardware import JobRates
from punctual.policies._jobs import n_workers, never_fits, seniority
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._reservations import ReservationLedger, ReservationRequest
from punctual.solvers.timeline import Levels, Share, Timeline

#: A job's amounts over time: pairs of instant and amount.
Steps = list[tuple[float, float]]

#: A margin may be smaller by this share of it: rounding.
_MARGIN_ROUNDING_FRAC = 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeadlineClaim(ReservationRequest):
    """One job made of workers, on one kind of nodes."""

    view: JobView
    counts: tuple[int, ...]  # The numbers of workers that it may have, the first 0; `levels` has their devices.
    known: bool  # Whether its speed is known; otherwise it is assumed to be proportional to the workers.
    n_before: int  # Workers it has.
    least: int  # Index of the count it has at least: 1 while it runs and may not be paused, otherwise 0.
    is_overdue: bool  # Whether it runs although its work should be done.

    @classmethod
    def of(cls, builder: PlanBuilder, view: JobView, kind: str, n_before: int, *, held: bool) -> "DeadlineClaim | None":
        """Return the claim of a job on the nodes of `kind`; None if they cannot hold it.

        The work includes the steps that a change costs.
        """
        spec, hardware, at = view.spec, builder.hardware, builder.snapshot.at
        wanted, speed = hardware.counts_wanted(view), hardware.speed(view)
        if spec.worker is not None:
            wanted = tuple(counts_on_kind(hardware, spec.worker, wanted, kind))
        key = ("powers of two", kind, len(wanted), n_before)
        known_counts = speed.derived(key, lambda: _configurations(view, speed, kind, wanted, n_before))
        if known_counts is None or spec.worker is None:
            return None
        counts, levels, known = known_counts
        steps, cost_s = view.remaining_steps(at), spec.resize_cost_s if held else spec.startup_s
        work = inf if steps is None else max(steps, 1e-9) + cost_s * float(levels.rates[1])
        until_s = inf if view.deadline_at is None else view.deadline_at - at
        return cls(
            id=spec.id,
            submitted_at=view.submitted_at,
            pool=(kind, spec.worker.gpus > 0),
            levels=levels,
            work=work,
            until_s=until_s,
            view=view,
            counts=counts,
            known=known,
            n_before=n_before,
            least=int(held and not spec.preemptible),
            is_overdue=held and steps == 0,
        )

    @property
    def has_goal(self) -> bool:
        """Whether it has a deadline, and its speed and work are known."""
        return self.until_s < inf and self.known and self.work < inf

    def alone_s(self) -> float:
        """Seconds that it takes with as much as it can have."""
        return self.work / float(self.levels.rates[-1]) if self.known else inf


#: Counts, the first 0, their levels, and whether anything is known of the speed.
_Configurations = tuple[tuple[int, ...], Levels, bool]


def _configurations(
    view: JobView, speed: JobRates, kind: str, counts: tuple[int, ...], n_before: int
) -> _Configurations | None:
    """Return powers of two that each gain speed, and the present number; all counts if none is a power."""
    worker = view.spec.worker
    powers = tuple(n for n in counts if n & (n - 1) == 0 or n == n_before) or counts
    if worker is None or not powers:
        return None
    rates = {n: speed.rate_sps(n, worker.cores * n, kind) for n in powers}
    known = any(rate > 0 for rate in rates.values())
    if not known and not any(speed.is_unknown(n, worker.cores * n, kind) for n in powers):
        return None
    pairs, best = [(0, 0.0)], 0.0
    for n in powers:
        rate = rates[n] if known else float(n)
        if rate > best:
            best = rate
            pairs.append((n, rate))
    size = float(worker.gpus or worker.cores or 1.0)
    levels = Levels(np.array([n * size for n, _ in pairs]), np.array([rate for _, rate in pairs]))
    return tuple(n for n, _ in pairs), levels, known


@dataclass(slots=True)
class PoolLedgers:
    """The promises by pool, with the rules that give each job its share."""

    at: float
    margin_s: float
    of_pool: dict[Pool, ReservationLedger[DeadlineClaim]]
    #: Pools in which the shares of the last plan are kept; others only get what they leave.
    kept: set[Pool]

    def open(
        self, timeline: Timeline, pool: Pool, claims: Iterable[DeadlineClaim], last: Mapping[JobId, Steps]
    ) -> None:
        """Reserve the shares of `claims` in a pool.

        The least shares of today need not fit where those of the last plan do: one that has become smaller lasts
        longer. If they do not, the shares of the `last` plan are kept.
        """
        spare_s = -self.margin_s * (1 - _MARGIN_ROUNDING_FRAC)
        self.of_pool[pool] = fresh = ReservationLedger[DeadlineClaim](timeline, spare_s)
        ranked = sorted(claims, key=lambda claim: claim.rank)
        for claim in ranked:
            fresh.reserve(claim, self.least)
        if not fresh.late or not last:
            return
        kept = ReservationLedger[DeadlineClaim](timeline, spare_s)
        for claim in sorted(ranked, key=lambda claim: claim.id not in last):
            kept.reserve(claim, partial(self.as_before, steps=last[claim.id]) if claim.id in last else self.least)
        if len(kept.late) < len(fresh.late):
            self.of_pool[pool] = kept
            self.kept.add(pool)

    def plus(self, claim: DeadlineClaim) -> ReservationLedger[DeadlineClaim]:
        """The ledger of the claim's pool with one more claim. Earlier deadlines do not notice it."""
        ledger = self.of_pool[claim.pool]
        if claim.pool not in self.kept:
            return ledger.plus(claim, self.least)
        ledger = ledger.first(len(ledger.requests))
        ledger.reserve(claim, self.least)
        return ledger

    def least(self, timeline: Timeline, claim: DeadlineClaim) -> tuple[Timeline, Share]:
        """Return the least share; for a job that cannot be on time all it can have."""
        timeline = _with_own(timeline, claim)
        levels, work, until_s, least = claim.levels, claim.work, claim.until_s, claim.least
        share = timeline.least_share(levels, work, until_s - self.margin_s, least=least)
        share = share or timeline.least_share(levels, work, until_s, least=least)
        return timeline, share or timeline.soonest(levels, work, least=least)

    def as_before(self, timeline: Timeline, claim: DeadlineClaim, steps: Steps) -> tuple[Timeline, Share]:
        """The share of the last plan, if that is enough."""
        starts_s, amounts = [start - self.at for start, _ in steps], [amount for _, amount in steps]
        split = _with_own(timeline, claim).split(starts_s)
        share = split.follow(claim.levels, claim.work, starts_s, amounts, least=claim.least)
        return (split, share) if share.end_s <= claim.until_s else self.least(timeline.split(starts_s), claim)


def _with_own(timeline: Timeline, claim: DeadlineClaim) -> Timeline:
    """A job that may not be paused has its least amount already: it was not free."""
    return timeline.plus(float(claim.levels.amounts[1]) if claim.least else 0.0)


def _steps(share: Share, at: float) -> Steps:
    """Return the instants at which the amount changes, and the new amounts."""
    steps: Steps = []
    for start_s, amount in zip(share.starts_s.tolist(), share.amounts.tolist(), strict=True):
        if not steps or steps[-1][1] != amount:
            steps.append((at + start_s, amount))
    return steps


class DeadlinePromises:
    """Promised deadlines, and the shares that keep them.

    Attributes
    ----------
    ledgers
        Jobs with a promise, by pool.
    free_takers
        Jobs without one, by pool: no deadline, or an unknown speed. They take spare devices.
    """

    def __init__(self, builder: PlanBuilder, *, margin_s: float, admission: bool) -> None:
        self._builder = builder
        self._admission = admission
        #: Promises of the last plan: kind of nodes, and the job's amounts over time.
        self._last = _carried(builder.snapshot.carry)
        self.declines: dict[JobId, Reason] = {}
        self.free_takers: dict[Pool, list[DeadlineClaim]] = defaultdict(list)
        claims = self._running()
        timelines = _timelines(builder, [claim for own in claims.values() for claim in own])
        self._margin_s, self._timelines = margin_s, timelines
        self._held = {pool: [claim for claim in claims[pool] if claim.has_goal] for pool in timelines}
        self.ledgers = PoolLedgers(builder.snapshot.at, margin_s, {}, set())

    def take(self, waiting: Iterable[JobView]) -> None:
        """Add the waiting jobs: those with a promise together with running ones, then new ones in order."""
        offered = [(view, self._offers(view)) for view in waiting]
        for view, offers in offered:
            if not offers:
                self._builder.explain(view, never_fits(view))
            elif not offers[0].has_goal:
                self.free_takers[offers[0].pool].append(offers[0])
        promisable = [(view, offers) for view, offers in offered if offers and offers[0].has_goal]
        self._keep([pair for pair in promisable if self._is_old(pair[0])])
        for view, offers in promisable:
            if not self._is_old(view):
                self._judge(view, offers)

    def is_new(self, id: JobId) -> bool:
        """Whether the last plan knew nothing of the job."""
        return id not in self._last

    def remembered(self) -> dict[str, dict[str, object]]:
        """Return the promises, for the next plan."""
        return {
            claim.id: {"kind": kind, "steps": [list(step) for step in _steps(share, self._builder.snapshot.at)]}
            for (kind, _), ledger in self.ledgers.of_pool.items()
            for claim, share in zip(ledger.requests, ledger.shares, strict=True)
        }

    def _is_old(self, view: JobView) -> bool:
        return not self._admission or view.started_at is not None or view.spec.id in self._last

    def _running(self) -> dict[Pool, list[DeadlineClaim]]:
        claims: dict[Pool, list[DeadlineClaim]] = defaultdict(list)
        for view in sorted(self._builder.snapshot.holding, key=seniority):
            held = self._builder.held(view)
            if not held or view.spec.worker is None or view.status == "stopping":
                continue
            kind = self._builder.hardware.kind_of[next(iter(held))]
            claim = DeadlineClaim.of(self._builder, view, kind, n_workers(view.spec, held), held=True)
            if claim is not None:
                claims[claim.pool].append(claim)
                if not claim.has_goal:
                    self.free_takers[claim.pool].append(claim)
        return claims

    def _offers(self, view: JobView) -> list[DeadlineClaim]:
        """Return the job's possible claims, the fastest kind of nodes first."""
        amounts = self._builder.hardware.worker_amounts(view.spec)
        if not amounts:
            return []
        kinds = self._builder.kinds_for(view, amounts[0])
        return [
            claim for kind in kinds if (claim := DeadlineClaim.of(self._builder, view, kind, 0, held=False)) is not None
        ]

    def _keep(self, old: list[tuple[JobView, list[DeadlineClaim]]]) -> None:
        """Open the ledgers with the earlier promises; a job stays on its promised kind of nodes."""
        chosen = dict(self._held)
        for view, offers in old:
            kind, _ = self._last.get(view.spec.id, ("", []))
            claim = next((offer for offer in offers if offer.pool[0] == kind), offers[0])
            chosen[claim.pool] = [*chosen[claim.pool], claim]
        for pool, claims in chosen.items():
            last = {id: steps for id, (kind, steps) in self._last.items() if kind == pool[0] and steps}
            self.ledgers.open(self._timelines[pool], pool, claims, last)

    def _judge(self, view: JobView, offers: list[DeadlineClaim]) -> None:
        """Promise the deadline if no job becomes late by it, or decline."""
        for claim in offers:
            ledger = self._trial(claim)
            if ledger is not None:
                self.ledgers.of_pool[claim.pool] = ledger
                return
        if view.status == "queued":
            self.declines[view.spec.id] = self._refusal(offers[0])
        else:  # it may not be ended any more
            self.ledgers.of_pool[offers[0].pool] = self.ledgers.plus(offers[0])

    def _trial(self, claim: DeadlineClaim) -> ReservationLedger[DeadlineClaim] | None:
        """The ledger with the claim, if the claim and all others can keep their deadlines as before."""
        if claim.alone_s() > claim.until_s - self._margin_s:
            return None
        after = self.ledgers.plus(claim)
        return after if after.late <= self.ledgers.of_pool[claim.pool].late else None

    def _refusal(self, claim: DeadlineClaim) -> Reason:
        n, deadline = claim.counts[-1], span(max(0.0, claim.until_s))
        n_promised = float(len(self.ledgers.of_pool[claim.pool].requests))
        facts = {"until_s": claim.until_s, "alone_s": claim.alone_s(), "n_promised": n_promised}
        if claim.alone_s() > claim.until_s - self._margin_s:
            alone, code = span(claim.alone_s()), "too-soon"
            text = f"with {n} workers it takes {alone}, its deadline is in {deadline}"
        else:
            code, n_others = "no-room", f"{n_promised:.0f} jobs promised before"
            text = f"its deadline in {deadline} would make it late, or one of {n_others}"
        return Reason(code, f"declined: {text}", facts)


def _carried(carry: object) -> dict[JobId, tuple[str, Steps]]:
    """Return the promises of this policy's last plan; empty if another policy made the last plan."""
    shares = carry.get("shares") if isinstance(carry, dict) else None
    promises = shares if isinstance(shares, dict) else {}
    return {
        id: (promise["kind"], [(start, amount) for start, amount in promise["steps"]])
        for id, promise in promises.items()
        if isinstance(promise, dict) and promise.keys() == {"kind", "steps"}
    }


def _timelines(builder: PlanBuilder, claims: Iterable[DeadlineClaim]) -> dict[Pool, Timeline]:
    """Return the amounts for jobs made of workers: free and held ones, less what jobs that may not be paused need."""
    amounts: dict[Pool, float] = {}
    for kind, nodes in builder.hardware.kinds.items():
        amounts[kind, True] = float(sum([builder.free[node].gpus for node in nodes]))
        amounts[kind, False] = sum([builder.free[node].cores for node in nodes])
    for claim in claims:
        worker, pool = claim.view.spec.worker or Resources(), claim.pool
        amounts[pool] += claim.n_before * (worker.gpus if pool[1] else worker.cores)
        amounts[pool] -= float(claim.levels.amounts[1]) if claim.least else 0.0
    return {pool: Timeline.of(max(0.0, amount)) for pool, amount in amounts.items()}
