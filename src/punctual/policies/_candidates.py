"""The jobs made of workers that share what is free, what there is to share, and the knapsack that shares it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.resources import TOLERANCE
from punctual.optim.solution import BoolArray, FloatArray, Solution
from punctual.policies._base import n_workers, never_fits, seniority
from punctual.policies._draft import Draft
from punctual.policies._options import PARTS_PER_CORE, Options, Pool, Table, options_of
from punctual.policies._repair import follow_demands, settle, start_wholes


@dataclass(slots=True)
class Candidate:
    """One job: what it has, and what it may have.

    Attributes
    ----------
    kind
        Of the nodes it is on; empty if it holds nothing.
    n
        Workers that it holds.
    column
        Of `options`, what it holds; 0: nothing.
    remaining
        Steps left; None: nobody knows.
    left_s
        Seconds to the deadline; infinite without one.
    """

    view: JobView
    options: Options
    kind: str
    n: int
    column: int
    remaining: float | None
    left_s: float

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def pool(self) -> Pool:
        return self.kind, self.options.uses_gpus

    @property
    def restarts_s(self) -> float:
        """Time that a start, or a change, and one more change would cost."""
        spec = self.view.spec
        return spec.resize_cost_s + max(spec.resize_cost_s, 0.0 if self.n else spec.startup_s)

    @property
    def pools(self) -> list[Pool]:
        """Where it may run: where it is first, then where it is fastest per device."""
        options = self.options
        return sorted(options.pools, key=lambda pool: (pool[0] != self.kind, -options.best_on(pool[0]), pool[0]))


@dataclass(frozen=True, slots=True)
class Field:
    """Who shares, and what.

    Attributes
    ----------
    candidates
        Those that hold something, the oldest first, then those that wait.
    pools
        Those that any of them can draw on.
    capacities
        What is free in each pool, with what the candidates hold.
    """

    candidates: list[Candidate]
    pools: list[Pool]
    capacities: dict[Pool, int]

    @classmethod
    def of(cls, draft: Draft) -> "Field":
        """Put right what cannot stay as it is, and give jobs without workers what they demand, before the others."""
        idle = settle(draft)
        follow_demands(draft)
        waiting = sorted((*draft.snapshot.waiting, *idle), key=seniority) if idle else draft.snapshot.waiting
        start_wholes(draft, waiting)
        found = _candidates(draft, waiting)
        pools = sorted({pool for one in found for pool in one.options.pools})
        return cls(found, pools, _capacities(draft, pools, found))

    def solve(
        self, table: Table, values: FloatArray, allowed: BoolArray, gap_limit: float, price: float | None = None
    ) -> Solution:
        """One column for each candidate, within all capacities; `price`, of one pool, to begin the search with."""
        whole = [self.capacities[pool] for pool in self.pools]
        return table.solve(table.amounts, values, whole, allowed, gap_limit, price)


def _candidates(draft: Draft, waiting: Sequence[JobView]) -> list[Candidate]:
    """Jobs that no node can hold are told so."""
    holding = [view for view in sorted(draft.snapshot.holding, key=seniority) if draft.held(view)]
    found = [
        _candidate(draft, view, draft.snapshot.at)
        for view in (*holding, *waiting)
        if view.spec.worker is not None and view.status != "stopping"
    ]
    return [one for one in found if one is not None]


def _candidate(draft: Draft, view: JobView, at: float) -> Candidate | None:
    hardware, held = draft.hardware, draft.held(view)
    options = options_of(hardware, view)
    if options is None:
        if not held:
            draft.explain(view, never_fits(view))
        return None
    n = n_workers(view.spec, held)
    kind = hardware.kind_of[next(iter(held))] if held else ""
    remaining = view.remaining_steps(at) if options.known else None
    left_s = inf if view.deadline_at is None else view.deadline_at - at
    return Candidate(view, options, kind, n, options.column(kind, n), remaining, left_s)


def _capacities(draft: Draft, pools: Sequence[Pool], found: Sequence[Candidate]) -> dict[Pool, int]:
    hardware, free = draft.hardware, draft.free
    has: dict[Pool, float] = {}
    for kind, uses_gpus in pools:
        amounts = [free[node] for node in hardware.kinds[kind]]
        has[kind, uses_gpus] = sum(
            one.gpus if uses_gpus else (one.cores + TOLERANCE) * PARTS_PER_CORE for one in amounts
        )
    for one in found:
        if one.n and one.pool in has:
            has[one.pool] += one.n * one.options.per_worker
    return {pool: int(amount) for pool, amount in has.items()}
