"""One plan of `elasticflow`: who is promised what, who gets what is spare, and where it lies."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Literal

from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.optim.buddy import Block, moves_for
from punctual.optim.timeline import Share, Timeline
from punctual.policies._booking import Book, Claim, Pool, Steps, claim_of
from punctual.policies._jobs import n_workers, never_fits, seniority, span_text, starts, waits
from punctual.policies._layout import lay_out
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import apply_demands, repair

#: Who gets what is spare: whose marginal return is greatest, or least.
SpareTo = Literal["saving", "costly"]

#: Room left of sums of core fractions.
_TOLERANCE = 1e-6
#: No sooner is another plan asked for: of a job that is about to end, the end is heard anyway.
_SOONEST_S = 0.1


def planned(builder: PlanBuilder, *, admission: bool, spare_to: SpareTo, slot_s: float, margin_s: float) -> Plan:
    """The plan; for the arguments see `punctual.policies.elasticflow`."""
    snapshot = builder.snapshot
    idle = repair(builder)
    apply_demands(builder)
    waiting = [view for view in sorted((*snapshot.waiting, *idle), key=seniority) if view.status != "stopping"]
    _start_wholes(builder, [view for view in waiting if view.spec.worker is None])
    promises = _Promises(builder, margin_s=margin_s, admission=admission)
    promises.take([view for view in waiting if view.spec.worker is not None])
    sharing = [_Sharing(book, promises.free_takers[pool], spare_to, slot_s) for pool, book in promises.books.items()]
    runners = [runner for one in sharing for runner in one.share_out()]
    _lay_out(builder, runners)
    _explain_waiting(builder, runners, promises)
    # A job that is late all the same can wait for the next event.
    rises_at_s = min((runner.rises_at_s() for runner in runners if not runner.is_late), default=inf)
    plan = builder.build(shares=promises.remembered())
    at = None if rises_at_s == inf else snapshot.at + max(rises_at_s, _SOONEST_S)
    return replace(plan, declines=promises.declines, ask_again_at=at)


def _start_wholes(builder: PlanBuilder, views: Iterable[JobView]) -> None:
    """Jobs without workers get what they demand, in order of submission, as long as there is room."""
    for view in views:
        allocation = builder.fit(view)
        if allocation is None:
            builder.explain(view, waits(view.spec.floor or view.spec.ceiling, builder.free))
            return
        builder.put(view, allocation, starts(view, allocation))


class _Promises:
    """Which deadlines are promised, and the shares that keep them.

    Attributes
    ----------
    books
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
        self.free_takers: dict[Pool, list[Claim]] = defaultdict(list)
        claims = self._running()
        timelines = _timelines(builder, [claim for own in claims.values() for claim in own])
        self._margin_s, self._timelines = margin_s, timelines
        self._held = {pool: [claim for claim in claims[pool] if claim.has_goal] for pool in timelines}
        self.books: dict[Pool, Book] = {}

    def take(self, waiting: Iterable[JobView]) -> None:
        """Add the jobs that wait: those that have a promise together with those that run, then new ones as they came."""
        found = [(view, self._offers(view)) for view in waiting]
        for view, offers in found:
            if not offers:
                self._builder.explain(view, never_fits(view))
            elif not offers[0].has_goal:
                self.free_takers[offers[0].pool].append(offers[0])
        promisable = [(view, offers) for view, offers in found if offers and offers[0].has_goal]
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
            id: {"kind": kind, "steps": [list(step) for step in steps]}
            for (kind, _), book in self.books.items()
            for id, steps in book.steps(self._builder.snapshot.at).items()
        }

    def _is_old(self, view: JobView) -> bool:
        return not self._admission or view.started_at is not None or view.spec.id in self._last

    def _running(self) -> dict[Pool, list[Claim]]:
        claims: dict[Pool, list[Claim]] = defaultdict(list)
        for view in sorted(self._builder.snapshot.holding, key=seniority):
            held = self._builder.held(view)
            if not held or view.spec.worker is None or view.status == "stopping":
                continue
            kind = self._builder.hardware.kind_of[next(iter(held))]
            claim = claim_of(self._builder, view, kind, n_workers(view.spec, held), held=True)
            if claim is not None:
                claims[claim.pool].append(claim)
                if not claim.has_goal:
                    self.free_takers[claim.pool].append(claim)
        return claims

    def _offers(self, view: JobView) -> list[Claim]:
        """What the job could claim, the fastest kind of nodes first."""
        amounts = self._builder.hardware.worker_amounts(view.spec)
        if not amounts:
            return []
        kinds = self._builder.kinds_for(view, amounts[0])
        return [claim for kind in kinds if (claim := claim_of(self._builder, view, kind, 0, held=False)) is not None]

    def _keep(self, old: list[tuple[JobView, list[Claim]]]) -> None:
        """Open the books with what was promised; a job stays on the kind of nodes where it was promised that."""
        chosen = dict(self._held)
        for view, offers in old:
            kind, _ = self._last.get(view.spec.id, ("", []))
            claim = next((one for one in offers if one.pool[0] == kind), offers[0])
            chosen[claim.pool] = [*chosen[claim.pool], claim]
        for pool, claims in chosen.items():
            last = {id: steps for id, (kind, steps) in self._last.items() if kind == pool[0] and steps}
            self.books[pool] = Book.of(self._timelines[pool], claims, self._margin_s, last)

    def _judge(self, view: JobView, offers: list[Claim]) -> None:
        """Promise the deadline where nobody is late by it, or decline."""
        for claim in offers:
            book = self._trial(claim)
            if book is not None:
                self.books[claim.pool] = book
                return
        if view.status == "queued":
            self.declines[view.spec.id] = self._refusal(offers[0])
        else:  # it may not be ended any more
            self.books[offers[0].pool] = self.books[offers[0].pool].plus(offers[0])

    def _trial(self, claim: Claim) -> Book | None:
        """The book with the claim, if the claim and all others can keep their deadlines as before."""
        before = self.books[claim.pool]
        if claim.alone_s() > claim.until_s - before.margin_s:
            return None
        after = before.plus(claim)
        return after if after.strained <= before.strained else None

    def _refusal(self, claim: Claim) -> Reason:
        n, deadline = claim.ladder.counts[-1], span_text(max(0.0, claim.until_s))
        n_promised = float(len(self.books[claim.pool].claims))
        facts = {"until_s": claim.until_s, "alone_s": claim.alone_s(), "n_promised": n_promised}
        if claim.alone_s() > claim.until_s - self.books[claim.pool].margin_s:
            alone = span_text(claim.alone_s())
            return Reason(
                "too-soon", f"declined: with {n} workers it takes {alone}, its deadline is in {deadline}", facts
            )
        text = (
            f"declined: its deadline in {deadline} would make it late, or one of {n_promised:.0f} jobs promised before"
        )
        return Reason("no-room", text, facts)


def _carried(carry: object) -> dict[JobId, tuple[str, Steps]]:
    """What the last plan of this policy promised; nothing if the last plan was another policy's."""
    shares = carry.get("shares") if isinstance(carry, dict) else None
    found = shares if isinstance(shares, dict) else {}
    return {
        id: (one["kind"], [(start, amount) for start, amount in one["steps"]])
        for id, one in found.items()
        if isinstance(one, dict) and one.keys() == {"kind", "steps"}
    }


def _timelines(builder: PlanBuilder, claims: Iterable[Claim]) -> dict[Pool, Timeline]:
    """What the jobs made of workers can have: what is free, and what they have; less the least of those not to be paused."""
    amounts: dict[Pool, float] = {}
    for kind, nodes in builder.hardware.kinds.items():
        amounts[kind, True] = float(sum([builder.free[node].gpus for node in nodes]))
        amounts[kind, False] = sum([builder.free[node].cores for node in nodes])
    for claim in claims:
        worker, pool = claim.view.spec.worker or Resources(), claim.pool
        amounts[pool] += claim.n_before * (worker.gpus if pool[1] else worker.cores)
        amounts[pool] -= float(claim.ladder.levels.amounts[1]) if claim.least else 0.0
    return {pool: Timeline.of(max(0.0, amount)) for pool, amount in amounts.items()}


@dataclass(slots=True)
class _Runner:
    """A job and the count it gets now: `claim.ladder.counts[i]`. `i_asked` is what its deadline asks for at most."""

    claim: Claim
    share: Share | None
    i: int
    i_asked: int

    @property
    def view(self) -> JobView:
        return self.claim.view

    @property
    def n(self) -> int:
        return self.claim.ladder.counts[self.i]

    @property
    def is_late(self) -> bool:
        """Whether its deadline cannot be met."""
        return self.share is not None and self.share.end_s > self.claim.until_s

    def step(self) -> float:
        """What the next larger count takes more; infinite at the largest."""
        amounts = self.claim.ladder.levels.amounts
        return float(amounts[self.i + 1] - amounts[self.i]) if self.i + 1 < len(amounts) else inf

    def marginal_return(self) -> float:
        """Device time saved later less that taken now, for each device more; of the next larger count."""
        levels, q = self.claim.ladder.levels, max(1, self.i_asked)
        more = float(levels.rates[self.i + 1] - levels.rates[self.i])
        return more * float(levels.amounts[q] / levels.rates[q]) / self.step() - 1.0

    def rises_at_s(self) -> float:
        """When its deadline asks for more than it gets now."""
        return inf if self.share is None else self.share.rises_at_s(float(self.claim.ladder.levels.amounts[self.i]))


class _Sharing:
    """Who gets what in one pool now."""

    def __init__(self, book: Book, free_takers: list[Claim], spare_to: SpareTo, slot_s: float) -> None:
        self._slot_s = slot_s
        self._sign = -1.0 if spare_to == "saving" else 1.0
        self._promised = [_promised(claim, share) for claim, share in zip(book.claims, book.shares, strict=True)]
        takers = sorted(free_takers, key=lambda claim: seniority(claim.view))
        self._others = [_Runner(claim, None, claim.least, 0) for claim in takers]
        self._free = float(book.free.free[0]) + _TOLERANCE

    def share_out(self) -> list[_Runner]:
        """All jobs of the pool with their counts."""
        for runner in sorted(self._promised, key=lambda one: one.rises_at_s()):
            self._rise(runner)
        for runner in (*self._promised, *self._others):
            if runner.i == 0:
                self._grow(runner)
        self._hand_out([runner for runner in (*self._promised, *self._others) if runner.i])
        return self._promised + self._others

    def _rise(self, runner: _Runner) -> None:
        """What its deadline asks for soon it gets at once, as far as there is room."""
        while runner.rises_at_s() < self._slot_s and self._grow(runner):
            pass

    def _hand_out(self, runners: list[_Runner]) -> None:
        """What is spare goes where it saves most time later, or as the published programme sorts, least; again and again."""
        heap = [self._entry(runner) for runner in runners if runner.step() < inf]
        heapify(heap)
        while heap:
            runner = heappop(heap)[-1]
            if self._grow(runner) and runner.step() < inf:
                heappush(heap, self._entry(runner))

    def _entry(self, runner: _Runner) -> tuple[float, float, float, str, _Runner]:
        """For a heap: who comes first."""
        return self._sign * runner.marginal_return(), *runner.claim.rank, runner

    def _grow(self, runner: _Runner) -> bool:
        step = runner.step()
        if step > self._free:
            return False
        self._free -= step
        runner.i += 1
        return True


def _promised(claim: Claim, share: Share) -> _Runner:
    amounts = claim.ladder.levels.amounts
    i = max(claim.least, int(amounts.searchsorted(share.now)))
    return _Runner(claim, share, i, int(amounts.searchsorted(share.amounts.max())))


def _lay_out(builder: PlanBuilder, runners: list[_Runner]) -> None:
    """Find nodes: first what becomes less, then the rest, the largest first, in one piece where that can be."""
    changed = [runner for runner in runners if runner.n != runner.claim.n_before]
    shrinking = [runner for runner in changed if runner.n < runner.claim.n_before]
    for runner in sorted(shrinking, key=lambda one: seniority(one.view)):
        if runner.n:
            _place(builder, runner)
        else:
            builder.put(runner.view, {}, _paused(runner))
    growing = [runner for runner in changed if runner.n > runner.claim.n_before]
    fixed = {runner.view.spec.id for runner in growing}
    for runner in sorted(growing, key=lambda one: (-float(one.claim.ladder.levels.amounts[one.i]), *one.claim.rank)):
        _make_room(builder, runner, fixed)
        _place(builder, runner)


def _place(builder: PlanBuilder, runner: _Runner) -> None:
    view = runner.view
    lay_out(builder, [(view, runner.claim.n_before, runner.n)])
    reason = builder.reasons.get(view.spec.id)
    if reason is not None and builder.held(view):
        builder.explain(view, _with_promise(reason, runner))


def _make_room(builder: PlanBuilder, runner: _Runner, fixed: set[JobId]) -> None:
    """Move smaller jobs together where the job would otherwise be split over more nodes than need be."""
    view, worker, kind = runner.view, runner.view.spec.worker, runner.claim.pool[0]
    if worker is None:
        return
    hardware, held = builder.hardware, builder.held(view)
    nodes = hardware.kinds[kind]
    found = builder.find(view, runner.n, worker, {node: builder.without(view)[node] for node in nodes})
    if found is not None and len(found) <= hardware.n_nodes(runner.n, worker, kind):
        return
    free, capacity = ({node: room[node] for node in nodes} for room in (builder.free, hardware.capacity))
    for block, node in moves_for(runner.n, worker, free, capacity, _movable(builder, fixed), held) or ():
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


def _explain_waiting(builder: PlanBuilder, runners: Iterable[_Runner], promises: _Promises) -> None:
    """Tell new jobs with a promise when they begin, and the first of the others that wait what is missing."""
    idle = [runner for runner in runners if runner.n == 0 and runner.claim.n_before == 0]
    for runner in idle:
        if runner.share is not None and promises.is_new(runner.claim.id):
            wait_s = runner.rises_at_s()
            text = f"promised: it begins within {span_text(wait_s)} and is on time"
            builder.explain(runner.view, Reason("promised", text, {"wait_s": wait_s, "until_s": runner.claim.until_s}))
    others = [runner.view for runner in idle if runner.share is None]
    if others:
        first = min(others, key=seniority)
        builder.explain(first, waits(builder.hardware.worker_amounts(first.spec)[0], builder.free))


def _paused(runner: _Runner) -> Reason:
    """Why a job that had something gets nothing."""
    share = runner.share
    facts = {"n_workers": float(runner.claim.n_before)}
    if share is None:
        return Reason("paused", "paused: deadlines of other jobs need what it had", facts)
    wait_s = share.rises_at_s(0.0)
    text = f"paused for at most {span_text(wait_s)}: its deadline leaves time, those of other jobs do not"
    return Reason("paused", text, facts | {"wait_s": wait_s})


def _with_promise(reason: Reason, runner: _Runner) -> Reason:
    """`reason`, and what the deadline asks for."""
    share, claim = runner.share, runner.claim
    if share is None:
        return reason
    n_asked, slack_s = claim.ladder.counts[runner.i_asked], claim.until_s - share.end_s
    facts = {**reason.facts, "n_asked": float(n_asked), "slack_s": slack_s}
    if runner.is_late:
        return Reason(reason.code, f"{reason.text}; its deadline cannot be met any more", facts)
    return Reason(reason.code, f"{reason.text}; its deadline asks for {n_asked}", facts)
