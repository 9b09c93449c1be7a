"""What a job is to have once its user has changed the least and the most that it may have."""

from collections.abc import Callable

from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.resources import NOTHING, Resources


def refitted(target: Allocation, spec: JobSpec, room: Callable[[NodeId], Resources]) -> Allocation:
    """The allocation nearest to `target` that `spec` allows, on the same nodes; empty if there is none, as before a start.

    Parameters
    ----------
    room
        What of a node no other job is to have.
    """
    if spec.worker is None:
        return _refitted_share(target, spec, room)
    return {} if spec.server is not None else _refitted_workers(target, spec, spec.worker, room)


def _refitted_share(target: Allocation, spec: JobSpec, room: Callable[[NodeId], Resources]) -> Allocation:
    if len(target) != 1:
        return {}
    ((node, amount),) = target.items()
    wanted = amount.at_most(spec.ceiling).at_least(spec.floor)
    return {node: wanted} if wanted.fits_in(room(node)) else {}


def _refitted_workers(
    target: Allocation, spec: JobSpec, worker: Resources, room: Callable[[NodeId], Resources]
) -> Allocation:
    n_on = {node: amount.n_times(worker) for node, amount in target.items()}
    n_now, allowed = sum(n_on.values()), spec.worker_counts()
    n_wanted = max((n for n in allowed if n <= n_now), default=allowed[0])
    for node in reversed(n_on):
        n_others = sum(n_on.values()) - n_on[node]
        n_on[node] = max(0, min(n_wanted - n_others, room(node).n_times(worker)))
    if not n_now or sum(n_on.values()) != n_wanted:
        return {}
    return {node: worker * n for node, n in n_on.items() if worker * n != NOTHING}
