"""One decision of the policy that chooses the numbers of workers of all jobs at once."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal, Protocol

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan, PlanStatus
from punctual.core.resources import TOLERANCE, Resources
from punctual.core.story import Reason
from punctual.optim.solution import BoolArray, FloatArray, IntArray, Solution, relative_gap
from punctual.policies._base import n_workers, never_fits, same_amount, seniority, span_text, unit_of, waits
from punctual.policies._draft import Draft
from punctual.policies._elastic import lay_out
from punctual.policies._elastic_values import Standing, values_of
from punctual.policies._options import PARTS_PER_CORE, Options, Pool, Table, options_of
from punctual.policies._repair import follow_demands, settle, start_wholes

#: A job of unknown length is taken to need as long again as it has run, and at least this long.
_UNKNOWN_S = 3600.0
#: A job whose value is this close to the price lacks devices, not value.
_SAME_FRAC = 0.995


class Parameters(Protocol):
    """What a round takes from the policy."""

    @property
    def objective(self) -> Literal["fraction", "throughput"]: ...
    @property
    def unit(self) -> Literal["devices", "nodes"]: ...
    @property
    def interval_s(self) -> float: ...
    @property
    def waiting_s(self) -> float: ...
    @property
    def n_up_max(self) -> int | None: ...
    @property
    def n_down_max(self) -> int | None: ...
    @property
    def gap_limit(self) -> float: ...


@dataclass(slots=True)
class Entry:
    """One job made of workers: what it may have, how many workers it has and on which kind of nodes.

    `unit` is a worker, with a server beside it if the job has servers; `column` that of the number it has: 0 if it has
    none, -1 if it may not have that many any more.
    """

    view: JobView
    options: Options
    unit: Resources
    kind: str
    n: int
    column: int

    @property
    def id(self) -> JobId:
        return self.view.spec.id


class Round:
    """The plan for one snapshot."""

    def __init__(self, snapshot: Snapshot, parameters: Parameters) -> None:
        self._at, self._parameters = snapshot.at, parameters
        self._draft = Draft(snapshot)
        idle = settle(self._draft)
        follow_demands(self._draft)
        waiting = sorted((*snapshot.waiting, *idle), key=seniority) if idle else snapshot.waiting
        waiting = [view for view in waiting if view.status != "stopping"]
        start_wholes(self._draft, waiting)
        self._nodes = _WholeNodes(self._draft) if parameters.unit == "nodes" else None
        self._entries = [*self._running(), *self._candidates(waiting)]
        self._pools: list[Pool] = sorted({pool for one in self._entries for pool in one.options.pools})

    def plan(self) -> Plan:
        """Choose, then find nodes, then say why."""
        if not self._entries:
            return self._draft.plan()
        table = Table.of([one.options for one in self._entries], self._pools)
        costs = table.amounts if self._nodes is None else self._in_nodes(table)
        p = self._parameters
        values = values_of(self._standing(costs, table.rates), table.rates, p.objective, p.interval_s)
        found = self._solve(costs, values, table)
        if found.status == "infeasible":
            return self._draft.plan()
        self._seat(found.choices)
        columns = self._columns_given(found.choices)
        prices = dict(zip(self._pools, found.multipliers.tolist(), strict=True))
        self._explain(values, costs, columns, prices)
        return self._finished(found, float(values[np.arange(len(columns)), columns].sum()))

    # Who takes part.

    def _running(self) -> Iterable[Entry]:
        """Jobs that hold something; one that runs as nobody expected, or beside others on a node, stays as it is."""
        draft = self._draft
        for view in sorted(draft.snapshot.holding, key=seniority):
            held, unit = draft.held(view), unit_of(view.spec)
            if not held or unit is None or view.status == "stopping":
                continue
            options, kind = options_of(draft.hardware, view), draft.hardware.kind_of[next(iter(held))]
            if options is None or kind not in options.kinds or not (self._nodes is None or self._nodes.owns(view)):
                continue
            n = draft.hardware.n_held(view) if held is view.planned else n_workers(view.spec, held)
            yield Entry(view, options, unit, kind, n, self._column(options, kind, n))

    def _candidates(self, waiting: Iterable[JobView]) -> Iterable[Entry]:
        for view in waiting:
            unit = unit_of(view.spec)
            if unit is None:
                continue
            options = options_of(self._draft.hardware, view)
            if options is None:
                self._draft.explain(view, never_fits(view))
            else:
                yield Entry(view, options, unit, "", 0, 0)

    def _column(self, options: Options, kind: str, n: int) -> int:
        if len(self._draft.hardware.kinds) > 1:
            return options.column(kind, n) or -1
        i = bisect_left(options.counts, n)
        return i if i < len(options.counts) and options.counts[i] == n else -1

    # The programme.

    def _standing(self, costs: IntArray, rates: FloatArray) -> Standing:
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.where(costs > 0, rates / costs, 0.0).max(axis=1)
        return Standing(
            weights=np.array([self._weight(one) for one in self._entries]),
            left=np.array([self._left(one) for one in self._entries]),
            change_s=np.array(
                [one.view.spec.resize_cost_s if one.n else one.view.spec.startup_s for one in self._entries]
            ),
            columns=np.array([one.column for one in self._entries], dtype=np.int64),
            best=np.where(best > 0, best, 1.0),
        )

    def _weight(self, one: Entry) -> float:
        view = one.view
        if one.n:
            return view.spec.weight
        since = view.submitted_at if view.started_at is None else view.granted_at
        return view.spec.weight * (1.0 + max(0.0, self._at - since) / self._parameters.waiting_s)

    def _left(self, one: Entry) -> float:
        """What is left in the unit of the rates: steps, or seconds of one worker if nothing is known of the speed."""
        left = one.view.remaining_steps(self._at)
        if left is not None and one.options.known:
            return left
        if left is not None and one.n and one.view.rate_sps > 0:
            return left * one.n / one.view.rate_sps
        if self._parameters.objective == "throughput":
            return inf
        since = one.view.started_at
        ran_s = 0.0 if since is None else self._at - since
        return float(one.options.rates[max(1, one.column)]) * max(ran_s, _UNKNOWN_S)

    def _in_nodes(self, table: Table) -> IntArray:
        """How many nodes each column takes, as if they were empty."""
        per_node = {
            (one.unit, kind): self._draft.hardware.n_per_node(one.unit, kind)
            for one in self._entries
            for kind in dict.fromkeys(one.options.kinds[1:])
        }
        costs = np.zeros_like(table.amounts)
        for i, one in enumerate(self._entries):
            n_of = [per_node[one.unit, kind] for kind in one.options.kinds[1:]]
            costs[i, 1 : len(n_of) + 1] = -(-np.array(one.options.counts[1:]) // np.array(n_of))
        return costs

    def _solve(self, costs: IntArray, values: FloatArray, table: Table) -> Solution:
        allowed, capacities, p = self._allowed(table), self._capacities(costs), self._parameters
        carried = self._draft.carry.get("price")
        price = carried if isinstance(carried, float) and 0 <= carried < inf else None
        return table.solve(costs, values, capacities, allowed, p.gap_limit, price)

    def _allowed(self, table: Table) -> BoolArray:
        allowed = table.allowed.copy()
        allowed[:, 0] = [not one.n for one in self._entries]
        p, n_kinds = self._parameters, len(self._draft.hardware.kinds)
        if n_kinds > 1 or p.n_up_max is not None or p.n_down_max is not None:
            for i, one in enumerate(self._entries):
                if one.n:
                    allowed[i] &= self._reachable(one, table.allowed.shape[1])
        return allowed

    def _reachable(self, one: Entry, width: int) -> BoolArray:
        """The columns of its kind, from so many below to so many above the number that the job has."""
        own = [i for i, kind in enumerate(one.options.kinds) if i and kind == one.kind]
        now = max(0, bisect_right([one.options.counts[i] for i in own], one.n) - 1)
        up, down = self._parameters.n_up_max, self._parameters.n_down_max
        reachable = np.zeros(width, dtype=bool)
        reachable[own[0 if down is None else max(0, now - down) : None if up is None else now + up + 1]] = True
        return reachable

    def _capacities(self, costs: IntArray) -> list[int]:
        """What the jobs may share: what is free, and what they have."""
        has = {pool: self._free_of(pool) for pool in self._pools}
        for i, one in enumerate(self._entries):
            if one.n:
                pool = (one.kind, one.options.uses_gpus)
                has[pool] += self._taken(one, int(costs[i, max(0, one.column)]))
        return list(has.values())

    def _taken(self, one: Entry, cost: int) -> int:
        if self._nodes is not None:
            return len(self._draft.held(one.view))
        return cost if one.column > 0 else one.n * one.options.per_worker

    def _free_of(self, pool: Pool) -> int:
        (kind, uses_gpus), free = pool, self._draft.free
        nodes = self._draft.hardware.kinds[kind]
        if self._nodes is not None:
            return sum(self._nodes.is_empty(node) for node in nodes)
        if uses_gpus:
            return int(sum([free[node].gpus for node in nodes]))
        return int(sum((free[node].cores + TOLERANCE) * PARTS_PER_CORE for node in nodes))

    # Nodes, reasons, and what is handed on.

    def _seat(self, choices: IntArray) -> None:
        chosen = {one.id: one.options.kinds[k] for one, k in zip(self._entries, choices, strict=True)}
        changes = [
            (one.view, one.n, one.options.counts[k])
            for one, k in zip(self._entries, choices.tolist(), strict=True)
            if k != one.column
        ]

        def room(view: JobView) -> Mapping[NodeId, Resources]:
            free = self._draft.without(view) if self._nodes is None else self._nodes.room(view)
            if len(self._draft.hardware.kinds) == 1:
                return free
            return {node: free[node] for node in self._draft.hardware.kinds[chosen[view.spec.id]] if node in free}

        lay_out(self._draft, changes, room)

    def _columns_given(self, choices: IntArray) -> IntArray:
        """The columns of what the jobs really get: a number for which there are no nodes was reduced."""
        columns = choices.copy()
        for i, one in enumerate(self._entries):
            held = self._draft.grants.get(one.id)
            if held is not None:
                kind = self._draft.hardware.kind_of[next(iter(held))] if held else ""
                columns[i] = max(0, self._column(one.options, kind, n_workers(one.view.spec, held)))
            elif columns[i] != one.column:
                columns[i] = max(0, one.column)
        return columns

    def _explain(self, values: FloatArray, costs: IntArray, columns: IntArray, prices: Mapping[Pool, float]) -> None:
        """Say what each change is worth, and to the first job that waits what it waits for."""
        first = None
        for i, (one, k) in enumerate(zip(self._entries, columns.tolist(), strict=True)):
            if one.id in self._draft.grants:
                self._explain_change(one, values[i, max(0, one.column)], values[i, k])
            elif not one.n and first is None:
                first = i
        if first is not None and self._entries[first].id not in self._draft.reasons:
            self._explain_waiting(self._entries[first], values[first], costs[first], prices)

    def _explain_change(self, one: Entry, before: float, after: float) -> None:
        reason, p = self._draft.reasons[one.id], self._parameters
        weight = self._weight(one)
        before, after = before / weight, after / weight
        facts = {**reason.facts, "value_before": before, "value": after, "interval_s": p.interval_s}
        if p.objective == "fraction":
            text = f"{after:.1%} of what is left in the next {span_text(p.interval_s)}"
        else:
            text = f"work of {after:.1f} {p.unit} at their best"
        self._draft.explain(one.view, Reason(reason.code, f"{reason.text}; {text}", facts))

    def _explain_waiting(self, one: Entry, values: FloatArray, costs: IntArray, prices: Mapping[Pool, float]) -> None:
        """What it could start with is not there, or would bring less with it than others do."""
        width = len(one.options.counts)
        worth = float((values[1:width] / costs[1:width]).max())
        price = min(prices[pool] for pool in one.options.pools)
        if worth >= _SAME_FRAC * price:
            self._draft.explain(one.view, waits(one.unit * min(one.options.counts[1:]), self._draft.free))
            return
        each = "node" if self._nodes is not None else "device" if one.options.uses_gpus else "share of a core"
        text = f"waits: a {each} is worth {worth / price:.0%} of the least that others gain by it"
        facts = {"value_each": worth, "price_each": price}
        self._draft.explain(one.view, Reason("waits", text, facts))

    def _finished(self, found: Solution, objective: float) -> Plan:
        prices = found.multipliers.tolist()
        carry = {"price": prices[0]} if len(prices) == 1 and isfinite(prices[0]) else {}
        plan = self._draft.plan(**carry)
        # Where there is enough for all, time alone changes nothing.
        again_at = self._at + self._parameters.interval_s if any(prices) else None
        status: PlanStatus = "optimal" if relative_gap(objective, found.bound) == 0 else "feasible"
        return replace(
            plan, bound=found.bound, objective=objective, ask_again_at=again_at,
            status=plan.status if plan.status == "infeasible" else status,
        )  # fmt: skip


class _WholeNodes:
    """Which nodes can be given as a whole: those that are empty, and those that one job has to itself."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        held = [draft.held(view) for view in draft.snapshot.holding]
        self._n_on = Counter(node for allocation in held for node in allocation)

    def is_empty(self, node: NodeId) -> bool:
        free, whole = self._draft.free[node], self._draft.hardware.capacity[node]
        return free.gpus == whole.gpus and same_amount(free, whole)

    def owns(self, view: JobView) -> bool:
        return all(self._n_on[node] == 1 for node in self._draft.held(view))

    def room(self, view: JobView) -> dict[NodeId, Resources]:
        """What is free for the job: empty nodes, and its own."""
        own, free = self._draft.held(view), self._draft.without(view)
        return {node: free[node] for node in free if node in own or self.is_empty(node)}
