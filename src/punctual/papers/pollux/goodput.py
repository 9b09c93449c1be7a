"""Maximise a power mean of the jobs' speed-ups over a fair share, in which the slowest count most."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.units import counted
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._base import PolicyBase
from punctual.policies._jobs import may_pause, waits
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import prepare
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, Solution, status_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput(PolicyBase):
    """Makes the power mean of all jobs' speed-ups over a fair share as large as possible, with a proven bound.

    The objective of [pollux2021], solved as a knapsack. Use it for jobs of which the length is not known and the speed
    is: nobody falls far behind a fair share, and devices go where they speed up most. For jobs whose batch grows with
    their devices the speed is the goodput. It looks neither at deadlines nor at what is left of a job.

    Formula, properties and differences: `docs/explanation/policies/goodput.md`.

    Parameters
    ----------
    power
        p of the mean, from -10 to 1 and not 0: the lower, the more the slowest job counts.
    idle_speedup
        A job that holds nothing counts as if it had this speed-up.
    interval_s
        While a job could be faster the next decision follows after it at the latest: penalties fade as jobs grow older.
    gap_limit
        Share of the sum of terms by which a decision may fall short of the best one.
    """

    power: float = -1.0
    idle_speedup: float = 0.004
    interval_s: float = 300.0
    gap_limit: float = 1e-4

    def __post_init__(self) -> None:
        if not -10 <= self.power <= 1 or self.power == 0:
            raise self._wrong(
                "`power` must be from -10 to 1 and not 0",
                str(self.power),
                "Give -1 as published, less to be fairer, more for more speed in all.",
            )
        self._check_not_negative("gap_limit")
        for parameter, unit in (("idle_speedup", ""), ("interval_s", "s")):
            self._check_not_negative(parameter, unit)
            self._check_positive(parameter, unit)

    def allocate(self, snapshot: Snapshot) -> Plan:
        return _Round(self, self._builder(snapshot)).plan()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Standing:
    """State of each job; all of shape (n_jobs,)."""

    weights: FloatArray  # Its weight.
    fair_sps: FloatArray  # Its rate with a fair share.
    ages_s: FloatArray  # Seconds since its submission.
    n_restarts: FloatArray  # Changes that it has been through, its first start not counted.
    delays_s: FloatArray  # Cost of one more, seconds.
    columns: IntArray  # Column of its allocation; 0: it holds nothing; -1: it may not keep it.

    def factors(self) -> FloatArray:
        """Return the factor on a speed-up after a change, (T − R δ) / (T + δ); a waiting job counts as δ older."""
        ages_s = self.ages_s + np.where(self.columns == 0, self.delays_s, 0.0)
        left_s, past_s = np.maximum(0.0, ages_s - self.n_restarts * self.delays_s), ages_s + self.delays_s
        return np.where(self.delays_s > 0, left_s / np.where(past_s > 0, past_s, 1.0), 1.0)


class _Round:
    """The plan for one snapshot."""

    def __init__(self, policy: Goodput, builder: PlanBuilder) -> None:
        self._policy, self._builder, self._at = policy, builder, builder.snapshot.at
        self._problem = AllocationProblem.of(builder, prepare(builder))
        self._candidates = self._problem.candidates
        self._n_restarts = _numbers(builder.snapshot.carry)

    def plan(self) -> Plan:
        """Choose, then find nodes, then say how good it is."""
        if not self._candidates:
            return self._builder.build()
        standing, policy = self._standing(), self._policy
        speedups = speedups_of(standing, self._problem.table.rates)
        values = values_of(speedups, standing.weights, policy.power, policy.idle_speedup)
        solution = self._problem.solve(values, self._allowed(), policy.gap_limit)
        if solution.status == "infeasible":
            return self._builder.build(restarts=self._restarts())
        self._problem.lay_out(solution.choices)
        self._explain(speedups)
        return self._finished(solution, values, float(standing.weights.sum()), self._wants_more(solution.choices))

    def _standing(self) -> _Standing:
        at = self._at
        views = [candidate.view for candidate in self._candidates]
        return _Standing(
            weights=np.array([view.spec.weight for view in views]),
            fair_sps=np.array([self._fair_sps(candidate) for candidate in self._candidates]),
            ages_s=np.array([max(0.0, at - view.submitted_at) for view in views]),
            n_restarts=np.array([float(self._n_restarts.get(view.id, 0)) for view in views]),
            delays_s=np.array([_delay_s(candidate) for candidate in self._candidates]),
            columns=np.array([candidate.held_column for candidate in self._candidates], dtype=np.int64),
        )

    def _fair_sps(self, candidate: Candidate) -> float:
        """Return the rate with an equal share; the mean over kinds of devices, weighted by their number."""
        shares, n_fair = self._shares(candidate), self._n_fair(candidate)
        rate = sum(share * _rate_with(candidate, kind, n_fair) for kind, share in shares.items())
        return rate / sum(shares.values()) if rate > 0 else candidate.options.fastest

    def _n_fair(self, candidate: Candidate) -> int:
        capacity = sum(self._shares(candidate).values())
        return max(1, ceil(capacity / candidate.options.per_worker / len(self._candidates)))

    def _shares(self, candidate: Candidate) -> dict[str, int]:
        """Return the capacity of each kind of devices on which the job can run."""
        return {pool[0]: self._problem.capacities[pool] for pool in candidate.options.pools}

    def _allowed(self) -> BoolArray:
        """Return the columns that keep jobs that may not be paused running on their kind of nodes."""
        allowed = self._problem.table.allowed.copy()
        for i, candidate in enumerate(self._candidates):
            if candidate.n and not may_pause(candidate.view):
                kinds = candidate.options.kinds
                allowed[i, : len(kinds)] = [k > 0 and kind == candidate.kind for k, kind in enumerate(kinds)]
        return allowed

    def _wants_more(self, choices: IntArray) -> bool:
        """Whether a job could be faster: time alone may then change the decision, because penalties fade."""
        table = self._problem.table
        chosen = table.rates[np.arange(len(choices)), choices]
        return bool((chosen < table.rates.max(axis=1)).any())

    def _explain(self, speedups: FloatArray) -> None:
        """Explain the worth of each change, and the first waiting job's reason."""
        waiting = []
        for i, (candidate, k) in enumerate(zip(self._candidates, self._problem.columns_given().tolist(), strict=True)):
            if self._builder.grants.get(candidate.id):
                self._builder.explain(candidate.view, self._why(candidate, k, speedups[i]))
            elif not candidate.n:
                waiting.append(candidate)
        if waiting and (least := self._builder.hardware.worker_amounts(waiting[0].view.spec)):
            self._builder.explain(waiting[0].view, waits(least[0], self._builder.free))

    def _why(self, candidate: Candidate, column: int, speedups: FloatArray) -> Reason:
        n, n_fair = candidate.options.counts[column], self._n_fair(candidate)
        facts = {"n_workers_before": float(candidate.n), "n_workers": float(n), "n_workers_fair": float(n_fair)}
        facts["speedup"] = float(speedups[column])
        fair = f"{speedups[column]:.2f} times as fast as with a fair share of {n_fair}"
        if not candidate.n:
            verb = "starts" if candidate.view.started_at is None else "goes on"
            return Reason("starts", f"{verb} with {counted(n, 'worker')}: {fair}", facts)
        code = "grows" if n > candidate.n else "shrinks" if n < candidate.n else "moves"
        if not candidate.column:
            return Reason(code, f"{candidate.n} -> {n} workers: {fair}", facts)
        facts["speedup_before"] = float(speedups[candidate.column])
        return Reason(code, f"{candidate.n} -> {n} workers: {fair} instead of {speedups[candidate.column]:.2f}", facts)

    def _finished(self, solution: Solution, values: FloatArray, weight: float, wants_more: bool) -> Plan:
        value = float(values[np.arange(len(values)), self._problem.columns_given()].sum())
        power = self._policy.power
        plan = self._builder.build(restarts=self._restarts())
        return replace(
            plan,
            objective=power_mean(value, weight, power),
            bound=power_mean(solution.bound, weight, power),
            status=plan.status if plan.status == "infeasible" else status_of(value, solution.bound, inf),
            ask_again_at=self._at + self._policy.interval_s if wants_more else None,
        )

    def _restarts(self) -> dict[str, int]:
        """Return the number of changes of each job, with this plan's."""
        counted: dict[str, int] = {}
        for view in (candidate.view for candidate in self._candidates):
            is_changed = view.started_at is not None and bool(self._builder.grants.get(view.id))
            n_restarts = self._n_restarts.get(view.id, 0) + is_changed
            if n_restarts:
                counted[view.id] = n_restarts
        return counted


def _delay_s(candidate: Candidate) -> float:
    return candidate.view.spec.resize_cost_s if candidate.n else candidate.view.spec.startup_s


def _rate_with(candidate: Candidate, kind: str, n_fair: int) -> float:
    """Return the rate on a kind with the largest number not above `n_fair`, or else with the smallest."""
    options = candidate.options
    columns = [i for i, on in enumerate(options.kinds) if i and on == kind]
    fitting = [i for i in columns if options.counts[i] <= n_fair] or columns[:1]
    return float(options.rates[fitting[-1]]) if fitting else 0.0


def _numbers(carry: object) -> Mapping[JobId, int]:
    """The restarts that the last plan handed on."""
    restarts = carry.get("restarts") if isinstance(carry, dict) else None
    if not isinstance(restarts, dict):
        return {}
    return {JobId(str(id)): n for id, n in restarts.items() if isinstance(n, int) and n > 0}


def speedups_of(standing: _Standing, rates: FloatArray) -> FloatArray:
    """Speed-up of each column over a fair share, after the penalty for a change, shape (n_jobs, n_columns).

    Parameters
    ----------
    rates
        Shape (n_jobs, n_columns), 0 for numbers that a job may not have, and in column 0.
    """
    changes = np.not_equal(standing.columns[:, None], np.arange(rates.shape[1]))
    plain = rates / standing.fair_sps[:, None]
    return np.where(changes, plain * standing.factors()[:, None], plain)


def values_of(speedups: FloatArray, weights: FloatArray, power: float, least: float) -> FloatArray:
    """Return the terms of the power mean, the larger the better: w (s + least)^p / p."""
    return np.asarray(weights[:, None] * (speedups + least) ** power / power)


def power_mean(value: float, weight: float, power: float) -> float:
    """Return the power mean of speed-ups whose terms add up to `value`; infinite if none have so large a sum."""
    mean = power * value / weight
    return float(mean ** (1.0 / power)) if mean > 0 else inf
