"""Deadlines are promised at submission and kept with the fewest devices; what is spare goes where it costs least."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Literal

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.optim.buddy import Block, moves_for
from punctual.optim.timeline import Levels, Share, Timeline
from punctual.policies._base import PolicyBase
from punctual.policies._hardware import JobRates
from punctual.policies._jobs import n_workers, never_fits, seniority, span_text, starts, waits
from punctual.policies._layout import lay_out
from punctual.policies._marginal import MarginalAllocator
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import apply_demands, repair
from punctual.policies._reservations import Pool, ReservationLedger, ReservationRequest

#: Who gets what is spare: whose marginal return is greatest, or least.
SpareTo = Literal["saving", "costly"]

#: What a job is to hold: from an instant on, so much.
Steps = list[tuple[float, float]]

#: A margin may be smaller by this share of it: rounding.
_MARGIN_ROUNDING_FRAC = 1e-3
#: Room left of sums of core fractions.
_TOLERANCE = 1e-6
#: No sooner is another plan asked for: of a job that is about to end, the end is heard anyway.
_SOONEST_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticflow(PolicyBase):
    """Promises deadlines: each job gets the fewest devices that meet its own, and one that none can meet is declined.

    Use it where a deadline is a promise and an early "no" is better than a late result. Under overload it declines much:
    it promises to whoever comes first, not to those of whom most can be on time.

    Parameters
    ----------
    admission
        Whether jobs are declined. Otherwise all run, and one that cannot be on time gets all it can have.
    spare_to
        ``"saving"``: what is spare goes where it saves most device time later, as the paper says; ``"costly"``: where it
        saves least, as the published programme sorts.
    slot_s
        A job that needs more devices within this time gets them at once if they are spare.
    margin_s
        Deadlines are planned for that much earlier: what is planned to end at the deadline ends a rounding error later.

    Raises
    ------
    InvalidSpec
        `spare_to` is neither of the two, or a time is negative or not finite.

    Notes
    -----
    *Formula.* Jobs with deadlines, in the order of these, each get the minimum satisfactory share q of what the ones
    before it leave: the least count with Σ_t τ_t r(q ∧ F_t) ≥ W over the spans t up to the deadline, with τ_t their
    length, F_t the devices left, r the rate and W the work. From the last instant on from which q is enough the job
    holds q, before that the next smaller count. A new job is declined if it, or with it another one, would be late.
    Where these shares would make a job late that was promised its deadline, those of the last plan are kept.
    What is spare now goes first to those who hold nothing, then, one count c to the next larger c₊ at a time, to
    the job with the greatest marginal return ((r(c₊) − r(c))·q/r(q) − (c₊ − c)) / (c₊ − c): device time that it saves
    later less that which it takes now, for each device.

    *Source.* [elasticflow2023], and its published programme where the two differ.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(jobs² · counts) for a plan, and as much for each new job. With speeds as declared and
    changes that cost nothing every promise is kept.

    *Fails when* speeds are uncertain (nothing is kept in reserve), when changes of size are dear, or under overload.
    """

    admission: bool = True
    spare_to: SpareTo = "saving"
    slot_s: float = 60.0
    margin_s: float = 1.0

    def __post_init__(self) -> None:
        self._check_choice("spare_to", "saving", "costly")
        self._check_not_negative("slot_s", "s")
        self._check_not_negative("margin_s", "s")

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        idle = repair(builder)
        apply_demands(builder)
        waiting = [view for view in sorted((*snapshot.waiting, *idle), key=seniority) if view.status != "stopping"]
        _start_rigid(builder, [view for view in waiting if view.spec.worker is None])
        promises = _Promises(builder, margin_s=self.margin_s, admission=self.admission)
        promises.take([view for view in waiting if view.spec.worker is not None])
        states: list[_JobState] = []
        for pool, ledger in promises.ledgers.of_pool.items():
            states += _Sharing(ledger, promises.free_takers[pool], self.spare_to, self.slot_s).shared_out()
        _lay_out(builder, states)
        _explain_waiting(builder, states, promises)
        # A job that is late all the same can wait for the next event.
        rises_at_s = min((state.rises_at_s() for state in states if not state.is_late), default=inf)
        plan = builder.build(shares=promises.remembered())
        at = None if rises_at_s == inf else snapshot.at + max(rises_at_s, _SOONEST_S)
        return replace(plan, declines=promises.declines, ask_again_at=at)


def _start_rigid(builder: PlanBuilder, views: Iterable[JobView]) -> None:
    """Jobs without workers get what they demand, in order of submission, as long as there is room."""
    for view in views:
        allocation = builder.fit(view)
        if allocation is None:
            builder.explain(view, waits(view.spec.floor or view.spec.ceiling, builder.free))
            return
        builder.put(view, allocation, starts(view, allocation))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Claim(ReservationRequest):
    """One job made of workers, on one kind of nodes.

    Attributes
    ----------
    counts
        The numbers of workers that it may have, the first 0: what `levels` mean.
    known
        Whether anything is known of its speed; otherwise it is taken as proportional to the workers.
    n_before
        Workers it has.
    least
        Index of the count it has at least: 1 while it runs and may not be paused, otherwise 0.
    """

    view: JobView
    counts: tuple[int, ...]
    known: bool
    n_before: int
    least: int

    @classmethod
    def of(cls, builder: PlanBuilder, view: JobView, kind: str, n_before: int, *, held: bool) -> "_Claim | None":
        """The claim of a job on the nodes of `kind`; None if they cannot hold it.

        The work includes the steps that a change costs.
        """
        spec, hardware, at = view.spec, builder.hardware, builder.snapshot.at
        wanted, speed = hardware.counts_wanted(view), hardware.speed(view)
        key = ("powers of two", kind, len(wanted), n_before)
        known_counts = speed.derived(key, lambda: _configurations(view, speed, kind, wanted, n_before))
        if known_counts is None or spec.worker is None:
            return None
        counts, levels, known = known_counts
        steps, cost_s = view.remaining_steps(at), spec.resize_cost_s if held else spec.startup_s
        work = inf if steps is None else max(steps, 1e-9) + cost_s * float(levels.rates[1])
        until_s = inf if view.deadline_at is None else view.deadline_at - at
        return cls(
            id=spec.id, submitted_at=view.submitted_at, pool=(kind, spec.worker.gpus > 0), levels=levels, work=work,
            until_s=until_s, view=view, counts=counts, known=known, n_before=n_before,
            least=int(held and not spec.preemptible),
        )  # fmt: skip

    @property
    def has_goal(self) -> bool:
        """Whether there is a deadline, and enough is known to promise it."""
        return self.until_s < inf and self.known and self.work < inf

    def alone_s(self) -> float:
        """Seconds that it takes with as much as it can have."""
        return self.work / float(self.levels.rates[-1]) if self.known else inf


#: Counts, the first 0, their levels, and whether anything is known of the speed.
_Configurations = tuple[tuple[int, ...], Levels, bool]


def _configurations(
    view: JobView, speed: JobRates, kind: str, counts: tuple[int, ...], n_before: int
) -> _Configurations | None:
    """Powers of two that are faster than the ones before them, and what the job has; all counts if none is a power."""
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
class _Ledgers:
    """The promises by pool, with the rules that give each job its share."""

    at: float
    margin_s: float
    of_pool: dict[Pool, ReservationLedger[_Claim]]
    #: Pools in which the shares of the last plan are kept; others only get what they leave.
    kept: set[Pool]

    def open(self, timeline: Timeline, pool: Pool, claims: Iterable[_Claim], last: Mapping[JobId, Steps]) -> None:
        """Reserve the shares of `claims` in a pool.

        The least shares of today need not fit where those of the last plan do: one that has become smaller lasts
        longer. If they do not, the shares of the `last` plan are kept.
        """
        spare_s = -self.margin_s * (1 - _MARGIN_ROUNDING_FRAC)
        self.of_pool[pool] = fresh = ReservationLedger[_Claim](timeline, spare_s)
        ranked = sorted(claims, key=lambda claim: claim.rank)
        for claim in ranked:
            fresh.reserve(claim, self.least)
        if not fresh.late or not last:
            return
        kept = ReservationLedger[_Claim](timeline, spare_s)
        for claim in sorted(ranked, key=lambda claim: claim.id not in last):
            kept.reserve(claim, partial(self.as_before, steps=last[claim.id]) if claim.id in last else self.least)
        if len(kept.late) < len(fresh.late):
            self.of_pool[pool] = kept
            self.kept.add(pool)

    def plus(self, claim: _Claim) -> ReservationLedger[_Claim]:
        """The ledger of the claim's pool with one more claim. Earlier deadlines do not notice it."""
        ledger = self.of_pool[claim.pool]
        if claim.pool not in self.kept:
            return ledger.plus(claim, self.least)
        ledger = ledger.first(len(ledger.requests))
        ledger.reserve(claim, self.least)
        return ledger

    def least(self, timeline: Timeline, claim: _Claim) -> tuple[Timeline, Share]:
        """The least share; of a job that cannot be on time all it can have."""
        timeline = _with_own(timeline, claim)
        levels, work, until_s, least = claim.levels, claim.work, claim.until_s, claim.least
        share = timeline.least_share(levels, work, until_s - self.margin_s, least=least)
        share = share or timeline.least_share(levels, work, until_s, least=least)
        return timeline, share or timeline.soonest(levels, work, least=least)

    def as_before(self, timeline: Timeline, claim: _Claim, steps: Steps) -> tuple[Timeline, Share]:
        """The share of the last plan, if that is enough."""
        starts_s, amounts = [start - self.at for start, _ in steps], [amount for _, amount in steps]
        split = _with_own(timeline, claim).split(starts_s)
        share = split.follow(claim.levels, claim.work, starts_s, amounts, least=claim.least)
        return (split, share) if share.end_s <= claim.until_s else self.least(timeline.split(starts_s), claim)


def _with_own(timeline: Timeline, claim: _Claim) -> Timeline:
    """A job that may not be paused has its least amount already: it was not free."""
    return timeline.plus(float(claim.levels.amounts[1]) if claim.least else 0.0)


def _steps(share: Share, at: float) -> Steps:
    """When the amount changes, and to what."""
    steps: Steps = []
    for start_s, amount in zip(share.starts_s.tolist(), share.amounts.tolist(), strict=True):
        if not steps or steps[-1][1] != amount:
            steps.append((at + start_s, amount))
    return steps


class _Promises:
    """Which deadlines are promised, and the shares that keep them.

    Attributes
    ----------
    ledgers
        For each pool, the jobs with a promise.
    free_takers
        For each pool, the jobs without: no deadline, or nothing known of their speed. They take what is spare.
    """

    def __init__(self, builder: PlanBuilder, *, margin_s: float, admission: bool) -> None:
        self._builder = builder
        self._admission = admission
        #: What the last plan promised: kind of nodes, and what the job is to hold from when on.
        self._last = _carried(builder.snapshot.carry)
        self.declines: dict[JobId, Reason] = {}
        self.free_takers: dict[Pool, list[_Claim]] = defaultdict(list)
        claims = self._running()
        timelines = _timelines(builder, [claim for own in claims.values() for claim in own])
        self._margin_s, self._timelines = margin_s, timelines
        self._held = {pool: [claim for claim in claims[pool] if claim.has_goal] for pool in timelines}
        self.ledgers = _Ledgers(builder.snapshot.at, margin_s, {}, set())

    def take(self, waiting: Iterable[JobView]) -> None:
        """Add the jobs that wait: those that have a promise together with those that run, then new ones as they came."""
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
        """What is promised, for the next plan."""
        return {
            claim.id: {"kind": kind, "steps": [list(step) for step in _steps(share, self._builder.snapshot.at)]}
            for (kind, _), ledger in self.ledgers.of_pool.items()
            for claim, share in zip(ledger.requests, ledger.shares, strict=True)
        }

    def _is_old(self, view: JobView) -> bool:
        return not self._admission or view.started_at is not None or view.spec.id in self._last

    def _running(self) -> dict[Pool, list[_Claim]]:
        claims: dict[Pool, list[_Claim]] = defaultdict(list)
        for view in sorted(self._builder.snapshot.holding, key=seniority):
            held = self._builder.held(view)
            if not held or view.spec.worker is None or view.status == "stopping":
                continue
            kind = self._builder.hardware.kind_of[next(iter(held))]
            claim = _Claim.of(self._builder, view, kind, n_workers(view.spec, held), held=True)
            if claim is not None:
                claims[claim.pool].append(claim)
                if not claim.has_goal:
                    self.free_takers[claim.pool].append(claim)
        return claims

    def _offers(self, view: JobView) -> list[_Claim]:
        """What the job could claim, the fastest kind of nodes first."""
        amounts = self._builder.hardware.worker_amounts(view.spec)
        if not amounts:
            return []
        kinds = self._builder.kinds_for(view, amounts[0])
        return [claim for kind in kinds if (claim := _Claim.of(self._builder, view, kind, 0, held=False)) is not None]

    def _keep(self, old: list[tuple[JobView, list[_Claim]]]) -> None:
        """Open the ledgers with what was promised; a job stays on the kind of nodes where it was promised that."""
        chosen = dict(self._held)
        for view, offers in old:
            kind, _ = self._last.get(view.spec.id, ("", []))
            claim = next((offer for offer in offers if offer.pool[0] == kind), offers[0])
            chosen[claim.pool] = [*chosen[claim.pool], claim]
        for pool, claims in chosen.items():
            last = {id: steps for id, (kind, steps) in self._last.items() if kind == pool[0] and steps}
            self.ledgers.open(self._timelines[pool], pool, claims, last)

    def _judge(self, view: JobView, offers: list[_Claim]) -> None:
        """Promise the deadline where nobody is late by it, or decline."""
        for claim in offers:
            ledger = self._trial(claim)
            if ledger is not None:
                self.ledgers.of_pool[claim.pool] = ledger
                return
        if view.status == "queued":
            self.declines[view.spec.id] = self._refusal(offers[0])
        else:  # it may not be ended any more
            self.ledgers.of_pool[offers[0].pool] = self.ledgers.plus(offers[0])

    def _trial(self, claim: _Claim) -> ReservationLedger[_Claim] | None:
        """The ledger with the claim, if the claim and all others can keep their deadlines as before."""
        if claim.alone_s() > claim.until_s - self._margin_s:
            return None
        after = self.ledgers.plus(claim)
        return after if after.late <= self.ledgers.of_pool[claim.pool].late else None

    def _refusal(self, claim: _Claim) -> Reason:
        n, deadline = claim.counts[-1], span_text(max(0.0, claim.until_s))
        n_promised = float(len(self.ledgers.of_pool[claim.pool].requests))
        facts = {"until_s": claim.until_s, "alone_s": claim.alone_s(), "n_promised": n_promised}
        if claim.alone_s() > claim.until_s - self._margin_s:
            alone, code = span_text(claim.alone_s()), "too-soon"
            text = f"with {n} workers it takes {alone}, its deadline is in {deadline}"
        else:
            code, n_others = "no-room", f"{n_promised:.0f} jobs promised before"
            text = f"its deadline in {deadline} would make it late, or one of {n_others}"
        return Reason(code, f"declined: {text}", facts)


def _carried(carry: object) -> dict[JobId, tuple[str, Steps]]:
    """What the last plan of this policy promised; nothing if the last plan was another policy's."""
    shares = carry.get("shares") if isinstance(carry, dict) else None
    promises = shares if isinstance(shares, dict) else {}
    return {
        id: (promise["kind"], [(start, amount) for start, amount in promise["steps"]])
        for id, promise in promises.items()
        if isinstance(promise, dict) and promise.keys() == {"kind", "steps"}
    }


def _timelines(builder: PlanBuilder, claims: Iterable[_Claim]) -> dict[Pool, Timeline]:
    """What the jobs made of workers can have: what is free, and what they have; less the least of those not to be paused."""
    amounts: dict[Pool, float] = {}
    for kind, nodes in builder.hardware.kinds.items():
        amounts[kind, True] = float(sum([builder.free[node].gpus for node in nodes]))
        amounts[kind, False] = sum([builder.free[node].cores for node in nodes])
    for claim in claims:
        worker, pool = claim.view.spec.worker or Resources(), claim.pool
        amounts[pool] += claim.n_before * (worker.gpus if pool[1] else worker.cores)
        amounts[pool] -= float(claim.levels.amounts[1]) if claim.least else 0.0
    return {pool: Timeline.of(max(0.0, amount)) for pool, amount in amounts.items()}


@dataclass(slots=True)
class _JobState:
    """A job and the count it gets now: `claim.counts[i]`. `i_asked` is what its deadline asks for at most."""

    claim: _Claim
    share: Share | None
    i: int
    i_asked: int

    @property
    def view(self) -> JobView:
        return self.claim.view

    @property
    def n(self) -> int:
        return self.claim.counts[self.i]

    @property
    def is_late(self) -> bool:
        """Whether its deadline cannot be met."""
        return self.share is not None and self.share.end_s > self.claim.until_s

    def step(self) -> float:
        """What the next larger count takes more; infinite at the largest."""
        amounts = self.claim.levels.amounts
        return float(amounts[self.i + 1] - amounts[self.i]) if self.i + 1 < len(amounts) else inf

    def marginal_return(self) -> float:
        """Device time saved later less that taken now, for each device more; of the next larger count."""
        levels, q = self.claim.levels, max(1, self.i_asked)
        more = float(levels.rates[self.i + 1] - levels.rates[self.i])
        return more * float(levels.amounts[q] / levels.rates[q]) / self.step() - 1.0

    def rises_at_s(self) -> float:
        """When its deadline asks for more than it gets now."""
        return inf if self.share is None else self.share.rises_at_s(float(self.claim.levels.amounts[self.i]))


class _Sharing:
    """Who gets what in one pool now."""

    def __init__(
        self, ledger: ReservationLedger[_Claim], free_takers: list[_Claim], spare_to: SpareTo, slot_s: float
    ) -> None:
        self._slot_s = slot_s
        self._sign = -1.0 if spare_to == "saving" else 1.0
        self._promised = [_promised(claim, share) for claim, share in zip(ledger.requests, ledger.shares, strict=True)]
        takers = sorted(free_takers, key=lambda claim: seniority(claim.view))
        self._others = [_JobState(claim, None, claim.least, 0) for claim in takers]
        self._free = float(ledger.free.free[0]) + _TOLERANCE

    def shared_out(self) -> list[_JobState]:
        """All jobs of the pool with their counts."""
        for state in sorted(self._promised, key=lambda state: state.rises_at_s()):
            self._rise(state)
        for state in (*self._promised, *self._others):
            if state.i == 0:
                self._grow(state)
        self._hand_out([state for state in (*self._promised, *self._others) if state.i])
        return self._promised + self._others

    def _rise(self, state: _JobState) -> None:
        """What its deadline asks for soon it gets at once, as far as there is room."""
        while state.rises_at_s() < self._slot_s and self._grow(state):
            pass

    def _hand_out(self, states: list[_JobState]) -> None:
        """What is spare goes where it saves most time later, or as the published programme sorts, least; again and again."""
        MarginalAllocator(self._rank, self._grow).run(states)

    def _rank(self, state: _JobState) -> tuple[float, float] | None:
        """The greatest return first, or the least; of equal ones the earliest deadline."""
        return (self._sign * state.marginal_return(), state.claim.until_s) if state.step() < inf else None

    def _grow(self, state: _JobState) -> bool:
        step = state.step()
        if step > self._free:
            return False
        self._free -= step
        state.i += 1
        return True


def _promised(claim: _Claim, share: Share) -> _JobState:
    amounts = claim.levels.amounts
    i = max(claim.least, int(amounts.searchsorted(share.now)))
    return _JobState(claim, share, i, int(amounts.searchsorted(share.amounts.max())))


def _lay_out(builder: PlanBuilder, states: list[_JobState]) -> None:
    """Find nodes: first what becomes less, then the rest, the largest first, in one piece where that can be."""
    changed = [state for state in states if state.n != state.claim.n_before]
    shrinking = [state for state in changed if state.n < state.claim.n_before]
    for state in sorted(shrinking, key=lambda state: seniority(state.view)):
        if state.n:
            _place(builder, state)
        else:
            builder.put(state.view, {}, _paused(state))
    growing = [state for state in changed if state.n > state.claim.n_before]
    fixed = {state.view.spec.id for state in growing}
    for state in sorted(growing, key=lambda state: (-float(state.claim.levels.amounts[state.i]), *state.claim.rank)):
        _make_room(builder, state, fixed)
        _place(builder, state)


def _place(builder: PlanBuilder, state: _JobState) -> None:
    view = state.view
    lay_out(builder, [(view, state.claim.n_before, state.n)])
    reason = builder.reasons.get(view.spec.id)
    if reason is not None and builder.held(view):
        builder.explain(view, _with_promise(reason, state))


def _make_room(builder: PlanBuilder, state: _JobState, fixed: set[JobId]) -> None:
    """Move smaller jobs together where the job would otherwise be split over more nodes than need be."""
    view, worker, kind = state.view, state.view.spec.worker, state.claim.pool[0]
    if worker is None:
        return
    hardware, held = builder.hardware, builder.held(view)
    nodes = hardware.kinds[kind]
    placed = builder.find(view, state.n, worker, {node: builder.without(view)[node] for node in nodes})
    if placed is not None and len(placed) <= hardware.n_nodes(state.n, worker, kind):
        return
    free, capacity = ({node: room[node] for node in nodes} for room in (builder.free, hardware.capacity))
    for block, node in moves_for(state.n, worker, free, capacity, _movable(builder, fixed), held) or ():
        builder.put(
            block.id, {node: block.amount}, Reason("moved", f"moved: '{view.spec.id}' gets a place in one piece")
        )


def _movable(builder: PlanBuilder, fixed: set[JobId]) -> dict[NodeId, list[Block[JobView]]]:
    """Jobs that lie whole on one node and may be restarted elsewhere, by node.

    One that this plan, or the last one, changes is none of them: it would wait for room while others wait for what it
    gives up, and the two may be the same.
    """
    blocks: dict[NodeId, list[Block[JobView]]] = defaultdict(list)
    for view in sorted(builder.snapshot.holding, key=seniority):
        id, held = view.spec.id, view.planned
        is_settled = view.status == "running" and view.granted == held and id not in fixed and id not in builder.grants
        if is_settled and view.spec.preemptible and view.spec.worker is not None and len(held) == 1:
            node, amount = next(iter(held.items()))
            blocks[node].append(Block(view, node, amount))
    return blocks


def _explain_waiting(builder: PlanBuilder, states: Iterable[_JobState], promises: _Promises) -> None:
    """Tell new jobs with a promise when they begin, and the first of the others that wait what is missing."""
    idle = [state for state in states if state.n == 0 and state.claim.n_before == 0]
    for state in idle:
        if state.share is not None and promises.is_new(state.claim.id):
            wait_s = state.rises_at_s()
            text = f"promised: it begins within {span_text(wait_s)} and is on time"
            builder.explain(state.view, Reason("promised", text, {"wait_s": wait_s, "until_s": state.claim.until_s}))
    others = [state.view for state in idle if state.share is None]
    if others:
        first = min(others, key=seniority)
        builder.explain(first, waits(builder.hardware.worker_amounts(first.spec)[0], builder.free))


def _paused(state: _JobState) -> Reason:
    """Why a job that had something gets nothing."""
    share = state.share
    facts = {"n_workers": float(state.claim.n_before)}
    if share is None:
        return Reason("paused", "paused: deadlines of other jobs need what it had", facts)
    wait_s = share.rises_at_s(0.0)
    text = f"paused for at most {span_text(wait_s)}: its deadline leaves time, those of other jobs do not"
    return Reason("paused", text, facts | {"wait_s": wait_s})


def _with_promise(reason: Reason, state: _JobState) -> Reason:
    """`reason`, and what the deadline asks for."""
    share, claim = state.share, state.claim
    if share is None:
        return reason
    n_asked, slack_s = claim.counts[state.i_asked], claim.until_s - share.end_s
    facts = {**reason.facts, "n_asked": float(n_asked), "slack_s": slack_s}
    if state.is_late:
        return Reason(reason.code, f"{reason.text}; its deadline cannot be met any more", facts)
    return Reason(reason.code, f"{reason.text}; its deadline asks for {n_asked}", facts)
