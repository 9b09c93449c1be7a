"""What comes before anything is shared: jobs without their place, demands that have changed, jobs without workers."""

from collections.abc import Iterable

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.story import Reason
from punctual.policies._base import is_protected, least, never_fits, same_amount, seniority, starts
from punctual.policies._draft import Draft

_DISPLACED = Reason("displaced", "what the job had is no longer there as a whole")
_LESS_THERE = Reason("less-there", "the node has less than it had: the job is at its floor")


def settle(draft: Draft) -> list[JobView]:
    """Take back what cannot stay as it is.

    Returns
    -------
    list of JobView
        The jobs that hold nothing now, in order of submission: those that are being paused, those that lost a node of
        several, and those that no longer fit on a node with less capacity than it had. If one that may not be paused
        finds no other place the draft is infeasible.
    """
    is_broken = draft.hardware.is_broken
    displaced = [view for view in draft.snapshot.holding if is_broken(view) and view.status != "stopping"]
    for view in displaced:
        if view.planned:
            draft.put(view, {}, _DISPLACED)
    if draft.hardware_changed:
        displaced += _relieve_nodes(draft)
    return _rehouse(draft, displaced)


def _relieve_nodes(draft: Draft) -> list[JobView]:
    """Make what is planned fit where nodes have less than they had; the jobs that had to leave."""
    on_node: dict[NodeId, list[JobView]] = {node: [] for node in sorted(_too_full(draft))}
    for view in sorted(draft.snapshot.holding, key=_goes_last) if on_node else ():
        for node in draft.held(view).keys() & on_node.keys():
            on_node[node].append(view)
    return [view for node, views in on_node.items() for view in _relieve(draft, node, views)]


def _too_full(draft: Draft) -> list[NodeId]:
    """The nodes on which more is planned than they have."""
    held: dict[NodeId, Resources] = {}
    for view in draft.snapshot.holding:
        for node, amount in draft.held(view).items():
            held[node] = held[node] + amount if node in held else amount
    capacity = draft.hardware.capacity
    return [node for node, amount in held.items() if node in capacity and not amount.fits_in(capacity[node])]


def _relieve(draft: Draft, node: NodeId, views: list[JobView]) -> list[JobView]:
    """Jobs without workers go down to their floor, then jobs leave; of each the youngest first."""

    def is_too_full() -> bool:
        held = (draft.held(view).get(node, NOTHING) for view in views)
        return not total(held).fits_in(draft.hardware.capacity[node])

    leaving: list[JobView] = []
    for view in reversed(views):
        if is_too_full() and view.spec.worker is None and len(draft.held(view)) == 1:
            draft.put(view, {node: least(view.spec).at_most(draft.held(view)[node])}, _LESS_THERE)
    for view in reversed(views):
        if is_too_full() and view.status != "stopping":
            draft.put(view, {}, _DISPLACED)
            leaving.append(view)
    draft.recount([node])
    return leaving


def _goes_last(view: JobView) -> tuple[bool, float, JobId]:
    return view.spec.preemptible, view.submitted_at, view.spec.id


def _rehouse(draft: Draft, displaced: Iterable[JobView]) -> list[JobView]:
    """Find a place for jobs that may not be paused, at the expense of those that may; the jobs that hold nothing."""
    homeless: list[JobView] = []
    for view in sorted(displaced, key=seniority):
        if not is_protected(view):
            homeless.append(view)
            continue
        allocation = draft.fit(view) or _evict(draft, view, homeless)
        if allocation is not None:
            draft.put(view, allocation, Reason("moved", "a node it was on is gone or has less than it had"))
        else:
            homeless.append(view)
            draft.status = "infeasible" if view.planned else draft.status
    return sorted(homeless, key=seniority)


def _evict(draft: Draft, view: JobView, homeless: list[JobView]) -> Allocation | None:
    """Pause the youngest jobs that may be paused until `view` fits."""
    candidates = [
        other
        for other in draft.snapshot.holding
        if other.spec.preemptible and other.status != "stopping" and draft.held(other)
    ]
    for other in sorted(candidates, key=seniority, reverse=True):
        text = f"paused: '{view.spec.id}' lost its place and may not be paused"
        draft.put(other, {}, Reason("paused", text))
        homeless.append(other)
        allocation = draft.fit(view)
        if allocation is not None:
            return allocation
    return None


def follow_demands(draft: Draft) -> bool:
    """Give jobs without workers what their controllers demand now, where they are; whether there are such jobs."""
    steered = [view for view in draft.snapshot.holding if _is_steered(view) and len(draft.held(view)) == 1]
    wanted = {view.spec.id: view.demand.at_most(view.spec.ceiling).at_least(least(view.spec)) for view in steered}
    for view in sorted(steered, key=seniority):
        _follow(draft, view, wanted[view.spec.id], may_grow=False)
    for view in sorted(steered, key=seniority):
        _follow(draft, view, wanted[view.spec.id], may_grow=True)
    return bool(steered)


def _follow(draft: Draft, view: JobView, wanted: Resources, *, may_grow: bool) -> None:
    (node, held), = draft.held(view).items()  # fmt: skip
    room = draft.free[node] + held if may_grow else held
    amount = wanted.at_most(room)
    if not same_amount(amount, held):
        draft.put(view, {node: amount}, follows_demand(wanted, amount, node))


def _is_steered(view: JobView) -> bool:
    return view.spec.worker is None and view.spec.controller is not None and view.status != "stopping"


def follows_demand(wanted: Resources, amount: Resources, node: NodeId) -> Reason:
    """Why a job without workers gets `amount` on `node`."""
    facts = {"demand_cores": wanted.cores, "granted_cores": amount.cores}
    if wanted.fits_in(amount):
        return Reason("as-demanded", "the job gets what it demands", facts)
    return Reason("clipped", f"node '{node}' has no more free", facts)


def start_wholes(draft: Draft, waiting: Iterable[JobView]) -> None:
    """Start jobs that are not made of workers, in the order given, with what there is of their demand."""
    for view in waiting:
        if view.spec.worker is None and view.status != "stopping":
            allocation = draft.fit(view)
            if allocation is not None:
                draft.put(view, allocation, starts(view, allocation))
            elif draft.hardware.amount(view) is None:
                draft.explain(view, never_fits(view))
