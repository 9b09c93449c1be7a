"""Where the workers of a job go."""

from collections.abc import Mapping

from punctual.core.ids import NodeId
from punctual.core.job import Allocation
from punctual.core.resources import TOLERANCE, Resources


def n_fitting(worker: Resources, room: Resources) -> int:
    """How many workers fit in `room`.

    Examples
    --------
    >>> n_fitting(Resources(cores=2, gpus=1), Resources(cores=7, gpus=4))
    3
    """
    most = []
    if worker.gpus:
        most.append(room.gpus // worker.gpus)
    if worker.cores > TOLERANCE:
        most.append(int((room.cores + TOLERANCE) / worker.cores))
    if worker.memory_bytes:
        most.append(room.memory_bytes // worker.memory_bytes)
    return min(most, default=0)


def place(n_workers: int, worker: Resources, free: Mapping[NodeId, Resources]) -> Allocation | None:
    """Put equal workers on one node if possible, otherwise on the fewest.

    Parameters
    ----------
    n_workers
        How many there are, at least one.
    worker
        What each of them holds, not nothing.
    free
        What is free on each node.

    Returns
    -------
    Allocation or None
        Node -> amount; None if they do not fit.

    Notes
    -----
    *Formula.* With m(k) the number of workers that fit on node k: if some m(k) ≥ n, the node with the least such m(k)
    (best fit: large gaps stay whole). Otherwise nodes in descending order of m(k) are filled until one node can take
    the rest, and of those that can, the one with the least m(k) does.

    *Properties.* The number of nodes is the least possible. Deterministic: equal nodes in order of their ids, and the
    order of `free` does not matter. O(nodes), or O(nodes log nodes) where one node is not enough.

    Examples
    --------
    >>> free = {NodeId("a"): Resources(gpus=8), NodeId("b"): Resources(gpus=4)}
    >>> place(4, Resources(gpus=1), free)
    {'b': Resources(cores=0.0, gpus=4, memory_bytes=0)}
    """
    rooms = _rooms(worker, free)
    best = min([room for room in rooms if room[0] >= n_workers], default=None)
    if best is not None:
        return {best[1]: worker * n_workers}
    if sum([n for n, _ in rooms]) < n_workers:
        return None
    return _spread(n_workers, worker, rooms)


def _rooms(worker: Resources, free: Mapping[NodeId, Resources]) -> list[tuple[int, NodeId]]:
    """For each node with room for a worker: how many, and the node."""
    gpus = worker.gpus
    if gpus and not worker.cores and not worker.memory_bytes:
        # Spelled out because this runs over all nodes for each job that is started.
        return [(amount.gpus // gpus, node) for node, amount in free.items() if amount.gpus >= gpus]
    rooms = [(n_fitting(worker, amount), node) for node, amount in free.items() if amount.gpus >= gpus]
    return [room for room in rooms if room[0]]


def _spread(n_workers: int, worker: Resources, rooms: list[tuple[int, NodeId]]) -> Allocation:
    """Fill the largest rooms; the rest goes where it fits best. The rooms are enough, and none is alone."""
    left, largest = n_workers, sorted(rooms, key=lambda room: (-room[0], room[1]))
    allocation: Allocation = {}
    for i, (n, node) in enumerate(largest):
        if n >= left:
            n, node = min(room for room in largest[i:] if room[0] >= left)  # noqa: PLW2901 -- the last round
            allocation[node] = worker * left
            break
        allocation[node] = worker * n
        left -= n
    return allocation
