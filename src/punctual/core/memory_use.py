"""Memory that jobs hold or should hold on each node, beside their planned amounts."""

from collections.abc import Iterable, Mapping

from punctual.core.cluster import Node
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING
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
