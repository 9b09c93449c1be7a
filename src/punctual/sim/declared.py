"""Jobs as tables `[[job]]` declare them, which are run live as well."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from punctual.core.errors import InvalidSpec, check_not_negative
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import largest
from punctual.runtime.cluster_file import NodeGroup
from punctual.runtime.job_order import in_order
from punctual.runtime.jobs_file import DeclaredJob, declared_jobs
from punctual.sim.job import SimJob
from punctual.sim.truth import AllReduceTruth, Cores, Served, Truth
from punctual.traces import TraceJob

#: The rule of scaling of such jobs, and of no others.
DECLARED = "declared"
#: A step with a worker and a server, of one second: the shares of the rule of scaling ``parameter-server``.
_SERVED = Served(0.75, 0.05, 0.15, 0.03, 0.02)


def declared(tables: Sequence[Mapping[str, Any]], cluster: Sequence[NodeGroup]) -> list[TraceJob]:
    """The jobs of tables `[[job]]`, each behind those that it is to run after, and submitted no earlier than they are.

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
    jobs = declared_jobs(tables, "the scenario", largest([group.capacity() for group in cluster]))
    submitted_at: dict[JobId, float] = {}
    traces = []
    for job in in_order(jobs, lambda _: None):
        at = max([job.submit_at_s, *(submitted_at[name] for name in job.spec.after)])
        submitted_at[job.spec.id] = at
        traces.append(_trace_job(job, at))
    return traces


def without_missing_dependencies(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The same jobs, none of which waits any more for one that is not among them."""
    kept = {job.id for job in jobs}
    return [job if job.spec is None else replace(job, spec=_after(job.spec, kept)) for job in jobs]


def _after(spec: JobSpec, kept: Container[str]) -> JobSpec:
    return replace(spec, after=tuple(name for name in spec.after if name in kept))


def _trace_job(job: DeclaredJob, submitted_at: float) -> TraceJob:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AsDeclared:
    """The job of a file of jobs runs as it declares: with any cores, or numbers of workers, that it names.

    It costs what it says: on shares of cores so many core-seconds, whatever it holds, and with workers what one of them
    takes alone, by the law of the rule ``elastic`` for more of them, or of ``parameter-server`` where it has servers.

    Attributes
    ----------
    startup_s
        From a launch to the first step.
    communication_frac, across_factor
        See `punctual.sim.truth.AllReduceTruth`.
    """

    startup_s: float = 0.0
    communication_frac: float = 0.02
    across_factor: float = 2.0

    def __post_init__(self) -> None:
        check_not_negative("a rule of scaling", startup_s=self.startup_s)
        AllReduceTruth(step_s=1.0, communication_frac=self.communication_frac, across_factor=self.across_factor)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        if trace.spec is None:
            raise InvalidSpec(
                "the trace must say what the job declares",
                "nothing",
                f"job '{trace.id}'",
                "Take another rule of scaling, or tables `[[job]]`.",
            )
        spec = replace(
            trace.spec,
            id=JobId(trace.id),
            deadline_s=trace.deadline_s,
            startup_s=self.startup_s,
            controller=controller or trace.spec.controller,
        )
        if spec.worker is None:
            work_steps = spec.work_steps or _work_core_s(spec)
            truth: Truth = Cores(step_core_s=_work_core_s(spec) / work_steps, serial_frac=0.0)
            return SimJob(trace.submitted_at, replace(spec, work_steps=work_steps), truth, work_steps)
        (alone,) = spec.profile
        assert spec.work_steps is not None
        return SimJob(trace.submitted_at, spec, self._law(spec, 1.0 / alone.rate_sps), spec.work_steps)

    def _law(self, spec: JobSpec, step_s: float) -> Truth:
        if spec.server is not None:
            return _SERVED.scaled(step_s)
        return AllReduceTruth(
            step_s=step_s, communication_frac=self.communication_frac, across_factor=self.across_factor
        )


def _work_core_s(spec: JobSpec) -> float:
    assert spec.work_core_s is not None
    return spec.work_core_s
