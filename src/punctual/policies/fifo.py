"""First come, first served."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from punctual.core.cluster import Snapshot
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total
from punctual.policies._base import PolicyBase
from punctual.policies._hardware import RigidRequest, end_at
from punctual.policies._jobs import Size, amount_text, is_steered, never_fits, starts, waits
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import all_waiting, apply_demands, repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo(PolicyBase):
    """Starts jobs in order of submission, each whole; the first that does not fit blocks the rest.

    Use it as the baseline that everybody knows, and where no job may be favoured. It never pauses or resizes a job, so
    it does nothing about deadlines.

    Parameters
    ----------
    size
        The allowed count that a job gets.
    backfill
        Let later jobs pass while the first one waits, as long as by all that is known they do not delay it.

    Raises
    ------
    InvalidSpec
        `size` is neither ``"largest"`` nor ``"smallest"``.

    Notes
    -----
    *Formula.* Of the waiting jobs in order of submission the longest prefix is started of which each job fits. With
    `backfill`: let t* be the first instant at which the first waiting job, of size n, is expected to fit, by the
    expected ends of the running jobs, and e what is then free beyond n. A later job of size m that fits now is started
    if it is expected to end by t*, or if m ≤ e, which then falls by m.

    *Source.* [lifka1995] for the backfilling.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(nodes) for each job that is started and for one that is not; with `backfill`
    O((running + waiting) log running + nodes) more.

    *Fails when* a large job is first: small gaps stay empty until it fits.
    """

    size: Size = "largest"
    backfill: bool = False

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        watch = bool(builder.carry.get("watch", True))
        idle = repair(builder) if watch else []
        watch = watch and apply_demands(builder)
        queue = self._queue(builder, idle)
        first = None
        started = []
        for view, request in queue:
            if not _start(builder, view, request):
                first = view, request
                break
            started.append(request)
            watch |= is_steered(view)
        if first is not None:
            if builder.carry.get("first") != first[0].id:
                builder.explain(first[0], waits(first[1].amount, builder.free))
            if self.backfill:
                watch |= _backfill(builder, first[1], started, queue)
        watch |= any(not builder.held(view) for view in idle)
        return builder.build(watch=watch, first=first[0].id if first else None)

    def _queue(self, builder: PlanBuilder, idle: list[JobView]) -> Iterator[tuple[JobView, RigidRequest]]:
        """Yield the waiting jobs and their requests; usually only the first is needed."""
        for view in all_waiting(builder, idle):
            request = builder.hardware.requests[self.size](view)
            if request is None:
                builder.explain(view, never_fits(view))
            elif view.status != "stopping":
                yield view, request


def _start(builder: PlanBuilder, view: JobView, request: RigidRequest, *, passes: bool = False) -> bool:
    """Start the job if it fits, in its turn or before it."""
    allocation = builder.find(view, request.n, request.worker)
    if allocation is not None:
        builder.put(view, allocation, _passes(view, allocation) if passes else starts(view, allocation))
    return allocation is not None


def _passes(view: JobView, allocation: Allocation) -> Reason:
    return Reason("passes", f"passes earlier jobs without delaying them, with {amount_text(view, allocation)}")


def _backfill(
    builder: PlanBuilder,
    first: RigidRequest,
    started: Iterable[RigidRequest],
    queue: Iterable[tuple[JobView, RigidRequest]],
) -> bool:
    """Start those of the queue that do not delay the first job; return whether one of them has a controller."""
    in_s, spare = _reservation(builder, first.amount, started)
    space = Space(builder.free.values())
    watch = False
    for view, request in queue:
        size, ends_before = _size(request.amount, first.amount), request.remaining_s <= in_s < inf
        may_pass = (ends_before or size <= spare) and space.may_hold(request.amount)
        if may_pass and _start(builder, view, request, passes=True):
            space.take(request.amount)
            spare -= 0.0 if ends_before else size
            watch |= is_steered(view)
    return watch


def _reservation(builder: PlanBuilder, first: Resources, started: Iterable[RigidRequest]) -> tuple[float, float]:
    """Seconds until the first job is expected to fit, and the amount that is then free beyond it."""
    at, hardware = builder.snapshot.at, builder.hardware
    held = [(view, total(builder.held(view).values())) for view in builder.snapshot.holding]
    ends = [(end_at(view, at, hardware) - at, _size(amount, first)) for view, amount in held]
    ends += [(request.remaining_s, _size(request.amount, first)) for request in started]
    free, needed = sum(_size(amount, first) for amount in builder.free.values()), _size(first, first)
    for end_s, size in sorted(ends):
        free += size
        if free >= needed:
            return end_s, free - needed
    return inf, 0.0


def _size(amount: Resources, first: Resources) -> float:
    """Return the amount of the first job's scarce resource: devices if it asks for any, else cores, else its first."""
    if first.gpus or first.cores or not first.others:
        return float(amount.gpus) if first.gpus else amount.cores
    return amount.of(first.others[0][0])
