"""Cache of a snapshot's parts, updated with each event instead of being rebuilt for each plan."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.fast_init import unchecked_constructor
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.ledger import Bookings
from punctual.core.memory_use import MemoryUse
from punctual.core.pools import Pool
from punctual.core.resources import Resources

_snapshot = unchecked_constructor(Snapshot)


class SnapshotCache:
    """The nodes, their capacity that the last plan leaves free, and the jobs that have not ended.

    Those that hold something, or are to, come in the order in which they began to; the others in order of submission.

    Parameters
    ----------
    planned
        The last plan's amounts by node; read for each snapshot.
    view
        Makes the view of a job that has not ended; None: it is left out.
    memory
        Memory that jobs hold beyond their plans.
    """

    def __init__(self, planned: Bookings, view: Callable[[JobId], JobView | None], memory: MemoryUse) -> None:
        self._planned = planned
        self._memory = memory
        self._view = view
        self._nodes: tuple[Node, ...] = ()
        self._capacity: dict[NodeId, Resources] = {}
        self._free: dict[NodeId, Resources] = {}
        #: Nodes whose `_free` and jobs whose view are outdated, in the order of their changes.
        self._changed_nodes: set[NodeId] = set()
        self._changed: dict[JobId, None] = {}
        self._holding: dict[JobId, JobView] = {}
        #: Numbers of the waiting jobs, ascending, and their views in the same order.
        self._numbers: list[int] = []
        self._waiting: list[JobView] = []
        self._number_of: dict[JobId, int] = {}
        self._next_number = 0

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the nodes of the cluster."""
        self._nodes = tuple(sorted(nodes, key=lambda node: node.id))
        self._memory.set_nodes(self._nodes)
        self._capacity = {node.id: node.capacity for node in self._nodes}
        self._free = dict(self._capacity)
        self._changed_nodes = set(self._free)

    def touch_nodes(self, nodes: Iterable[NodeId]) -> None:
        """Note that the bookings on `nodes` have changed."""
        self._changed_nodes.update(nodes)

    def admit(self, job: JobId) -> None:
        """Add `job`, submitted after all others."""
        self._number_of[job] = self._next_number
        self._next_number += 1
        self._changed[job] = None

    def touch(self, job: JobId) -> None:
        """Note that the view of `job` has changed."""
        self._changed[job] = None

    def begin(self, job: JobId) -> None:
        """Place `job`, which has begun to hold something or is to, behind those that began earlier."""
        self._hide(job)
        self._changed.pop(job, None)
        self._changed[job] = None

    def hide_from_policy(self, job: JobId) -> None:
        """Hide `job` from now on; the first `touch` after the end of that shows it again."""
        self._hide(job)

    def drop(self, job: JobId) -> None:
        """Remove `job`, which has ended."""
        self._changed.pop(job, None)
        self._hide(job)
        self._number_of.pop(job, None)

    def snapshot(
        self,
        at: float,
        revision: int,
        seed: int,
        carry: object,
        pools: tuple[Pool, ...] = (),
        spent_usd: Mapping[JobId, float] | None = None,
    ) -> Snapshot:
        """Return the present snapshot."""
        for job in self._changed:
            if (view := self._view(job)) is not None:
                self._show(view)
        self._changed.clear()
        for node in self._changed_nodes:
            if node in self._free:
                self._free[node] = self._capacity[node] - self._planned.total_on(node)
        self._changed_nodes.clear()
        free = dict(self._free)
        for node, n_bytes in self._memory.beyond_plan().items():
            if node in free:
                free[node] = free[node] - Resources(memory_bytes=n_bytes)
        return _snapshot(
            at=at,
            revision=revision,
            nodes=self._nodes,
            holding=tuple(self._holding.values()),
            waiting=tuple(self._waiting),
            free=free,
            seed=seed,
            carry=carry,
            pools=pools,
            spent_usd=spent_usd or {},
        )

    def dump(self) -> tuple[Any, ...]:
        """Return the state without the views, as plain values."""
        return (
            self._nodes, dict(self._number_of), self._next_number, tuple(self._holding),
            tuple(view.spec.id for view in self._waiting), tuple(self._changed),
        )  # fmt: skip

    def load(self, state: tuple[Any, ...]) -> None:
        """Continue from a state of `dump`, and make the views again."""
        nodes, self._number_of, self._next_number, holding, waiting, changed = state
        self.set_nodes(nodes)
        self._holding = {job: view for job in holding if (view := self._view(job)) is not None}
        self._waiting = [view for job in waiting if (view := self._view(job)) is not None]
        self._numbers = [self._number_of[view.spec.id] for view in self._waiting]
        self._changed = dict.fromkeys(changed)

    def _show(self, view: JobView) -> None:
        holds = bool(view.planned or view.granted)
        if not (holds and view.spec.id in self._holding):  # else it keeps its place
            self._hide(view.spec.id)
        if holds:
            self._holding[view.spec.id] = view
            return
        number = self._number_of[view.spec.id]
        i = bisect_left(self._numbers, number)
        self._numbers.insert(i, number)
        self._waiting.insert(i, view)

    def _hide(self, job: JobId) -> None:
        if self._holding.pop(job, None) is not None:
            return
        i = bisect_left(self._numbers, self._number_of.get(job, -1))
        if i < len(self._numbers) and self._waiting[i].spec.id == job:
            del self._numbers[i], self._waiting[i]
