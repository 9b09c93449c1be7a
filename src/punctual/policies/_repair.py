"""Steps before the sharing: replace lost places, apply demands, start jobs without workers."""

from collections.abc import Iterable, Sequence

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, same_amount, total
from punctual.policies._jobs import is_protected, is_steered, least, never_fits, seniority, starts
from punctual.policies._plan_builder import PlanBuilder

_DISPLACED = Reason("displaced", "what the job had is no longer there as a whole")
_LESS_THERE = Reason("less-there", "the node has less than it had: the job is at its floor")


def repair(builder: PlanBuilder) -> list[JobView]:
    """Take back allocations that have become impossible, and rehouse jobs that may not be paused.

    Returns
    -------
    list of JobView
        The jobs that hold nothing now, in order of submission: those that are being paused, those that lost a node of
        several, and those that no longer fit on a node with less capacity than it had. If one that may not be paused
        finds no other place the builder is infeasible.
    """
    holding = builder.snapshot.holding
    with_verdicts = zip(holding, builder.hardware.is_broken.each(holding), strict=True)
    displaced = [view for view, is_broken in with_verdicts if is_broken and view.status != "stopping"]
    for view in displaced:
        if view.planned:
            builder.put(view, {}, _DISPLACED)
    if builder.hardware_changed:
        displaced += _relieve_nodes(builder)
    return _place_displaced(builder, displaced)


def _relieve_nodes(builder: PlanBuilder) -> list[JobView]:
    """Make the last plan fit on nodes that have shrunk. Returns the jobs that had to leave."""
    on_node: dict[NodeId, list[JobView]] = {node: [] for node in sorted(_too_full(builder))}
    for view in sorted(builder.snapshot.holding, key=_goes_last) if on_node else ():
        for node in builder.held(view).keys() & on_node.keys():
            on_node[node].append(view)
    return [view for node, views in on_node.items() for view in _relieve(builder, node, views)]


def _too_full(builder: PlanBuilder) -> list[NodeId]:
    """Nodes with more planned than their capacity."""
    held: dict[NodeId, Resources] = {}
    for view in builder.snapshot.holding:
        for node, amount in builder.held(view).items():
            held[node] = held[node] + amount if node in held else amount
    capacity = builder.hardware.capacity
    return [node for node, amount in held.items() if node in capacity and not amount.fits_in(capacity[node])]


def _relieve(builder: PlanBuilder, node: NodeId, views: list[JobView]) -> list[JobView]:
    """Shrink jobs without workers to their floor, then remove jobs, the youngest first. Returns those removed."""

    def is_too_full() -> bool:
        held = (builder.held(view).get(node, NOTHING) for view in views)
        return not total(held).fits_in(builder.hardware.capacity[node])

    leaving: list[JobView] = []
    for view in reversed(views):
        if is_too_full() and view.spec.worker is None and len(builder.held(view)) == 1:
            builder.put(view, {node: least(view.spec).at_most(builder.held(view)[node])}, _LESS_THERE)
    for view in reversed(views):
        if is_too_full() and view.status != "stopping":
            builder.put(view, {}, _DISPLACED)
            leaving.append(view)
    builder.recount([node])
    return leaving


def _goes_last(view: JobView) -> tuple[bool, float, JobId]:
    return view.spec.preemptible, view.submitted_at, view.spec.id


def _place_displaced(builder: PlanBuilder, displaced: Iterable[JobView]) -> list[JobView]:
    """Place jobs that may not be paused, at the expense of others. Returns the jobs that hold nothing."""
    unplaced: list[JobView] = []
    for view in sorted(displaced, key=seniority):
        if not is_protected(view):
            unplaced.append(view)
            continue
        allocation = builder.fit(view) or _evict(builder, view, unplaced)
        if allocation is not None:
            builder.put(view, allocation, Reason("moved", "a node it was on is gone or has less than it had"))
        else:
            unplaced.append(view)
            builder.status = "infeasible" if view.planned else builder.status
    return sorted(unplaced, key=seniority)


def _evict(builder: PlanBuilder, view: JobView, unplaced: list[JobView]) -> Allocation | None:
    """Pause the youngest jobs that may be paused until `view` fits."""
    candidates = [
        other
        for other in builder.snapshot.holding
        if other.spec.preemptible and other.status != "stopping" and builder.held(other)
    ]
    for other in sorted(candidates, key=seniority, reverse=True):
        text = f"paused: '{view.spec.id}' lost its place and may not be paused"
        builder.put(other, {}, Reason("paused", text))
        unplaced.append(other)
        allocation = builder.fit(view)
        if allocation is not None:
            return allocation
    return None


def apply_demands(builder: PlanBuilder) -> bool:
    """Give jobs without workers their controllers' present demands, on their nodes. Returns whether any has one."""
    steered = [view for view in builder.snapshot.holding if is_steered(view) and len(builder.held(view)) == 1]
    wanted = {view.spec.id: view.demand.at_most(view.spec.ceiling).at_least(least(view.spec)) for view in steered}
    for view in sorted(steered, key=seniority):
        _follow(builder, view, wanted[view.spec.id], may_grow=False)
    for view in sorted(steered, key=seniority):
        _follow(builder, view, wanted[view.spec.id], may_grow=True)
    return bool(steered)


def _follow(builder: PlanBuilder, view: JobView, wanted: Resources, *, may_grow: bool) -> None:
    ((node, held),) = builder.held(view).items()
    room = builder.free[node] + held if may_grow else held
    amount = wanted.at_most(room)
    if not same_amount(amount, held):
        builder.put(view, {node: amount}, follows_demand(wanted, amount, node))


def follows_demand(wanted: Resources, amount: Resources, node: NodeId) -> Reason:
    """Return the reason why a job without workers gets `amount` on `node`."""
    facts = {"demand_cores": wanted.cores, "granted_cores": amount.cores}
    if wanted.fits_in(amount):
        return Reason("as-demanded", "the job gets what it demands", facts)
    return Reason("clipped", f"node '{node}' has no more free", facts)


def start_rigid(builder: PlanBuilder, waiting: Iterable[JobView]) -> None:
    """Start jobs without workers, in the order given, with as much of their demand as fits."""
    for view in waiting:
        if view.spec.worker is None and view.status != "stopping":
            allocation = builder.fit(view)
            if allocation is not None:
                builder.put(view, allocation, starts(view, allocation))
            elif builder.hardware.amount(view) is None:
                builder.explain(view, never_fits(view))


def all_waiting(builder: PlanBuilder, idle: Sequence[JobView]) -> Sequence[JobView]:
    """Return the waiting jobs and those that `repair` returned, in order of submission."""
    waiting = builder.snapshot.waiting
    return tuple(sorted((*waiting, *idle), key=seniority)) if idle else waiting


def prepare(builder: PlanBuilder) -> Sequence[JobView]:
    """Repair impossible allocations, apply demands, and start jobs without workers: the steps before others share.

    Returns
    -------
    sequence of JobView
        The jobs that hold nothing or are being paused, in order of submission.
    """
    waiting = all_waiting(builder, repair(builder))
    apply_demands(builder)
    start_rigid(builder, waiting)
    return waiting
