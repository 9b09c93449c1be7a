"""One simulation, as each experiment of a paper makes it."""

from collections.abc import Iterable, Sequence

from punctual.core.protocols import Policy
from punctual.history.cluster import ClusterHistory
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim import parts
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation


def record_of(jobs: Iterable[SimJob], cluster: Sequence[NodeGroup], policy: Policy, seed: int = 0) -> ClusterHistory:
    """Simulate jobs under a policy; return the record."""
    all_jobs, record = list(jobs), ClusterHistory()
    models = parts.by_default("models", (job.spec.model for job in all_jobs))
    Simulation(all_jobs, nodes_of(cluster), policy, models=models, listeners=(record.add,), seed=seed).run()
    return record
