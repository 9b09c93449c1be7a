"""Cache of a snapshot's parts, updated with each event instead of being rebuilt for each plan."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from punctual.core.cluster import Node
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.ledger import Bookings
from punctual.core.resources import NOTHING, Resources
from punctual.core.scheduled_job import ScheduledJob


class MemoryUse:
    """Memory that each job holds: measured, or expected until it is measured.

    Only nodes with `jobs_at_once` count it, that have had no notice. Simulated jobs hold exactly the memory that they ask for.
    """

    def __init__(self, jobs: Mapping[JobId, ScheduledJob]) -> None:
        self._jobs = jobs
        self._usual_bytes: dict[NodeId, int] = {}

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the nodes."""
        self._usual_bytes = {node.id: node.usual_memory_bytes for node in nodes if node.jobs_at_once is not None}

    def of(self, job: ScheduledJob) -> dict[NodeId, int]:
        """Return the memory in bytes that the job holds or will hold on each node, also paused; empty if unknown."""
        nodes = (job.places or tuple(job.target)) if self._usual_bytes else ()
        if not job.target:  # paused: what it has asked for is kept for it as long as it has a process
            asked_bytes = job.spec.floor.memory_bytes if job.memory_bytes else 0
            held = {node: max(job.memory_bytes, asked_bytes) // len(nodes) for node in nodes}
        else:
            held = {node: max(job.peak_memory_bytes // len(nodes), self._expected_bytes(job, node)) for node in nodes}
        return {node: n_bytes for node, n_bytes in held.items() if n_bytes and node in self._usual_bytes}

    def beyond_plan(self) -> dict[NodeId, int]:
        """Memory that all jobs hold on each node beyond their planned amounts."""
        beyond: dict[NodeId, int] = {}
        for job in self._jobs.values() if self._usual_bytes else ():
            for node, n_bytes in self.of(job).items():
                more_bytes = n_bytes - job.target.get(node, NOTHING).memory_bytes
                if more_bytes > 0:
                    beyond[node] = beyond.get(node, 0) + more_bytes
        return beyond

    def _expected_bytes(self, job: ScheduledJob, node: NodeId) -> int:
        """Memory that a job should hold on the node, if it did not ask and was hardly measured yet."""
        if job.is_memory_known or job.spec.asked_memory_bytes:
            return 0
        usual_bytes = self._usual_bytes.get(node, 0) if job.spec.worker is None else 0
        return job.expected_memory_bytes // max(1, len(job.places)) or usual_bytes


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
        self.hide(job)
        self._changed.pop(job, None)
        self._changed[job] = None

    def hide(self, job: JobId) -> None:
        """Hide `job` from policies; the next `touch` shows it again."""
        if self._holding.pop(job, None) is not None:
            return
        i = bisect_left(self._numbers, self._number_of.get(job, -1))
        if i < len(self._numbers) and self._waiting[i].spec.id == job:
            del self._numbers[i], self._waiting[i]

    def drop(self, job: JobId) -> None:
        """Remove `job`, which has ended."""
        self._changed.pop(job, None)
        self.hide(job)
        self._number_of.pop(job, None)

    def parts(self) -> tuple[tuple[Node, ...], tuple[JobView, ...], tuple[JobView, ...], dict[NodeId, Resources]]:
        """Return `nodes`, `holding`, `waiting` and `free` of the present snapshot."""
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
        return self._nodes, tuple(self._holding.values()), tuple(self._waiting), free

    def dump(self) -> tuple[tuple[JobId, ...], ...]:
        """Return the jobs that are shown as holding, that are shown as waiting, and whose views are outdated."""
        return tuple(self._holding), tuple(view.spec.id for view in self._waiting), tuple(self._changed)

    def load(self, jobs: Iterable[JobId], state: tuple[tuple[JobId, ...], ...]) -> None:
        """Continue from a state of `dump`, and make the views of the `jobs`, in order of submission, again."""
        for job in jobs:
            self.admit(job)
        holding, waiting, changed = state
        self._holding = {job: view for job in holding if (view := self._view(job)) is not None}
        self._waiting = [view for job in waiting if (view := self._view(job)) is not None]
        self._numbers = [self._number_of[view.spec.id] for view in self._waiting]
        self._changed = dict.fromkeys(changed)

    def _show(self, view: JobView) -> None:
        holds = bool(view.planned or view.granted)
        if not (holds and view.spec.id in self._holding):  # else it keeps its place
            self.hide(view.spec.id)
        if holds:
            self._holding[view.spec.id] = view
            return
        number = self._number_of[view.spec.id]
        i = bisect_left(self._numbers, number)
        self._numbers.insert(i, number)
        self._waiting.insert(i, view)
