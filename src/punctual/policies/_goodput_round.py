"""One decision of the policy that makes the speed-ups over fair shares as large as possible."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Protocol

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan, PlanStatus
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.optim.solution import BoolArray, FloatArray, IntArray, Solution, relative_gap
from punctual.policies._base import may_pause, n_workers, waits
from punctual.policies._candidates import Candidate, Field
from punctual.policies._draft import Draft
from punctual.policies._elastic import Change, lay_out
from punctual.policies._goodput_values import Standing, power_mean, speedups_of, values_of
from punctual.policies._options import Table

_PAUSED = Reason("paused", "paused: others would be slowed down more without what it had")


class Parameters(Protocol):
    """What a round takes from the policy."""

    @property
    def power(self) -> float: ...
    @property
    def idle_speedup(self) -> float: ...
    @property
    def interval_s(self) -> float: ...
    @property
    def gap_limit(self) -> float: ...


class Round:
    """The plan for one snapshot."""

    def __init__(self, snapshot: Snapshot, parameters: Parameters) -> None:
        self._snapshot, self._parameters = snapshot, parameters
        self._draft = Draft(snapshot)
        self._field = Field.of(self._draft)
        self._candidates = self._field.candidates
        self._n_restarts = _numbers(snapshot.carry)

    def plan(self) -> Plan:
        """Choose, then find nodes, then say how good it is."""
        if not self._candidates:
            return self._draft.plan()
        table = Table.of([one.options for one in self._candidates], self._field.pools)
        standing = self._standing()
        speedups = speedups_of(standing, table.rates)
        values = values_of(speedups, standing.weights, self._parameters.power, self._parameters.idle_speedup)
        found = self._field.solve(table, values, self._allowed(table), self._parameters.gap_limit)
        if found.status == "infeasible":
            return self._draft.plan(restarts=self._restarts())
        self._seat(found.choices)
        self._explain(speedups)
        return self._finished(found, values, float(standing.weights.sum()), self._wants_more(table, found.choices))

    # The programme.

    def _standing(self) -> Standing:
        at = self._snapshot.at
        views = [one.view for one in self._candidates]
        return Standing(
            weights=np.array([view.spec.weight for view in views]),
            fair_sps=np.array([self._fair_sps(one) for one in self._candidates]),
            ages_s=np.array([max(0.0, at - view.submitted_at) for view in views]),
            n_restarts=np.array([float(self._n_restarts.get(view.id, 0)) for view in views]),
            delays_s=np.array([_delay_s(one) for one in self._candidates]),
            columns=np.array([_column(one) for one in self._candidates], dtype=np.int64),
        )

    def _fair_sps(self, one: Candidate) -> float:
        """The rate with an equal share of what there is; of several kinds of devices the mean, each as often as it is there."""
        shares, n_fair = self._shares(one), self._n_fair(one)
        rate = sum(share * _rate_with(one, kind, n_fair) for kind, share in shares.items())
        return rate / sum(shares.values()) if rate > 0 else one.options.fastest

    def _n_fair(self, one: Candidate) -> int:
        whole = sum(self._shares(one).values())
        return max(1, ceil(whole / one.options.per_worker / len(self._candidates)))

    def _shares(self, one: Candidate) -> dict[str, int]:
        """What there is of each kind of devices on which the job can run."""
        return {pool[0]: self._field.capacities[pool] for pool in one.options.pools}

    def _allowed(self, table: Table) -> BoolArray:
        """A job that may not be paused goes on, on its kind of nodes: what it leaves, it might not find elsewhere."""
        allowed = table.allowed.copy()
        for i, one in enumerate(self._candidates):
            if one.n and not may_pause(one.view):
                kinds = one.options.kinds
                allowed[i, : len(kinds)] = [k > 0 and kind == one.kind for k, kind in enumerate(kinds)]
        return allowed

    def _wants_more(self, table: Table, choices: IntArray) -> bool:
        """Whether a job could be faster: time alone may then change the decision, because penalties fade."""
        chosen = table.rates[np.arange(len(choices)), choices]
        return bool((chosen < table.rates.max(axis=1)).any())

    # Nodes, reasons, and what is handed on.

    def _seat(self, choices: IntArray) -> None:
        """Nodes for every job that changes; one that is to have another kind of nodes leaves those it has first."""
        kinds: dict[JobId, str] = {}
        changes: list[Change] = []
        for one, k in zip(self._candidates, choices.tolist(), strict=True):
            n, kind = one.options.counts[k], one.options.kinds[k]
            if k == _column(one):
                continue
            leaves = one.n > 0 and (not n or kind != one.kind)
            if leaves:
                self._draft.put(one.view, {}, _PAUSED)
            if n:
                kinds[one.id] = kind
                changes.append((one.view, 0 if leaves else one.n, n))

        def room(view: JobView) -> Mapping[NodeId, Resources]:
            free, of_kind = self._draft.without(view), self._draft.hardware.kinds
            return free if len(of_kind) == 1 else {node: free[node] for node in of_kind[kinds[view.id]]}

        lay_out(self._draft, changes, room)

    def _explain(self, speedups: FloatArray) -> None:
        """Say what each change is worth, and to the first job that waits what it waits for."""
        waiting = []
        for i, (one, k) in enumerate(zip(self._candidates, self._columns_given().tolist(), strict=True)):
            if self._draft.grants.get(one.id):
                self._draft.explain(one.view, self._why(one, k, speedups[i]))
            elif not one.n:
                waiting.append(one)
        if waiting and (least := self._draft.hardware.worker_amounts(waiting[0].view.spec)):
            self._draft.explain(waiting[0].view, waits(least[0], self._draft.free))

    def _why(self, one: Candidate, column: int, speedups: FloatArray) -> Reason:
        n, n_fair = one.options.counts[column], self._n_fair(one)
        facts = {"n_workers_before": float(one.n), "n_workers": float(n), "n_workers_fair": float(n_fair)}
        facts["speedup"] = float(speedups[column])
        fair = f"{speedups[column]:.2f} times as fast as with a fair share of {n_fair}"
        if not one.n:
            verb = "starts" if one.view.started_at is None else "goes on"
            return Reason("starts", f"{verb} with {n} worker{'s' * (n != 1)}: {fair}", facts)
        code = "grows" if n > one.n else "shrinks" if n < one.n else "moves"
        if not one.column:
            return Reason(code, f"{one.n} -> {n} workers: {fair}", facts)
        facts["speedup_before"] = float(speedups[one.column])
        return Reason(code, f"{one.n} -> {n} workers: {fair} instead of {speedups[one.column]:.2f}", facts)

    def _finished(self, found: Solution, values: FloatArray, weight: float, wants_more: bool) -> Plan:
        value = float(values[np.arange(len(values)), self._columns_given()].sum())
        power = self._parameters.power
        status: PlanStatus = "optimal" if relative_gap(value, found.bound) == 0 else "feasible"
        plan = self._draft.plan(restarts=self._restarts())
        return replace(
            plan,
            objective=power_mean(value, weight, power),
            bound=power_mean(found.bound, weight, power),
            status=plan.status if plan.status == "infeasible" else status,
            ask_again_at=self._snapshot.at + self._parameters.interval_s if wants_more else None,
        )

    def _columns_given(self) -> IntArray:
        """The columns of what the jobs really get: a number for which there are no nodes was reduced."""
        columns = []
        for one in self._candidates:
            held = self._draft.held(one.view)
            kind = self._draft.hardware.kind_of[next(iter(held))] if held else ""
            columns.append(one.options.column(kind, n_workers(one.view.spec, held)) if held else 0)
        return np.array(columns, dtype=np.int64)

    def _restarts(self) -> dict[str, int]:
        """How often each job was changed, with this plan."""
        counted: dict[str, int] = {}
        for view in (one.view for one in self._candidates):
            is_changed = view.started_at is not None and bool(self._draft.grants.get(view.id))
            n_restarts = self._n_restarts.get(view.id, 0) + is_changed
            if n_restarts:
                counted[view.id] = n_restarts
        return counted


def _column(one: Candidate) -> int:
    """That of what it has; -1 if it has a number that it may not have."""
    return one.column if one.column or not one.n else -1


def _delay_s(one: Candidate) -> float:
    return one.view.spec.resize_cost_s if one.n else one.view.spec.startup_s


def _rate_with(one: Candidate, kind: str, n_fair: int) -> float:
    """The rate on a kind with the largest number not above `n_fair`, or with the smallest there is."""
    options = one.options
    columns = [i for i, on in enumerate(options.kinds) if i and on == kind]
    fitting = [i for i in columns if options.counts[i] <= n_fair] or columns[:1]
    return float(options.rates[fitting[-1]]) if fitting else 0.0


def _numbers(carry: object) -> Mapping[JobId, int]:
    """The restarts that the last plan handed on."""
    restarts = carry.get("restarts") if isinstance(carry, dict) else None
    if not isinstance(restarts, dict):
        return {}
    return {JobId(str(id)): n for id, n in restarts.items() if isinstance(n, int) and n > 0}
