"""Map changed numbers of workers to nodes."""

from collections.abc import Callable, Iterable, Mapping
from math import inf

from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.policies._jobs import n_workers, seconds_for, seniority, starts, waits
from punctual.policies._plan_builder import PlanBuilder

#: A job, the number of workers it has, and the number it is to have.
Change = tuple[JobView, int, int]


def lay_out(
    builder: PlanBuilder, changes: Iterable[Change], room: Callable[[JobView], Mapping[NodeId, Resources]] | None = None
) -> None:
    """Find nodes for changed numbers of workers; if one does not fit, for the largest allowed number that does.

    What shrinks goes first, then what starts, then what grows, of each the largest first, since a large job finds room
    only while there are large gaps. A job whose number stays keeps its nodes. `room` says where a job may go; without
    it, wherever something would be free if the job held nothing.
    """
    room = room or builder.without
    changed = [change for change in changes if change[1] != change[2]]
    changed.sort(key=lambda change: (_turn(change), -change[2], *seniority(change[0])))
    for view, n_before, n_after in changed:
        if n_after < n_before:
            allocation: Allocation | None = shrunk(view, _amount_of(view, 1), n_after, builder.held(view))
        else:
            allocation = _grown(builder, view, n_before, n_after, room(view))
        if allocation is not None:
            n_given = n_workers(view.spec, allocation)
            builder.put(view, allocation, _why(builder, view, n_before, n_given, allocation))
        elif n_before == 0:
            builder.explain(view, waits(_amount_of(view, n_after), builder.free))


def _turn(change: Change) -> int:
    _, n_before, n_after = change
    return 0 if n_after < n_before else 1 if n_before == 0 else 2


def _amount_of(view: JobView, n: int) -> Resources:
    return (view.spec.unit or view.spec.ceiling) * n


def shrunk(view: JobView, worker: Resources, n_after: int, held: Allocation) -> Allocation:
    """Return the allocation after removing workers, first from nodes with the fewest of them."""
    on_nodes = {node: n_workers(view.spec, {node: amount}) for node, amount in held.items()}
    n_to_go = sum(on_nodes.values()) - n_after
    for node in sorted(on_nodes, key=lambda node: (on_nodes[node], node)):
        n_gone = min(n_to_go, on_nodes[node])
        on_nodes[node] -= n_gone
        n_to_go -= n_gone
    return {node: worker * n for node, n in on_nodes.items() if n}


def _grown(
    builder: PlanBuilder, view: JobView, n_before: int, n_after: int, free: Mapping[NodeId, Resources]
) -> Allocation | None:
    """Room for `n_after` workers or the largest smaller number above `n_before`, in `free`."""
    for n in reversed(builder.hardware.counts(view.spec)):
        if n_before < n <= n_after:
            placed = builder.find(view, n, _amount_of(view, 1), free)
            if placed is not None:
                return placed
    return None


def _why(builder: PlanBuilder, view: JobView, n_before: int, n_after: int, allocation: Allocation) -> Reason:
    """Return the reason for a new number of workers: the time gained or given up, if known."""
    if n_before == 0:
        return starts(view, allocation)
    kind = builder.hardware.kind_of[next(iter(allocation))]
    steps, speed = view.remaining_steps(builder.snapshot.at), builder.hardware.speed(view)
    before_s, after_s = (
        seconds_for(steps, speed.rate_sps(n, _amount_of(view, n).cores, kind)) for n in (n_before, n_after)
    )
    facts = {"n_workers_before": float(n_before), "n_workers": float(n_after)}
    code, change = ("grows" if n_after > n_before else "shrinks"), f"{n_before} -> {n_after} workers"
    if not (before_s < inf and after_s < inf):
        return Reason(code, f"{change}; its speed is not known and taken as proportional to them", facts)
    sooner_s = before_s - after_s
    effect = f"finishes {span(sooner_s)} {'earlier' if sooner_s >= 0 else 'later'}"
    return Reason(code, f"{change}: {effect}", facts | {"sooner_s": sooner_s})
