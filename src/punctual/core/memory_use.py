"""Memory that jobs hold, or are taken to hold, on each node, whatever is planned for them."""

from collections.abc import Iterable, Mapping

from punctual.core.cluster import Node
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING
from punctual.core.scheduled_job import ScheduledJob


class MemoryUse:
    """What is measured of the jobs that have processes, and until that is known, what is expected of them.

    It is counted only on nodes that say how many jobs may run at once: what simulated jobs hold is what they ask for.
    """

    def __init__(self, jobs: Mapping[JobId, ScheduledJob]) -> None:
        self._jobs = jobs
        self._usual_bytes: dict[NodeId, int] = {}

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """These are the nodes there are."""
        self._usual_bytes = {node.id: node.usual_memory_bytes for node in nodes if node.jobs_at_once is not None}

    def of(self, job: ScheduledJob) -> dict[NodeId, int]:
        """What the job holds on each node, also while it is paused, or is to hold; empty: nothing, or nothing is known."""
        nodes = (job.places or tuple(job.target)) if self._usual_bytes else ()
        if not job.target:  # paused: what it has asked for is kept for it as long as it has a process
            asked_bytes = job.spec.floor.memory_bytes if job.memory_bytes else 0
            held = {node: max(job.memory_bytes, asked_bytes) // len(nodes) for node in nodes}
        else:
            held = {node: max(job.peak_memory_bytes // len(nodes), self._expected_bytes(job, node)) for node in nodes}
        return {node: n_bytes for node, n_bytes in held.items() if n_bytes}

    def beyond_plan(self) -> dict[NodeId, int]:
        """What all jobs hold on each node beyond what is planned for them."""
        beyond: dict[NodeId, int] = {}
        for job in self._jobs.values() if self._usual_bytes else ():
            for node, n_bytes in self.of(job).items():
                more_bytes = n_bytes - job.target.get(node, NOTHING).memory_bytes
                if more_bytes > 0:
                    beyond[node] = beyond.get(node, 0) + more_bytes
        return beyond

    def _expected_bytes(self, job: ScheduledJob, node: NodeId) -> int:
        """What a job that has not asked is expected to hold on the node as long as it has hardly been measured."""
        if job.is_memory_known or job.spec.asked_memory_bytes:
            return 0
        usual_bytes = self._usual_bytes.get(node, 0) if job.spec.worker is None else 0
        return job.expected_memory_bytes // max(1, len(job.places)) or usual_bytes
