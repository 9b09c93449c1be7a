"""Choose the numbers of workers of all jobs at once by an integer programme."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources, same_amount
from punctual.core.units import span
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._base import PolicyBase
from punctual.policies._configurations import PARTS, Pool
from punctual.policies._jobs import waits
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import prepare
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, Solution, status_of

#: Objective: the share of each job's work, or the work itself in devices at their best.
Objective = Literal["fraction", "throughput"]
#: Resource that is shared: devices, or whole nodes.
Unit = Literal["devices", "nodes"]

#: A job of unknown length is taken to need as long again as it has run, and at least this long.
_UNKNOWN_S = 3600.0
#: A job whose value is this close to the price lacks devices, not value.
_SAME_FRAC = 0.995
#: Extra worth of a job that ends at once over one that ends with the interval.
_SOONER = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticMip(PolicyBase):
    """Chooses how many workers each job gets so that all together get done as much as possible, with a proven bound.

    The allocator of [hu2021], solved as a knapsack. Use it for elastic jobs of known length and speed where short ones
    are to end soon. It pauses no job and does not look at deadlines; under overload long jobs wait long.

    Formula, properties and differences: `docs/explanation/policies/elastic-mip.md`.

    Parameters
    ----------
    objective
        *fraction*: the share of what is left of each job; *throughput*: device-seconds of work, counted as if every
        device were used as well as the job can use one.
    unit
        *devices*, or *nodes*: a job then has its nodes to itself.
    interval_s
        Time for which a decision is taken; while there is too little for all, the next one follows after it at the
        latest.
    waiting_s
        Waiting so long doubles a job's weight, twice as long triples it; infinite: waiting changes nothing.
    n_up_max, n_down_max
        Largest change of a running job in one decision, in steps of its allowed numbers; None: any.
    gap_limit
        Share of the objective by which a decision may fall short of the best one.
    """

    objective: Objective = "fraction"
    unit: Unit = "devices"
    interval_s: float = 300.0
    waiting_s: float = 3600.0
    n_up_max: int | None = None
    n_down_max: int | None = None
    gap_limit: float = 1e-4

    def __post_init__(self) -> None:
        self._check_choice("objective", "fraction", "throughput")
        self._check_choice("unit", "devices", "nodes")
        self._check_not_negative("interval_s", "s")
        self._check_not_negative("gap_limit")
        self._check_positive("interval_s", "s")
        self._check_positive("waiting_s", "s")
        self._check_positive("n_up_max")
        self._check_positive("n_down_max")

    def allocate(self, snapshot: Snapshot) -> Plan:
        return _Round(self, self._builder(snapshot)).plan()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Standing:
    """State of each job; all of shape (n_jobs,)."""

    weights: FloatArray  # Factor of its value.
    left: FloatArray  # Remaining work in the unit of its rates, seconds apart; infinite: unknown.
    change_s: FloatArray  # Loss by a change of its number of workers, seconds.
    columns: IntArray  # Column of its present number; -1 if it has none.
    best: FloatArray  # Its highest rate for one unit of the resource.


class _Round:
    """The plan for one snapshot."""

    def __init__(self, policy: ElasticMip, builder: PlanBuilder) -> None:
        self._policy, self._builder, self._at = policy, builder, builder.snapshot.at
        waiting = prepare(builder)
        self._nodes = _WholeNodes(builder) if policy.unit == "nodes" else None
        self._problem = AllocationProblem.of(builder, waiting, self._takes_part)
        self._candidates = self._problem.candidates
        if self._nodes is not None:
            self._problem.capacities = self._nodes.capacities(self._problem)

    def plan(self) -> Plan:
        """Choose, then find nodes, then say why."""
        if not self._candidates:
            return self._builder.build()
        table, policy = self._problem.table, self._policy
        costs = table.amounts if self._nodes is None else self._nodes.costs(self._problem)
        per_unit = PARTS if self._nodes is None else 1
        units: FloatArray = costs / per_unit
        values = values_of(self._standing(units, table.rates), table.rates, policy.objective, policy.interval_s)
        solution = self._problem.solve(values, self._allowed(), policy.gap_limit, costs=costs)
        if solution.status == "infeasible":
            return self._builder.build()
        self._problem.lay_out(solution.choices, None if self._nodes is None else self._nodes.room)
        columns = self._problem.columns_given()
        prices = dict(zip(self._problem.pools, (solution.multipliers * per_unit).tolist(), strict=True))
        self._explain(values, units, columns, prices)
        return self._finished(solution, float(values[np.arange(len(columns)), columns].sum()))

    def _takes_part(self, candidate: Candidate) -> bool:
        """Whether the job takes part: one on an unexpected configuration or a shared node stays as it is."""
        if not candidate.n:
            return True
        owns = self._nodes is None or self._nodes.owns(candidate.view)
        return candidate.kind in candidate.options.kinds and owns

    def _standing(self, costs: FloatArray, rates: FloatArray) -> _Standing:
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.where(costs > 0, rates / costs, 0.0).max(axis=1)
        specs = [(candidate.n, candidate.view.spec) for candidate in self._candidates]
        return _Standing(
            weights=np.array([self._weight(candidate) for candidate in self._candidates]),
            left=np.array([self._left(candidate) for candidate in self._candidates]),
            change_s=np.array([spec.resize_cost_s if n else spec.startup_s for n, spec in specs]),
            columns=np.array([candidate.held_column for candidate in self._candidates], dtype=np.int64),
            best=np.where(best > 0, best, 1.0),
        )

    def _weight(self, candidate: Candidate) -> float:
        view = candidate.view
        if candidate.n:
            return view.spec.weight
        since = view.submitted_at if view.started_at is None else view.granted_at
        return view.spec.weight * (1.0 + max(0.0, self._at - since) / self._policy.waiting_s)

    def _left(self, candidate: Candidate) -> float:
        """Return the remaining work in the unit of the rates: steps, or seconds of one worker if unknown."""
        if candidate.remaining is not None:
            return candidate.remaining
        left = candidate.view.remaining_steps(self._at)
        if left is not None and candidate.n and candidate.view.rate_sps > 0:
            return left * candidate.n / candidate.view.rate_sps
        if self._policy.objective == "throughput":
            return inf
        since = candidate.view.started_at
        ran_s = 0.0 if since is None else self._at - since
        return float(candidate.options.rates[max(1, candidate.column)]) * max(ran_s, _UNKNOWN_S)

    def _allowed(self) -> BoolArray:
        """Running jobs keep something, on their kind of nodes, within the steps up and down that are allowed."""
        allowed = self._problem.table.allowed.copy()
        allowed[:, 0] = [not candidate.n for candidate in self._candidates]
        policy, n_kinds = self._policy, len(self._builder.hardware.kinds)
        if n_kinds > 1 or policy.n_up_max is not None or policy.n_down_max is not None:
            for i, candidate in enumerate(self._candidates):
                if candidate.n:
                    allowed[i] &= self._reachable(candidate, allowed.shape[1])
        return allowed

    def _reachable(self, candidate: Candidate, width: int) -> BoolArray:
        """Return the columns of its kind within the allowed change of its number of workers."""
        own = [i for i, kind in enumerate(candidate.options.kinds) if i and kind == candidate.kind]
        now = max(0, bisect_right([candidate.options.counts[i] for i in own], candidate.n) - 1)
        up, down = self._policy.n_up_max, self._policy.n_down_max
        reachable = np.zeros(width, dtype=bool)
        reachable[own[0 if down is None else max(0, now - down) : None if up is None else now + up + 1]] = True
        return reachable

    def _explain(self, values: FloatArray, costs: FloatArray, columns: IntArray, prices: Mapping[Pool, float]) -> None:
        """Explain the worth of each change, and the first waiting job's reason."""
        first = None
        for i, (candidate, k) in enumerate(zip(self._candidates, columns.tolist(), strict=True)):
            if candidate.id in self._builder.grants:
                self._explain_change(candidate, values[i, max(0, candidate.column)], values[i, k])
            elif not candidate.n and first is None:
                first = i
        if first is not None and self._candidates[first].id not in self._builder.reasons:
            self._explain_waiting(self._candidates[first], values[first], costs[first], prices)

    def _explain_change(self, candidate: Candidate, before: float, after: float) -> None:
        reason, p = self._builder.reasons[candidate.id], self._policy
        weight = self._weight(candidate)
        before, after = before / weight, after / weight
        facts = {**reason.facts, "value_before": before, "value": after, "interval_s": p.interval_s}
        if p.objective == "fraction":
            text = f"{after:.1%} of what is left in the next {span(p.interval_s)}"
        else:
            text = f"work of {after:.1f} {p.unit} at their best"
        self._builder.explain(candidate.view, Reason(reason.code, f"{reason.text}; {text}", facts))

    def _explain_waiting(
        self, candidate: Candidate, values: FloatArray, costs: FloatArray, prices: Mapping[Pool, float]
    ) -> None:
        """Explain why it waits: its first number does not fit, or others gain more by it."""
        width = len(candidate.options.counts)
        worth = float((values[1:width] / costs[1:width]).max())
        price = min(prices[pool] for pool in candidate.options.pools)
        unit = candidate.view.spec.unit
        if unit is not None and worth >= _SAME_FRAC * price:
            self._builder.explain(candidate.view, waits(unit * min(candidate.options.counts[1:]), self._builder.free))
            return
        each = "node" if self._nodes is not None else "device" if candidate.options.uses_gpus else "core"
        text = f"waits: a {each} is worth {worth / price:.0%} of the least that others gain by it"
        facts = {"value_each": worth, "price_each": price}
        self._builder.explain(candidate.view, Reason("waits", text, facts))

    def _finished(self, solution: Solution, objective: float) -> Plan:
        plan = self._builder.build()
        # If the capacity suffices for all, time alone changes nothing.
        again_at = self._at + self._policy.interval_s if solution.multipliers.any() else None
        return replace(
            plan,
            bound=solution.bound,
            objective=objective,
            ask_again_at=again_at,
            status=plan.status if plan.status == "infeasible" else status_of(objective, solution.bound, inf),
        )


class _WholeNodes:
    """Nodes that can be given as a whole: empty ones, and those that one job has to itself."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._builder = builder
        held = [builder.held(view) for view in builder.snapshot.holding]
        self._n_on = Counter(node for allocation in held for node in allocation)

    def is_empty(self, node: NodeId) -> bool:
        free, capacity = self._builder.free[node], self._builder.hardware.capacity[node]
        return free.gpus == capacity.gpus and same_amount(free, capacity)

    def owns(self, view: JobView) -> bool:
        return all(self._n_on[node] == 1 for node in self._builder.held(view))

    def capacities(self, problem: AllocationProblem) -> dict[Pool, int]:
        """Return the number of nodes for the candidates to share: empty ones, and their own."""
        nodes_of = self._builder.hardware.kinds
        has = {pool: sum(self.is_empty(node) for node in nodes_of[pool[0]]) for pool in problem.pools}
        for candidate in problem.candidates:
            if candidate.n:
                has[candidate.pool] += len(self._builder.held(candidate.view))
        return has

    def costs(self, problem: AllocationProblem) -> IntArray:
        """Return the number of nodes that each column takes, as if they were empty; shape (n, m)."""
        n_per_node, costs = self._builder.hardware.n_per_node, np.zeros_like(problem.table.amounts)
        for i, candidate in enumerate(problem.candidates):
            options, unit = candidate.options, candidate.view.spec.unit
            n_on_one = {kind: n_per_node(unit, kind) for kind, _ in options.pools} if unit else {}
            n_of = [n_on_one[kind] for kind in options.kinds[1:]]
            costs[i, 1 : len(n_of) + 1] = -(-np.array(options.counts[1:]) // np.array(n_of))
        return costs

    def room(self, view: JobView) -> dict[NodeId, Resources]:
        """Return the free amounts for the job: on empty nodes, and on its own."""
        own, free = self._builder.held(view), self._builder.without(view)
        return {node: free[node] for node in free if node in own or self.is_empty(node)}


def values_of(
    standing: _Standing, rates: FloatArray, objective: Literal["fraction", "throughput"], interval_s: float
) -> FloatArray:
    """The weighted value of each number of workers, shape (n_jobs, n_columns), 0 in column 0.

    Parameters
    ----------
    rates
        Shape (n_jobs, n_columns), 0 for numbers that a job may not have.
    interval_s
        Seconds until the next decision, above zero.
    """
    lost_s = np.where(_changes(standing.columns, rates.shape[1]), standing.change_s[:, None], 0.0)
    value = _fraction if objective == "fraction" else _throughput
    table = np.asarray(standing.weights[:, None] * value(standing, rates, lost_s, interval_s))
    table[:, 0] = 0.0
    return table


def _fraction(standing: _Standing, rates: FloatArray, lost_s: FloatArray, interval_s: float) -> FloatArray:
    """Return the share of the remaining work done in the interval, at even progress to the end.

    What ends within the interval is worth a little more the sooner it does: where there is enough for all it would
    otherwise have to do with the fewest workers, beside idle ones.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        end_s = standing.left[:, None] / rates + lost_s
        share = interval_s / end_s
    # Jobs that end at once and jobs that cannot run both divide by zero.
    sooner = _SOONER * np.fmax(0.0, 1.0 - end_s / interval_s)
    return np.where(rates > 0, np.fmin(1.0, share) + sooner, 0.0)


def _throughput(standing: _Standing, rates: FloatArray, lost_s: FloatArray, interval_s: float) -> FloatArray:
    """Return the work done in the interval, in units of the resource, each at the job's best use."""
    done = np.minimum(rates * np.maximum(0.0, interval_s - lost_s), standing.left[:, None])
    return np.asarray(done / (standing.best[:, None] * interval_s))


def _changes(columns: IntArray, width: int) -> BoolArray:
    return np.not_equal(columns[:, None], np.arange(width))
