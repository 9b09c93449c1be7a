"""One decision of `smd` and `smd-exact`: waiting jobs start, running jobs keep what they have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf

import numpy as np

from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.units import counted, span
from punctual.papers.smd.worker_server_pairs import Pairs, pairs_of, vector, worths
from punctual.policies._jobs import never_fits, seniority, waits
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import apply_demands, repair
from punctual.solvers.placement import place_together
from punctual.solvers.solution import FloatArray

#: Number of other pairs to try if one finds no nodes.
_N_FALLBACKS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """Possible pairs of a waiting job on one kind of nodes, and the worth of each now."""

    view: JobView
    kind: str
    pairs: Pairs
    worths: FloatArray


@dataclass(frozen=True, slots=True)
class ChosenPair:
    """A job is to start with the pair number `i` of its offer, or if that finds no nodes with a smaller one.

    `facts` go with its reason if it gets this very pair.
    """

    offer: Offer
    i: int
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def worth(self) -> float:
        return float(self.offer.worths[self.i])

    @property
    def amounts(self) -> FloatArray:
        return np.asarray(self.offer.pairs.amounts[self.i])


class StartingRound:
    """The snapshot after repairs: waiting jobs, what each may hold, and the capacities.

    Parameters
    ----------
    interval_s
        Waiting jobs are decided about together at the multiples of it, in between none is; 0: at every change.

    Attributes
    ----------
    waiting
        The jobs to decide about now, in order of submission.
    """

    def __init__(self, builder: PlanBuilder, interval_s: float = 0.0) -> None:
        self.builder, snapshot = builder, builder.snapshot
        self._at = snapshot.at
        idle = repair(self.builder)
        apply_demands(self.builder)
        waiting = sorted((*snapshot.waiting, *idle), key=seniority)
        self._unplaced = [view for view in waiting if view.status != "stopping"]
        self._kinds = list(self.builder.hardware.kinds)
        self._next_at, is_due = _next_at(builder.carry.get("next_at"), self._at, interval_s)
        self.waiting = self._unplaced if is_due else []

    @property
    def running(self) -> list[JobView]:
        """Return the jobs that hold something on present nodes."""
        kind_of = self.builder.hardware.kind_of
        held = ((view, self.builder.held(view)) for view in self.builder.snapshot.holding)
        return [view for view, allocation in held if allocation and next(iter(allocation)) in kind_of]

    def offers(self, view: JobView) -> list[Offer]:
        """Return the job's offers on each kind of nodes where it can run, the fastest first; explain if it has none."""
        hardware = self.builder.hardware
        pairs_on = [(kind, pairs_of(hardware, view, kind)) for kind in self._kinds]
        offers = [
            Offer(view, kind, pairs, worths(view, pairs, self._at)) for kind, pairs in pairs_on if pairs is not None
        ]
        if not offers:
            self.builder.explain(view, never_fits(view))
        return sorted(offers, key=lambda offer: float(offer.pairs.step_s.min()))

    def capacity(self) -> FloatArray:
        """Return the capacity of each kind of nodes, used or not; shape (kinds · R,)."""
        return self._on_kinds(self.builder.hardware.capacity)

    def free(self) -> FloatArray:
        """Return the free amounts; shape (kinds · R,)."""
        return self._on_kinds(self.builder.free)

    def _on_kinds(self, rooms: Mapping[NodeId, Resources]) -> FloatArray:
        nodes_of = self.builder.hardware.kinds
        totals = [total(rooms[node] for node in nodes_of[kind]) for kind in self._kinds]
        vectors = [vector(self.builder.hardware, amount) for amount in totals]
        return np.concatenate(vectors) if vectors else np.zeros(0)

    def on_kind(self, kind: str, amounts: FloatArray) -> FloatArray:
        """Amounts (..., R) as they lie in the capacity: (..., kinds · R)."""
        n = amounts.shape[-1]
        begin = self._kinds.index(kind) * n
        spread = np.zeros((*amounts.shape[:-1], len(self._kinds) * n))
        spread[..., begin : begin + n] = amounts
        return spread

    def kind_of(self, allocation: Allocation) -> str:
        """The kind of nodes on which something lies."""
        return self.builder.hardware.kind_of[next(iter(allocation))]

    def start(self, chosen_pairs: Sequence[ChosenPair]) -> float:
        """Place the chosen pairs, the largest first. Returns the total worth of the jobs that start."""
        capacity = np.maximum(self.capacity(), 1.0)
        shares = [
            (self.on_kind(chosen.offer.kind, chosen.amounts) / capacity).max(initial=0.0) for chosen in chosen_pairs
        ]
        order = sorted(
            zip(shares, chosen_pairs, strict=True), key=lambda pair: (-pair[0], *seniority(pair[1].offer.view))
        )
        return sum(self._start(chosen) for _, chosen in order)

    def _start(self, chosen: ChosenPair) -> float:
        """Start the job and return its worth; 0 if it does not fit."""
        for i in _tries(chosen):
            allocation = self._place(chosen.offer, i)
            if allocation is not None:
                facts = chosen.facts if i == chosen.i else {}
                self.builder.put(chosen.offer.view, allocation, self._why(chosen.offer, i, allocation, facts))
                return float(chosen.offer.worths[i])
        return 0.0

    def _place(self, offer: Offer, i: int) -> Allocation | None:
        """Nodes of the kind for one pair: one node for all of it if possible, otherwise the fewest for the workers."""
        view, spec = offer.view, offer.view.spec
        nodes = self.builder.hardware.kinds[offer.kind]
        free = self.builder.free if len(self._kinds) == 1 else {node: self.builder.free[node] for node in nodes}
        if spec.worker is None:
            return self.builder.fit(view, free)
        n_workers, n_servers = int(offer.pairs.workers[i]), int(offer.pairs.servers[i])
        return place_together(n_workers, spec.worker, n_servers, spec.server or NOTHING, free)

    def _why(self, offer: Offer, i: int, allocation: Allocation, more: Mapping[str, float]) -> Reason:
        view, pairs = offer.view, offer.pairs
        facts = {"worth": float(offer.worths[i]), "n_nodes": float(len(allocation)), **more}
        what = str(total(allocation.values()))
        if view.spec.worker is not None:
            n_workers, n_servers = int(pairs.workers[i]), int(pairs.servers[i])
            facts |= {"n_workers": float(n_workers), "n_servers": float(n_servers)}
            what = counted(n_workers, "worker") + (f" and {counted(n_servers, 'server')}" if n_servers else "")
        steps = view.remaining_steps(self._at)
        finish_s = steps * float(pairs.step_s[i]) if steps is not None and pairs.known else inf
        when = ""
        if finish_s < inf:
            facts["finish_s"] = finish_s
            when = f", done in {span(finish_s)}"
        verb = "starts" if view.started_at is None else "goes on"
        text = f"{verb} with {what} on {counted(len(allocation), 'node')}{when}: worth {offer.worths[i]:.3g}"
        return Reason("starts", text, facts)

    def plan(self, *, objective: float | None = None, bound: float | None = None) -> Plan:
        """Return the plan, with a reason for the first job that waits."""
        left = [view for view in self._unplaced if not self._decided(view)]
        again_at = self._next_at if left else None
        if left and not self.waiting and again_at is not None:
            text = f"it is decided about with all that wait in {span(again_at - self._at)}"
            self.builder.explain(left[0], Reason("waits", text, {"in_s": again_at - self._at}))
        elif left:
            first = left[0]
            wanted = first.spec.worker * first.spec.worker_counts()[0] if first.spec.worker else first.demand
            self.builder.explain(first, waits(wanted, self.builder.free))
        plan = self.builder.build(**({} if again_at is None else {"next_at": again_at}))
        return replace(plan, objective=objective, bound=bound, ask_again_at=again_at)

    def _decided(self, view: JobView) -> bool:
        """Whether the job starts, or was told that it never can."""
        return bool(self.builder.held(view)) or (
            view.spec.id in self.builder.reasons and self.builder.reasons[view.spec.id].code == "never-fits"
        )


def _next_at(carried: object, at: float, interval_s: float) -> tuple[float | None, bool]:
    """Return the instant of the next decision about waiting jobs, and whether it is now.

    `carried` is the instant from the last plan; without one, because no job waited, new jobs wait for the next
    multiple of the interval.
    """
    if interval_s <= 0:
        return None, True
    following = (floor(at / interval_s) + 1) * interval_s
    if not isinstance(carried, int | float):
        return following, False
    return (following, True) if at >= carried else (float(carried), False)


def _tries(chosen: ChosenPair) -> Sequence[int]:
    """The pair, then some that take no more of anything, the best first, and the smallest of these last."""
    pairs, order = chosen.offer.pairs, np.argsort(-chosen.offer.worths, kind="stable")
    smaller = order[(pairs.amounts[order] <= chosen.amounts).all(axis=1)]
    picked = np.unique(np.linspace(0, len(smaller) - 1, _N_FALLBACKS).round().astype(np.int64))
    return [chosen.i, *(int(i) for i in smaller[picked] if i != chosen.i and chosen.offer.worths[i] > 0)]
