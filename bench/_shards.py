"""Several services that share the nodes and the jobs of a cluster among them, simulated.

Each has as many nodes as the others, and a job belongs to one of them from its submission on: to the one with the least work, in
device-seconds as they were traced, of jobs whose deadline has not passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from _simulated import Simulated

from punctual.request.cluster_file import groups_of, nodes_of
from punctual.sim.garbage import rare_collections
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.traces.deadlines import UniformSlack
from punctual.sim.traces.generators.poisson import Poisson
from punctual.sim.traces.job import TraceJob

CLUSTER, N_DEVICES = "64x8", 512


@dataclass(kw_only=True)
class Sharded:
    """All shards together."""

    n_shards: int
    n_jobs: int = 0
    n_met: int = 0
    jct_sum_s: float = 0.0
    plans_s: list[float] = field(default_factory=list)


def jobs_of(n_jobs: int, load: float, seed: int) -> list[TraceJob]:
    slack = UniformSlack(low=1.2, high=3.0)
    traced = Poisson(n_jobs=n_jobs, n_devices=N_DEVICES, load=load).jobs(seed)
    return [slack.apply(job, seed) for job in traced]


def routed(jobs: Sequence[TraceJob], n_shards: int) -> list[list[TraceJob]]:
    """The jobs of each shard."""
    shards: list[list[TraceJob]] = [[] for _ in range(n_shards)]
    open_until: list[list[tuple[float, float]]] = [[] for _ in range(n_shards)]
    for job in jobs:
        loads = []
        for i, known in enumerate(open_until):
            open_until[i] = [(until, work) for until, work in known if until > job.submitted_at]
            loads.append(sum(work for _, work in open_until[i]))
        chosen = loads.index(min(loads))
        shards[chosen].append(job)
        lasts_s = job.duration_s or 0.0
        until = job.submitted_at + (job.deadline_s or lasts_s)
        open_until[chosen].append((until, lasts_s * (job.n_gpus or 1)))
    return shards


def played(n_shards: int, jobs: Sequence[TraceJob], seed: int) -> Sharded:
    nodes, together = list(nodes_of(groups_of(CLUSTER, "the case"))), Sharded(n_shards=n_shards)
    for i, shard in enumerate(routed(jobs, n_shards)):
        with rare_collections():
            found = Simulated("promises-first", sim_jobs(shard, Elastic(), seed=seed), nodes[i::n_shards])
        together.n_jobs += len(shard)
        together.n_met += int(found.row["n_deadlines_met"] or 0)
        together.jct_sum_s += len(shard) * float(found.row["jct_mean_s"] or 0.0)
        together.plans_s += found.watched.cpu_s
    return together


def added(parts: Sequence[Sharded]) -> Sharded:
    """Several seeds of the same number of shards."""
    found = replace(parts[0], plans_s=list(parts[0].plans_s))
    for part in parts[1:]:
        found.n_jobs, found.n_met = found.n_jobs + part.n_jobs, found.n_met + part.n_met
        found.jct_sum_s += part.jct_sum_s
        found.plans_s += part.plans_s
    return found
