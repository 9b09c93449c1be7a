"""Promise deadlines at submission, keep them with the fewest devices, and spend spare ones where they cost least."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.units import span
from punctual.papers.elasticflow.buddy import Block, moves_for
from punctual.papers.elasticflow.minimum_shares import DeadlineClaim, DeadlinePromises
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import share_by_rank
from punctual.policies._jobs import never_fits, seniority, starts, waits
from punctual.policies._layout import lay_out
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import apply_demands, repair
from punctual.policies._reservations import ReservationLedger
from punctual.solvers.timeline import Share

#: Receiver of spare devices: the job whose marginal return is greatest, or least.
SpareTo = Literal["saving", "costly"]

#: Room left of sums of core fractions.
_TOLERANCE = 1e-6
#: Shortest time to the next plan: the end of a job that is about to end is an event anyway.
_SOONEST_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticflow(PolicyBase):
    """Promises deadlines: each job gets the fewest devices that meet its own; a deadline that none meet is declined.

    Use it where a deadline is a promise and an early "no" is better than a late result. Under overload it declines much:
    it promises to whoever comes first, not to those of whom most can be on time.

    Formula, properties and differences: `docs/explanation/policies/elasticflow.md`.

    Parameters
    ----------
    admission
        Whether jobs are declined. Otherwise all run, and one that cannot be on time gets all it can have.
    spare_to
        ``"saving"``: spare devices go where they save most device time later, as the paper says; ``"costly"``: where it
        saves least, as the published programme sorts.
    slot_s
        A job that needs more devices within this time gets them at once if they are spare.
    margin_s
        Seconds by which plans aim earlier than deadlines, because of rounding errors.
    """

    admission: bool = True
    spare_to: SpareTo = "saving"
    slot_s: float = 60.0
    margin_s: float = 1.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        idle = repair(builder)
        apply_demands(builder)
        waiting = [view for view in sorted((*snapshot.waiting, *idle), key=seniority) if view.status != "stopping"]
        _start_rigid(builder, [view for view in waiting if view.spec.worker is None])
        promises = DeadlinePromises(builder, margin_s=self.margin_s, admission=self.admission)
        promises.take([view for view in waiting if view.spec.worker is not None])
        states: list[_JobState] = []
        rises_at_s = inf
        for pool, ledger in promises.ledgers.of_pool.items():
            sharing = _Sharing(ledger, promises.free_takers[pool], self.spare_to, self.slot_s)
            states += sharing.shared_out()
            rises_at_s = min(rises_at_s, sharing.rises_at_s())
        _lay_out(builder, states)
        _explain_waiting(builder, states, promises)
        plan = builder.build(shares=promises.remembered())
        at = None if rises_at_s == inf else snapshot.at + max(rises_at_s, _SOONEST_S)
        return replace(plan, declines=promises.declines, ask_again_at=at)


def _start_rigid(builder: PlanBuilder, views: Iterable[JobView]) -> None:
    """Give jobs without workers their demands, in order of submission, while they fit."""
    for view in views:
        if builder.hardware.amount(view) is None:
            builder.explain(view, never_fits(view))
            continue
        allocation = builder.fit(view)
        if allocation is None:
            builder.explain(view, waits(view.spec.floor or view.spec.ceiling, builder.free))
            return
        builder.put(view, allocation, starts(view, allocation))


@dataclass(slots=True)
class _JobState:
    """A job and its present count, `claim.counts[i]`; `i_asked` is the largest count that its deadline needs."""

    claim: DeadlineClaim
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
    def amount(self) -> float:
        return float(self.claim.levels.amounts[self.i])

    @property
    def is_late(self) -> bool:
        """Whether its deadline cannot be met."""
        return self.share is not None and self.share.end_s > self.claim.until_s

    def step(self) -> float:
        """Devices that the next larger count takes more; infinite at the largest."""
        amounts = self.claim.levels.amounts
        return float(amounts[self.i + 1] - amounts[self.i]) if self.i + 1 < len(amounts) else inf

    def marginal_return(self) -> float:
        """Return the device time that the next count saves later, less that taken now, for each device more."""
        levels, q = self.claim.levels, max(1, self.i_asked)
        more = float(levels.rates[self.i + 1] - levels.rates[self.i])
        return more * float(levels.amounts[q] / levels.rates[q]) / self.step() - 1.0

    def rises_at_s(self) -> float:
        """Seconds until its deadline needs more than its present amount."""
        return inf if self.share is None else self.share.rises_at_s(self.amount)


class _Sharing:
    """Present shares of the jobs in one pool."""

    def __init__(
        self,
        ledger: ReservationLedger[DeadlineClaim],
        free_takers: list[DeadlineClaim],
        spare_to: SpareTo,
        slot_s: float,
    ) -> None:
        self._slot_s = slot_s
        self._sign = -1.0 if spare_to == "saving" else 1.0
        self._promised = [_promised(claim, share) for claim, share in zip(ledger.requests, ledger.shares, strict=True)]
        takers = sorted(free_takers, key=lambda claim: seniority(claim.view))
        self._others = [_JobState(claim, None, claim.least, 0) for claim in takers]
        self._free = float(ledger.free.free[0]) + _TOLERANCE

    def shared_out(self) -> list[_JobState]:
        """Return all jobs of the pool with their counts."""
        for state in sorted(self._promised, key=lambda state: state.rises_at_s()):
            self._rise(state)
        for state in (*self._promised, *self._others):
            if state.i == 0:
                self._grow(state)
        self._hand_out([state for state in (*self._promised, *self._others) if state.i])
        return self._promised + self._others

    def rises_at_s(self) -> float:
        """Seconds until a deadline needs more than its job has, and the amount will be free.

        A job that is late all the same can wait for the next event. So can one that waits for a job that should have
        ended already: its end is an event, at an unknown time. In case it does not come, the policy plans again after a
        slot.
        """
        rises_s = [state.rises_at_s() for state in self._promised if not state.is_late]
        return min((max(at_s, self._slot_s) if self._waits_for_end(at_s) else at_s for at_s in rises_s), default=inf)

    def _waits_for_end(self, at_s: float) -> bool:
        """Whether the needed devices are free only after the end of a job that is overdue."""
        shares = [(state, state.share) for state in self._promised if state.share is not None and state.n]
        is_waiting = any(state.claim.is_overdue and share.end_s <= at_s for state, share in shares)
        return is_waiting and not any(share.end_s > at_s and share.at(at_s) < state.amount for state, share in shares)

    def _rise(self, state: _JobState) -> None:
        """Give the job at once what its deadline will need soon, as far as it fits."""
        while state.rises_at_s() < self._slot_s and self._grow(state):
            pass

    def _hand_out(self, states: list[_JobState]) -> None:
        """Give spare devices step by step to the job that saves most time later (as published: least)."""
        share_by_rank(states, self._rank, self._grow)

    def _rank(self, state: _JobState) -> tuple[float, float] | None:
        """Return the rank: the greatest return first, or the least; of equal ones the earliest deadline."""
        return (self._sign * state.marginal_return(), state.claim.until_s) if state.step() < inf else None

    def _grow(self, state: _JobState) -> bool:
        step = state.step()
        if step > self._free:
            return False
        self._free -= step
        state.i += 1
        return True


def _promised(claim: DeadlineClaim, share: Share) -> _JobState:
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
    for state in sorted(growing, key=lambda state: (-state.amount, *state.claim.rank)):
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
    nodes, without = hardware.kinds[kind], builder.without(view)
    placed = builder.find(view, state.n, worker, {node: without[node] for node in nodes})
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


def _explain_waiting(builder: PlanBuilder, states: Iterable[_JobState], promises: DeadlinePromises) -> None:
    """Tell newly promised jobs when they begin, and the first other waiting job its reason."""
    idle = [state for state in states if state.n == 0 and state.claim.n_before == 0]
    for state in idle:
        if state.share is not None and promises.is_new(state.claim.id):
            wait_s = state.rises_at_s()
            text = f"promised: it begins within {span(wait_s)} and is on time"
            builder.explain(state.view, Reason("promised", text, {"wait_s": wait_s, "until_s": state.claim.until_s}))
    others = [state.view for state in idle if state.share is None]
    if others:
        first = min(others, key=seniority)
        builder.explain(first, waits(builder.hardware.worker_amounts(first.spec)[0], builder.free))


def _paused(state: _JobState) -> Reason:
    """Return the reason why a job that had something gets nothing."""
    share = state.share
    facts = {"n_workers": float(state.claim.n_before)}
    if share is None:
        return Reason("paused", "paused: deadlines of other jobs need what it had", facts)
    wait_s = share.rises_at_s(0.0)
    text = f"paused for at most {span(wait_s)}: its deadline leaves time, those of other jobs do not"
    return Reason("paused", text, facts | {"wait_s": wait_s})


def _with_promise(reason: Reason, state: _JobState) -> Reason:
    """Return `reason` with the need of the deadline."""
    share, claim = state.share, state.claim
    if share is None:
        return reason
    n_asked, slack_s = claim.counts[state.i_asked], claim.until_s - share.end_s
    facts = {**reason.facts, "n_asked": float(n_asked), "slack_s": slack_s}
    if state.is_late:
        return Reason(reason.code, f"{reason.text}; its deadline cannot be met any more", facts)
    return Reason(reason.code, f"{reason.text}; its deadline asks for {n_asked}", facts)
