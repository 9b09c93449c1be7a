"""Placement of a job's workers and servers on nodes."""

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Mapping
from itertools import islice
from math import ceil

from punctual.core.ids import NodeId
from punctual.core.job import Allocation
from punctual.core.resources import NOTHING, TOLERANCE, Resources, Size, largest, resource_names, total


def place(
    n_workers: int, worker: Resources, free: Mapping[NodeId, Resources], slow: Collection[NodeId] = ()
) -> Allocation | None:
    """Put equal workers on one node if possible, otherwise on the fewest.

    Parameters
    ----------
    n_workers
        Number of workers, at least one.
    worker
        Amount of each worker, not zero.
    free
        Free amount of each node.
    slow
        Nodes that are taken only where the others have no room.

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
    if slow and any(node in slow for node in free):
        fast = place(n_workers, worker, {node: amount for node, amount in free.items() if node not in slow})
        if fast is not None:
            return fast
    rooms = _rooms(worker, free)
    fitting = [room for room in rooms if room[0] >= n_workers]
    if fitting:
        return {min(fitting)[1]: worker * n_workers}
    return None if sum([n for n, _ in rooms]) < n_workers else _spread(n_workers, worker, rooms)


def _rooms(worker: Resources, free: Mapping[NodeId, Resources]) -> list[tuple[int, NodeId]]:
    """Return the number of workers that fit on each node with room for one, and the node."""
    gpus = worker.gpus
    if gpus and not (worker.cores or worker.memory_bytes or worker.others):
        # Spelled out, because it runs over all nodes for each job that is started.
        rooms = [(int((amount.gpus + TOLERANCE) // gpus), node) for node, amount in free.items()]
    else:
        rooms = [(amount.n_times(worker), node) for node, amount in free.items() if amount.gpus >= gpus - TOLERANCE]
    return [room for room in rooms if room[0]]


def _spread(n_workers: int, worker: Resources, rooms: list[tuple[int, NodeId]]) -> Allocation:
    """Fill the largest rooms, and put the rest where it fits best; all rooms together must suffice, and no single one."""
    left, largest = n_workers, sorted(rooms, key=lambda room: (-room[0], room[1]))
    allocation: Allocation = {}
    n_alike, amount = 0, NOTHING
    for i, (n, node) in enumerate(largest):
        if n >= left:
            n, node = min(room for room in largest[i:] if room[0] >= left)  # noqa: PLW2901 -- the last round
            allocation[node] = worker * left
            break
        if n != n_alike:  # mostly all rooms are alike
            n_alike, amount = n, worker * n
        allocation[node] = amount
        left -= n
    return allocation


class Rooms:
    """Index of nodes by their free amounts: finds the tightest node with room among thousands quickly.

    Parameters
    ----------
    free
        Free amount of each node.
    """

    def __init__(self, free: Mapping[NodeId, Resources]) -> None:
        self.free = dict(free)
        #: Nodes by `Resources.size`, in an order in which an amount comes before all that it fits in.
        self._nodes: dict[Size, list[NodeId]] = {}
        for node in sorted(free):
            self._nodes.setdefault(free[node].size, []).append(node)
        self._sizes = sorted(self._nodes)

    def __len__(self) -> int:
        return len(self.free)

    def largest(self) -> Resources:
        """The most that is free on any node, kind by kind."""
        return largest([self.free[nodes[0]] for nodes in self._nodes.values()])

    def change(self, node: NodeId, amount: Resources) -> None:
        """Let `amount` be free on `node`."""
        before, after = self.free[node].size, amount.size
        alike = self._nodes[before]
        del alike[bisect_left(alike, node)]
        if not alike:
            del self._nodes[before], self._sizes[bisect_left(self._sizes, before)]
        if after not in self._nodes:
            self._nodes[after] = []
            insort(self._sizes, after)
        insort(self._nodes[after], node)
        self.free[node] = amount

    def tightest(self, amount: Resources, n: int = 1, but: Container[NodeId] = ()) -> list[NodeId]:
        """Return the `n` nodes with the least room for `amount`, none of `but`; fewer if not enough exist."""
        placed: list[NodeId] = []
        for size in islice(self._sizes, bisect_left(self._sizes, (amount.gpus - TOLERANCE, -1.0, 0, 0.0, ())), None):
            nodes = self._nodes[size]
            if amount.fits_in(self.free[nodes[0]]):
                placed += islice((node for node in nodes if node not in but), n - len(placed))
                if len(placed) == n:
                    break
        return placed


def place_evenly(
    n_workers: int, worker: Resources, n_servers: int, server: Resources, rooms: Rooms, n_nodes_most: int | None = None
) -> Allocation | None:
    """Put workers and servers on the fewest nodes that can each take an equal part of both.

    Parameters
    ----------
    n_workers, n_servers
        Numbers of workers and servers; 0 servers for a job that has none.
    worker, server
        Amounts of a worker and a server.
    rooms
        Free amounts.
    n_nodes_most
        More nodes than this are not tried.

    Returns
    -------
    Allocation or None
        Node -> amount; None if they do not fit in equal parts.

    Notes
    -----
    *Formula.* For k = 1, 2, ... up to n_workers + n_servers: node i gets ⌊w/k⌋ or ⌈w/k⌉ workers and ⌊p/k⌋ or ⌈p/k⌉
    servers, those with a worker more having a server less where both are uneven. The largest part goes first, each on
    the node with the least room that is enough. The first k for which all parts find one is taken.

    *Source.* [optimus2018]: with workers and servers alike, the fewest nodes with equal numbers on each have the least
    traffic between nodes on the busiest link.

    *Differs.* (1) The tightest nodes are taken instead of the roomiest, so that large gaps stay. (2) Numbers that k does
    not divide are split as evenly as possible.

    *Properties.* Deterministic. Where k divides both numbers and parts are found, fewer nodes cannot take equal parts.

    Examples
    --------
    >>> rooms = Rooms({NodeId("a"): Resources(8, 2), NodeId("b"): Resources(8, 2), NodeId("c"): Resources(4, 1)})
    >>> place_evenly(4, Resources(2, 1), 2, Resources(3), rooms)
    {'a': Resources(cores=7, gpus=2, memory_bytes=0), 'b': Resources(cores=7, gpus=2, memory_bytes=0)}
    """
    fewest = _fewest(worker * n_workers + server * n_servers, rooms.largest())
    most = min(n_workers + n_servers, len(rooms), len(rooms) if n_nodes_most is None else n_nodes_most)
    for n_nodes in range(fewest, most + 1):
        placed = _parts_on(_even_parts(n_workers, worker, n_servers, server, n_nodes), rooms)
        if placed is not None:
            return placed
    return None


def place_apart(
    n_workers: int, worker: Resources, n_servers: int, server: Resources, free: Mapping[NodeId, Resources]
) -> Allocation | None:
    """Put the workers on the fewest nodes, then the servers on the fewest with room left; None if they do not fit."""
    allocation = place(n_workers, worker, free)
    if allocation is None or not n_servers:
        return allocation
    left = {node: amount - allocation[node] if node in allocation else amount for node, amount in free.items()}
    servers = place(n_servers, server, left)
    if servers is None:
        return None
    return {node: total(part[node] for part in (allocation, servers) if node in part) for node in allocation | servers}


def place_together(
    n_workers: int, worker: Resources, n_servers: int, server: Resources, free: Mapping[NodeId, Resources]
) -> Allocation | None:
    """Put workers and servers on one node if it has room for all, else as `place_apart`; None if they do not fit."""
    together = place(1, worker * n_workers + server * n_servers, free) if n_servers else None
    return together or place_apart(n_workers, worker, n_servers, server, free)


def _fewest(amount: Resources, room: Resources) -> int:
    """Return a lower bound of the number of nodes for the amount."""
    names = resource_names([amount])
    pairs = zip(amount.vector(names), room.vector(names), strict=True)
    return max([ceil(needed / most - TOLERANCE) for needed, most in pairs if most > 0], default=1) or 1


#: An amount, and how many nodes take it.
_Part = tuple[Resources, int]


def _even_parts(n_workers: int, worker: Resources, n_servers: int, server: Resources, n_nodes: int) -> list[_Part]:
    """Return the part of each of `n_nodes` nodes, the largest first."""
    workers, more_workers = divmod(n_workers, n_nodes)
    servers, more_servers = divmod(n_servers, n_nodes)
    # The first nodes have a worker more, the last ones a server more; if these overlap, the nodes between have both.
    both = max(0, more_workers + more_servers - n_nodes)
    neither = max(0, n_nodes - more_workers - more_servers)
    parts = [
        (worker * (workers + 1) + server * (servers + 1), both),
        (worker * (workers + 1) + server * servers, more_workers - both),
        (worker * workers + server * (servers + 1), more_servers - both),
        (worker * workers + server * servers, neither),
    ]
    return sorted((part for part in parts if part[1]), key=lambda part: part[0].size, reverse=True)


def _parts_on(parts: list[_Part], rooms: Rooms) -> Allocation | None:
    """Each part on a node of its own."""
    allocation: Allocation = {}
    for part, n_nodes in parts:
        nodes = rooms.tightest(part, n_nodes, allocation)
        if len(nodes) < n_nodes:
            return None
        allocation |= dict.fromkeys(nodes, part)
    return allocation
