"""Start the job that fits the free amounts best."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from punctual.core.cluster import Snapshot
from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies._base import PolicyBase
from punctual.policies._hardware import RigidRequest
from punctual.policies._jobs import Size, is_steered, never_fits, seniority, shares_of, starts, waits
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import apply_demands, repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Tetris(PolicyBase):
    """Packs several kinds of hardware tightly and favours short jobs a little.

    Use it where jobs need cores, memory and devices in different proportions: it puts jobs side by side that complement
    each other. It never pauses or resizes a job and does not look at deadlines.

    Formula, properties and differences: `docs/explanation/policies/tetris.md`.

    Parameters
    ----------
    size
        The allowed count that a job gets.
    shortness
        Weight of a short remaining time against a good fit; 0: only the fit counts.
    """

    size: Size = "largest"
    shortness: float = 1.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        watch = bool(builder.carry.get("watch", True))
        idle = repair(builder) if watch else []
        watch = watch and apply_demands(builder)
        waiting = self._requests(builder, [*snapshot.waiting, *idle])
        while waiting:
            chosen = self._best(builder, waiting)
            if chosen is None:
                break
            view, allocation = chosen
            builder.put(view, allocation, starts(view, allocation))
            watch |= is_steered(view)
            waiting = [pair for pair in waiting if pair[0] is not view]
        if waiting:
            builder.explain(waiting[0][0], waits(waiting[0][1].amount, builder.free))
        return builder.build(watch=watch or any(not builder.held(view) for view in idle))

    def _requests(self, builder: PlanBuilder, views: Sequence[JobView]) -> list[tuple[JobView, RigidRequest]]:
        """Return the requests of the waiting jobs, in order of submission."""
        requests = []
        for view in sorted(views, key=seniority):
            request = builder.hardware.requests[self.size](view)
            if request is None:
                builder.explain(view, never_fits(view))
            elif view.status != "stopping":
                requests.append((view, request))
        return requests

    def _best(
        self, builder: PlanBuilder, waiting: Sequence[tuple[JobView, RigidRequest]]
    ) -> tuple[JobView, Allocation] | None:
        """The job to start next, and where."""
        space = Space(builder.free.values())
        packer = _Packer(builder)
        fitting = [
            (view, request, allocation)
            for view, request in waiting
            if space.may_hold(request.amount) and (allocation := packer.find(view, request)) is not None
        ]
        if not fitting:
            return None
        alignments = [packer.alignment(request, allocation) for _, request, allocation in fitting]
        works = _bounded([packer.work(request) for _, request, _ in fitting])
        mean_work = fsum(works) / len(works)
        exchange = self.shortness * fsum(alignments) / len(alignments) / mean_work if mean_work > 0 else 0.0
        scores = [a - exchange * work for a, work in zip(alignments, works, strict=True)]
        i_best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        return fitting[i_best][0], fitting[i_best][2]


class _Packer:
    """Placements of jobs and their fit, with the present free amounts; nodes with the same ones are tried once."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._builder = builder
        self._like: dict[tuple[Resources, Resources, str], NodeId] = {}
        hardware = builder.hardware
        for node in sorted(builder.free, reverse=True):
            self._like[builder.free[node], hardware.capacity[node], hardware.kind_of[node]] = node

    def find(self, view: JobView, request: RigidRequest) -> Allocation | None:
        """The one node with the best alignment, otherwise the fewest."""
        kinds = self._builder.kinds_for(view, request.amount)
        is_open = self._builder.open_to(view)
        nodes = [
            node
            for (free, _, kind), node in self._like.items()
            if kind in kinds and free.n_times(request.worker) >= request.n and node in is_open
        ]
        if not nodes:
            return self._builder.find(view, request.n, request.worker)
        best = max(sorted(nodes), key=lambda node: self._alignment(request.amount, node))
        return {best: request.amount}

    def alignment(self, request: RigidRequest, allocation: Allocation) -> float:
        return fsum(self._alignment(amount, node) for node, amount in allocation.items()) / len(allocation)

    def work(self, request: RigidRequest) -> float:
        """Return the request's share of all capacities, times the time it will be held."""
        return fsum(shares_of(request.amount, self._builder.hardware.total)) * request.remaining_s

    def _alignment(self, amount: Resources, node: NodeId) -> float:
        capacity, free = self._builder.hardware.capacity[node], self._builder.free[node]
        return fsum(a * b for a, b in zip(shares_of(amount, capacity), shares_of(free, capacity), strict=True))


def _bounded(works: Sequence[float]) -> list[float]:
    """Unknown amounts of work replaced by the largest known one."""
    largest = max((work for work in works if work < inf), default=0.0)
    return [min(work, largest) for work in works]
