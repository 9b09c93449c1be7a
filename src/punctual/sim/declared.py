"""Jobs declared as tables `[[job]]`, which can also run live."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import largest, total
from punctual.request.cluster_file import NodeGroup
from punctual.request.job_order import in_order
from punctual.request.jobs_file import declared_jobs
from punctual.sim.traces import TraceJob

#: The rule of scaling of such jobs, and of no others.
DECLARED = "declared"


def declared(tables: Sequence[Mapping[str, Any]], cluster: Sequence[NodeGroup]) -> list[TraceJob]:
    """Return the jobs of tables `[[job]]`, each after those it depends on, and submitted no earlier.

    Raises
    ------
    InvalidSpec
        They cannot be simulated, one is to run after a job that there is not, or the cluster does not say what jobs may
        hold.
    """
    if any(group.cores is None for group in cluster):
        raise InvalidSpec(
            "the cluster of jobs that are declared must say its cores",
            "a group of nodes without `cores`",
            "`cluster`",
            "Write tables `[[cluster]]` with `n_nodes` and `cores`.",
        )
    together = total(group.capacity() * group.n_nodes for group in cluster)
    jobs = declared_jobs(tables, "the scenario", largest([group.capacity() for group in cluster]), together)
    submitted_at: dict[JobId, float] = {}
    traces = []
    for job in in_order(jobs, lambda _: None):
        at = max([job.at, *(submitted_at[name] for name in job.spec.after)])
        submitted_at[job.spec.id] = at
        traces.append(_trace_job(job, at))
    return traces


def without_missing_dependencies(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Return the jobs without dependencies on jobs that are not among them."""
    kept = {job.id for job in jobs}
    return [job if job.spec is None else replace(job, spec=_after(job.spec, kept)) for job in jobs]


def _after(spec: JobSpec, kept: Container[str]) -> JobSpec:
    return replace(spec, after=tuple(name for name in spec.after if name in kept))


def _trace_job(job: JobSubmitted, submitted_at: float) -> TraceJob:
    spec = job.spec
    core_s = spec.work_core_s
    if core_s is None and spec.worker is not None and spec.work_steps is not None:
        core_s = spec.work_steps / spec.profile[0].rate_sps * spec.worker.cores
    return TraceJob(
        id=spec.id,
        submitted_at=submitted_at,
        n_gpus=spec.ceiling.gpus,
        cores=spec.ceiling.cores,
        duration_s=None if core_s is None else core_s / spec.ceiling.cores,
        work_steps=spec.work_steps,
        deadline_s=spec.deadline_s,
        weight=spec.weight,
        spec=spec,
    )
