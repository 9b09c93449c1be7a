"""The workloads on which policies are compared: where the jobs come from, what they may have, on which cluster."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil

from _published import SIA_KINDS, data, elastic_of, tables_of, timed, trace_of
from _simulated import Simulated

from punctual.core.speed import Shape
from punctual.history.cluster import ClusterRecord
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.request.cluster_file import NodeGroup, groups_of, nodes_of
from punctual.sim.job import SimJob
from punctual.sim.scaling import ScalingRule
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.traces import TraceJob
from punctual.sim.traces.deadlines import ChronusDeadlines, UniformSlack, assign
from punctual.sim.traces.load import rescaled
from punctual.sim.traces.order import normalized

#: What a start, going on after a pause, and a change of size cost.
STARTUP_S = RESIZE_S = 30.0

N_PHILLY = 5000
_PHILLY_BETWEEN = 14_000
_ITP = "microsoft_itp_2021/with_models_deadlines"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Jobs to compare policies on.

    Attributes
    ----------
    traces
        The jobs of a seed and a load (None: as recorded).
    rule
        What they may have.
    loads, seeds
        That are run; a seed may be another part of a trace or another file.
    is_elastic
        Whether jobs can be resized; if not, policies that resize have nothing to decide and are left out.
    """

    name: str
    traces: Callable[[int, float | None], list[TraceJob]]
    rule: Callable[[], ScalingRule]
    cluster: str
    loads: tuple[float | None, ...]
    seeds: tuple[int, ...]
    is_elastic: bool = True


def philly(seed: int, load: float | None) -> list[TraceJob]:
    """A slice of the trace, another one for each seed, with deadlines by Chronus's rule."""
    begin = (seed + 1) * _PHILLY_BETWEEN
    jobs = normalized(trace_of("philly_2017/philly_jobs_pollux.csv")[begin : begin + N_PHILLY])
    jobs = jobs if load is None else rescaled(jobs, load, 256)
    return list(assign(jobs, ChronusDeadlines(), seed))


def with_deadlines(path: str, n: int) -> Callable[[int, float | None], list[TraceJob]]:
    """A file with deadlines; for other seeds than 0 they are drawn again by the rule they were made with."""

    def traces(seed: int, load: float | None) -> list[TraceJob]:
        jobs = trace_of(path)
        jobs = jobs if load is None else rescaled(jobs, load, n)
        return list(assign(jobs, UniformSlack(), seed)) if seed else jobs

    return traces


def saturn(seed: int, load: float | None) -> list[TraceJob]:  # noqa: ARG001 -- its load is what it is
    """One of Sia's files for each seed, with the iterations that the training curves say."""
    profiles = data() / "profiles/sia"
    traces = trace_of(f"sia_workloads/saturn/workload-{seed + 1}.csv")
    durations = [_slowest_s(timed(one, profiles, SIA_KINDS)) for one in traces]
    jobs = [
        replace(elastic_of(one, profiles), duration_s=duration)
        for one, duration in zip(traces, durations, strict=True)
    ]  # fmt: skip
    return list(assign(jobs, ChronusDeadlines(), seed))


def _slowest_s(one: TraceJob) -> float:
    return max(one.device_durations_s.values())


def generated(seed: int, load: float | None) -> list[TraceJob]:
    return list(ModelartsLike(n_jobs=1000, load=load or 1.0, n_devices=256).jobs(seed))


def _measured(folder: str, per_node: int) -> Callable[[], ScalingRule]:
    return lambda: replace(tables_of(folder, per_node), startup_s=STARTUP_S, resize_cost_s=RESIZE_S)


def _rigid() -> ScalingRule:
    return Rigid(startup_s=STARTUP_S)


def _elastic() -> ScalingRule:
    return Elastic(startup_s=STARTUP_S, resize_cost_s=RESIZE_S)


_LOADS = (0.8, 1.0, 1.2)
_A100 = "elasticflow/throughputs_A100"

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        name="philly", traces=philly, rule=_rigid, cluster="32x8", loads=_LOADS, seeds=(0, 1, 2, 3, 4), is_elastic=False
    ),
    Workload(
        name="cluster10", traces=with_deadlines(f"{_ITP}/cluster10.csv", 256), rule=_measured(_A100, 8),
        cluster="32x8", loads=_LOADS, seeds=(0, 1, 2),
    ),
    Workload(
        name="195job", traces=with_deadlines(f"{_ITP}/195job.csv", 128), rule=_measured(_A100, 8),
        cluster="16x8", loads=_LOADS, seeds=(0, 1, 2),
    ),
    Workload(
        name="elasticVpollux_e", traces=with_deadlines("elasticflow_repo/elasticVpollux_e.csv", 64),
        rule=_measured("elasticflow/throughputs_T4", 4), cluster="16x4", loads=_LOADS, seeds=(0, 1, 2),
    ),
    Workload(
        name="saturn", traces=saturn, rule=_measured("sia", 4), cluster="6x4:T4+3x8:2080Ti+2x8:A100", loads=(None,),
        seeds=(0, 1, 2, 3, 4),
    ),
    Workload(
        name="modelarts-like", traces=generated, rule=_elastic, cluster="32x8", loads=_LOADS, seeds=(0, 1, 2, 3, 4)
    ),
)  # fmt: skip

#: Text of each policy -> whether it runs jobs with the devices they asked for and in no other way.
POLICIES = {
    "fifo": True, "fifo:backfill=true": True, "shortest-remaining": True, "earliest-deadline": True,
    "least-laxity": True, "tetris": True, "max-min": False, "dominant-share": False, "proportional": False,
    "greedy": False,
}  # fmt: skip


def jobs_of(workload: Workload, seed: int, load: float | None, *, rigid: bool) -> list[SimJob]:
    """The jobs; `rigid`: each with the allowed number nearest to what it asked for."""
    rule = workload.rule()
    traces = workload.traces(seed, load)
    jobs = [able_everywhere(rule.job(one, seed), workload.cluster) for one in traces]
    return [pinned(job, one) for job, one in zip(jobs, traces, strict=True)] if rigid else jobs


def able_everywhere(job: SimJob, cluster: str) -> SimJob:
    """The job with the numbers of devices with which it was measured on every kind of the cluster."""
    nodes = groups(cluster)
    if len(nodes) == 1:
        return job
    return with_counts(job, tuple(n for n in job.spec.counts if all(_runs(job, n, group) for group in nodes)))


def _runs(job: SimJob, n: int, group: NodeGroup) -> bool:
    shape = Shape(n_workers=n, n_nodes=ceil(n / group.gpus), device=group.device)
    return job.truth.rate_sps(shape) > 0


def pinned(job: SimJob, one: TraceJob) -> SimJob:
    """The job with one allowed number of devices."""
    asked = one.n_gpus or 1.0
    return with_counts(job, (min(job.spec.worker_counts(), key=lambda count: (abs(count - asked), count)),))


def with_counts(job: SimJob, counts: tuple[int, ...]) -> SimJob:
    worker = job.spec.worker
    assert worker is not None
    spec = replace(job.spec, counts=counts, floor=worker * counts[0], ceiling=worker * counts[-1])
    return replace(job, spec=spec)


def record_of(jobs: Iterable[SimJob], cluster: str, policy: str) -> ClusterRecord:
    """Simulate `jobs` under `policy`."""
    return Simulated(policy, jobs, nodes_of(groups(cluster))).record


def groups(cluster: str) -> tuple[NodeGroup, ...]:
    return groups_of(cluster, "the case")
