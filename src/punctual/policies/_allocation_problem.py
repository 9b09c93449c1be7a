"""The choice of all jobs' numbers of workers as one knapsack, and the mapping of its solution back to nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

import numpy as np

from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, TOLERANCE, Resources
from punctual.policies._configurations import PARTS, ChoiceTable, Configurations, Pool, configurations_of
from punctual.policies._jobs import due_at, is_bound, n_workers, never_fits, seniority
from punctual.policies._layout import Change, lay_out
from punctual.policies._plan_builder import PlanBuilder
from punctual.solvers.knapsack import solve_knapsack
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, Solution
from punctual.solvers.vector_knapsack import solve_vector_knapsack

_PAUSED = Reason("paused", "paused: other jobs gain more by its workers")


@dataclass(slots=True)
class Candidate:
    """A job made of workers: its allocation, and its possible configurations.

    Attributes
    ----------
    kind
        Kind of its nodes; empty if it holds nothing.
    n
        Workers that it holds.
    column
        Column of `options` that it holds; 0: nothing, or a number that it may not have.
    remaining
        Steps left; None: unknown.
    left_s
        Seconds to the deadline; infinite without one.
    """

    view: JobView
    options: Configurations
    kind: str
    n: int
    column: int
    remaining: float | None
    left_s: float

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def worker(self) -> Resources:
        """A worker, with a server if the job has some."""
        return self.view.spec.unit or NOTHING

    @property
    def pool(self) -> Pool:
        return self.kind, self.options.uses_gpus

    @property
    def is_bound(self) -> bool:
        """Whether it is to stay on the kind of nodes on which it is, and can."""
        return self.n > 0 and self.pool in self.options.pools and is_bound(self.view)

    @property
    def held_column(self) -> int:
        """Column of its present configuration; -1 for one that it may not have."""
        return self.column if self.column or not self.n else -1

    @property
    def pools(self) -> list[Pool]:
        """Return the pools where it may run: its own, then by rate per device; only its own if it is bound to it."""
        options = self.options
        if self.is_bound:
            return [self.pool]
        return sorted(options.pools, key=lambda pool: (pool[0] != self.kind, -options.best_on(pool[0]), pool[0]))

    def least_on(self, pool: Pool) -> int:
        """Return the least that is reserved of a pool for it, or its present amount if that is less."""
        least = min(self.options.counts_on(pool[0]), default=0)
        return (min(self.n, least) if self.n and pool == self.pool else least) * self.options.reserved_per_worker

    def due_in(self, at: float, left_s: float | None) -> "Candidate":
        """Return the job without a promise and with a deadline `left_s` after `at`; None: without a deadline."""
        view = self.view
        if left_s is None:
            spec = replace(view.spec, deadline_s=None, guarantee=False)
            return replace(self, view=replace(view, spec=spec, promised_until_at=None), left_s=inf)
        return replace(self, view=view.with_deadline(at + left_s - view.submitted_at), left_s=left_s)


@dataclass(slots=True)
class AllocationProblem:
    """Choice of a configuration for each job, within the capacity of each pool.

    Attributes
    ----------
    candidates
        Jobs made of workers: running ones, the oldest first, then waiting ones.
    unfit
        Jobs made of workers that no node can hold.
    pools
        Pools that any candidate can use.
    capacities
        Free amount of each pool, including what the candidates hold, in parts of a GPU or a core.
    remainders
        Fraction of a unit that is free beyond that.
    table
        The configurations of the candidates.
    """

    builder: PlanBuilder
    candidates: list[Candidate]
    unfit: Sequence[JobView] = ()
    pools: list[Pool] = field(init=False)
    capacities: dict[Pool, int] = field(init=False)
    remainders: dict[Pool, float] = field(init=False)
    table: ChoiceTable = field(init=False)

    def __post_init__(self) -> None:
        self.pools = sorted({pool for candidate in self.candidates for pool in candidate.options.pools})
        free = _free(self.builder, self.pools, self.candidates)
        self.capacities = {pool: int(amount) for pool, amount in free.items()}
        self.remainders = {pool: free[pool] - n for pool, n in self.capacities.items()}
        self.table = ChoiceTable.of([candidate.options for candidate in self.candidates], self.pools)

    @classmethod
    def of(
        cls, builder: PlanBuilder, waiting: Sequence[JobView], takes_part: Callable[[Candidate], bool] | None = None
    ) -> "AllocationProblem":
        """Return the problem of all running and `waiting` jobs; jobs that no node can hold are told so."""
        holding = [view for view in sorted(builder.snapshot.holding, key=seniority) if builder.held(view)]
        views = [view for view in (*holding, *waiting) if view.spec.worker is not None and view.status != "stopping"]
        made = [(view, _candidate(builder, view)) for view in views]
        candidates = [candidate for _, candidate in made if candidate is not None]
        unfit = [view for view, candidate in made if candidate is None]
        return cls(builder, [each for each in candidates if takes_part is None or takes_part(each)], unfit)

    def solve(
        self, values: FloatArray, allowed: BoolArray, gap_limit: float, *, costs: IntArray | None = None
    ) -> Solution:
        """Choose one column for each candidate, within all capacities.

        Parameters
        ----------
        values, allowed
            Shape (n, m), as the table.
        costs
            Shape (n, m), use of its pool by each column; its parts of devices if left out.
        """
        capacities: list[float] = [self.capacities[pool] for pool in self.pools]
        costs = self.table.amounts if costs is None else costs
        names = sorted({name for candidate in self.candidates for name in _other_names(candidate)})
        if len(self.pools) == 1 and not names:
            return solve_knapsack(costs, values, int(capacities[0]), allowed=allowed, gap_limit=gap_limit)
        split = costs[:, :, None] * (self.table.pools[:, :, None] == np.arange(len(capacities)))
        for name, kind in product(names, self.builder.hardware.kinds):
            most, uses = self._named(name, kind)
            capacities.append(most)
            split = np.concatenate([split, uses[:, :, None]], axis=2)
        solution = solve_vector_knapsack(split, values, capacities, allowed=allowed, gap_limit=gap_limit)
        return replace(solution, multipliers=solution.multipliers[: len(self.pools)])

    def _named(self, name: str, kind: str) -> tuple[float, FloatArray]:
        """Return the amount of another kind of hardware on nodes of `kind`, and each column's use of it."""
        builder, uses = self.builder, np.zeros(self.table.amounts.shape)
        capacity = sum(builder.free[node].of(name) for node in builder.hardware.kinds[kind])
        for i, candidate in enumerate(self.candidates):
            per_worker, options = candidate.worker.of(name), candidate.options
            capacity += candidate.n * per_worker if candidate.kind == kind else 0.0
            uses[i, : len(options.counts)] = np.array(options.counts) * (np.array(options.kinds) == kind) * per_worker
        return capacity, uses

    def lay_out(
        self, choices: IntArray, free_for: Callable[[JobView], Mapping[NodeId, Resources]] | None = None
    ) -> None:
        """Find nodes for every job that changes; a job that changes its kind of nodes leaves its old ones first.

        Parameters
        ----------
        free_for
            Free amounts for a job; by default those that would be free if the job held nothing.
        """
        builder, kinds, changes = self.builder, dict[JobId, str](), list[Change]()
        for candidate, k in zip(self.candidates, choices.tolist(), strict=True):
            n, kind = candidate.options.counts[k], candidate.options.kinds[k]
            if k == candidate.held_column:
                continue
            leaves = candidate.n > 0 and (not n or kind != candidate.kind)
            if leaves:
                builder.put(candidate.view, {}, _PAUSED)
            if n:
                kinds[candidate.id] = kind
                changes.append((candidate.view, 0 if leaves else candidate.n, n))

        def room(view: JobView) -> Mapping[NodeId, Resources]:
            free, of_kind = (free_for or builder.without)(view), builder.hardware.kinds
            return free if len(of_kind) == 1 else {node: free[node] for node in of_kind[kinds[view.id]] if node in free}

        lay_out(builder, changes, room)

    def columns_given(self) -> IntArray:
        """Return the columns of the final allocations, which may be smaller than chosen where nodes had no room."""
        return np.array([self._column_given(candidate) for candidate in self.candidates], dtype=np.int64)

    def _column_given(self, candidate: Candidate) -> int:
        held = self.builder.grants.get(candidate.id)
        if held is None:
            return candidate.column
        kind = self.builder.hardware.kind_of[next(iter(held))] if held else ""
        return candidate.options.column(kind, n_workers(candidate.view.spec, held))


def _candidate(builder: PlanBuilder, view: JobView) -> Candidate | None:
    hardware, held, at = builder.hardware, builder.held(view), builder.snapshot.at
    options = configurations_of(hardware, view)
    if options is None:
        if not held:
            builder.explain(view, never_fits(view))
        return None
    n = hardware.n_held(view) if held is view.planned else n_workers(view.spec, held)
    kind = hardware.kind_of[next(iter(held))] if held else ""
    remaining = view.remaining_steps(at) if options.known else None
    left_s = due_at(view) - at
    return Candidate(view, options, kind, n, options.column(kind, n), remaining, left_s)


def _other_names(candidate: Candidate) -> Iterator[str]:
    """Yield the other kinds of hardware that the job asks for and that may run out before its pool does."""
    worker = candidate.worker
    yield from (name for name, _ in worker.others)
    if candidate.options.reserved_per_worker > candidate.options.per_worker:
        yield from (name for name in ("cores", "memory_bytes") if worker.of(name))


def _free(builder: PlanBuilder, pools: Sequence[Pool], candidates: Sequence[Candidate]) -> dict[Pool, float]:
    hardware, free = builder.hardware, builder.free
    has: dict[Pool, float] = {}
    for kind, uses_gpus in pools:
        amounts = [free[node] for node in hardware.kinds[kind]]
        has[kind, uses_gpus] = sum(
            ((amount.gpus if uses_gpus else amount.cores) + TOLERANCE) * PARTS for amount in amounts
        )
    for candidate in candidates:
        if candidate.n and candidate.pool in has:
            has[candidate.pool] += candidate.n * candidate.options.per_worker
    return has
