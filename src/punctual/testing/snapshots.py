"""Hypothesis strategies for what a policy is shown."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobStatus, JobView
from punctual.core.resources import Resources

#: Eighths, so that sums of cores are exact.
_CORES = st.integers(0, 64).map(lambda eighths: eighths / 8)
_LEAST_CORES = 1 / 8
_AMOUNTS = st.builds(Resources, _CORES, st.integers(0, 4), st.sampled_from([0, 1 << 30, 8 << 30]))


@st.composite
def job_views(draw: st.DrawFn, id: JobId, status: JobStatus, granted: Allocation) -> JobView:
    """A job whose floor, demand and ceiling come in this order; what it holds is between floor and ceiling."""
    floor, ceiling = draw(_AMOUNTS), draw(_AMOUNTS.filter(bool))
    for amount in granted.values():
        floor, ceiling = floor.at_most(amount), ceiling.at_least(amount)
    ceiling = ceiling.at_least(floor)
    demand = draw(_AMOUNTS).at_least(floor).at_most(ceiling)
    spec = JobSpec(id=id, ceiling=ceiling, floor=floor, deadline_s=60.0, preemptible=draw(st.booleans()))
    submitted_at = draw(st.integers(0, 3).map(float))
    return JobView(
        spec=spec, status=status, submitted_at=submitted_at, done_steps=0.0, demand=demand, granted=granted
    )  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn, *, n_jobs_max: int = 8) -> Snapshot:
    """A cluster of up to four nodes on which running jobs hold what fits; others wait.

    Leaving every running job where it is, with what it holds or with its floor, is always possible.
    """
    free = {NodeId(f"node-{i}"): amount for i, amount in enumerate(draw(st.lists(_AMOUNTS, max_size=4)))}
    nodes = tuple(Node(node, capacity) for node, capacity in free.items())
    jobs = []
    for i in range(draw(st.integers(0, n_jobs_max))):
        granted = draw(_grants(free)) if draw(st.booleans()) else {}
        for node, amount in granted.items():
            free[node] = free[node] - amount
        jobs.append(draw(job_views(JobId(f"job-{i}"), "running" if granted else "queued", granted)))
    return Snapshot(at=10.0, revision=draw(st.integers(1, 100)), nodes=nodes, jobs=tuple(jobs), seed=7)


@st.composite
def _grants(draw: st.DrawFn, free: Mapping[NodeId, Resources]) -> Allocation:
    """Something of what is free on one node; nothing if there is no core left."""
    roomy = sorted(node for node, amount in free.items() if amount.cores >= _LEAST_CORES)
    if not roomy:
        return {}
    node: NodeId = draw(st.sampled_from(roomy))
    amount = draw(_AMOUNTS).at_most(free[node])
    return {node: replace(amount, cores=max(amount.cores, _LEAST_CORES))}
