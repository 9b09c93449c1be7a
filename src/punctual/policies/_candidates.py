"""The jobs made of workers that share what is free, and what there is to share."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.resources import TOLERANCE
from punctual.policies._base import n_workers, never_fits, seniority, starts
from punctual.policies._draft import Draft
from punctual.policies._options import PARTS_PER_CORE, Options, Pool, options_of


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
        kinds = dict.fromkeys(self.options.kinds[1:])
        ordered = sorted(kinds, key=lambda kind: (kind != self.kind, -self.options.best_on(kind), kind))
        return [(kind, self.options.uses_gpus) for kind in ordered]


def start_whole(draft: Draft, waiting: Sequence[JobView]) -> None:
    """Jobs without workers get what they demand in order of submission."""
    for view in waiting:
        if view.spec.worker is None and view.status != "stopping":
            allocation = draft.fit(view)
            if allocation is not None:
                draft.put(view, allocation, starts(view, allocation))
            elif draft.hardware.amount(view) is None:
                draft.explain(view, never_fits(view))


def candidates(draft: Draft, snapshot: Snapshot, waiting: Sequence[JobView]) -> list[Candidate]:
    """Those that hold something, the oldest first, then those that wait; jobs that no node can hold are told so."""
    holding = [view for view in sorted(snapshot.holding, key=seniority) if draft.held(view)]
    found = [
        _candidate(draft, view, snapshot.at)
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


def pools_of(found: Sequence[Candidate]) -> list[Pool]:
    """Those that any job can draw on."""
    return sorted({(kind, one.options.uses_gpus) for one in found for kind in one.options.kinds[1:]})


def capacities(draft: Draft, pools: Sequence[Pool], found: Sequence[Candidate]) -> dict[Pool, int]:
    """What the candidates may share: what is free, and what they hold."""
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
