"""The classic policies side by side: completion, waiting, deadlines, utilisation, on published traces and a generator.

Each policy gets the same jobs: those that do not resize get each job with the devices it asked for, the others may give
it any allowed number. A start, going on after a pause and a change of size cost 30 s each. The orderings at the end
compare policies as the published simulators did, where nothing costs anything.
"""

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from typing import Any

from _common import Results, parser
from _published import PUBLISHED, SIA_KINDS, by_rule, data, elastic_of, gavel_jobs, has_data, tables_of, timed, trace_of
from _report import Column, Run, Section, Target, conclude_report, grouped, table_of
from _simulated import Simulated

from punctual.core.speed import Shape
from punctual.core.units import format_duration
from punctual.history.cluster import ClusterHistory
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.request.cluster_file import NodeGroup, groups_of, nodes_of
from punctual.sim.bootstrap import paired_difference
from punctual.sim.job import SimJob
from punctual.sim.measures import Estimate
from punctual.sim.scaling import ScalingRule
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.traces import TraceJob
from punctual.sim.traces.deadlines import ChronusDeadlines, UniformSlack, assign
from punctual.sim.traces.load import rescaled
from punctual.sim.traces.order import normalized

# Workloads: where the jobs come from, what they may have, on which cluster.

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
    """Return the jobs of another of Sia's files for each seed, with the iterations that the training curves say."""
    profiles = data() / "profiles/sia"
    traces = trace_of(f"sia_workloads/saturn/workload-{seed + 1}.csv")
    slowest_s = [max(timed(one, profiles, SIA_KINDS).device_durations_s.values()) for one in traces]
    jobs = [replace(elastic_of(one, profiles), duration_s=s) for one, s in zip(traces, slowest_s, strict=True)]
    return list(assign(jobs, ChronusDeadlines(), seed))


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


def record_of(jobs: Iterable[SimJob], cluster: str, policy: str) -> ClusterHistory:
    """Simulate `jobs` under `policy`."""
    return Simulated(policy, jobs, nodes_of(groups(cluster))).record


def groups(cluster: str) -> tuple[NodeGroup, ...]:
    return groups_of(cluster, "the case")


# What is told of a run.

#: Workload, load, seed, policy.
Assignment = tuple[str, float | None, int, str]

KEPT = (
    "n_jobs", "n_unfinished", "jct_mean_s", "jct_p99_s", "waiting_mean_s", "deadlines_met_frac", "tardiness_mean_s",
    "granted_device_frac", "resizes_per_job", "preemptions_per_job", "makespan_s",
)  # fmt: skip


def simulated(one: Assignment) -> Run:
    name, load, seed, policy = one
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    record = record_of(jobs_of(workload, seed, load, rigid=POLICIES[policy]), workload.cluster, policy)
    row = record.summary().row()
    return {"workload": name, "load": load, "seed": seed, "policy": policy, **{key: row[key] for key in KEPT}}


def assignments(workloads: Iterable[Workload]) -> list[Assignment]:
    return [
        (workload.name, load, seed, policy)
        for workload in workloads
        for load in workload.loads
        for seed in workload.seeds
        for policy, is_rigid in POLICIES.items()
        if is_rigid or workload.is_elastic
    ]


# The published orderings.


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """Order of two policies in a published run, and in ours."""

    trace: str
    figure: str
    theirs: tuple[tuple[str, float], tuple[str, float]]
    ours: tuple[tuple[str, float], tuple[str, float]]

    @property
    def holds(self) -> bool:
        (_, a), (_, b) = self.theirs
        (_, ours_a), (_, ours_b) = self.ours
        return (a < b) == (ours_a < ours_b) and ours_a != ours_b

    def row(self) -> list[str]:
        sides = [" ".join((_sided(pair), self.figure)) for pair in (self.theirs, self.ours)]
        return [self.trace, *sides, "the same" if self.holds else "**another**"]


def _sided(pair: tuple[tuple[str, float], tuple[str, float]]) -> str:
    (name_a, a), (name_b, b) = pair
    return f"{name_a} {a:,.0f} {'<' if a < b else '>' if a > b else '='} {name_b} {b:,.0f}"


def orderings() -> list[Ordering]:
    """All pairs of policies of a simulator on one trace of which the nearest ones of ours are near enough."""
    return [*_elasticflow_orderings(), *_gavel_orderings()]


#: Deadlines met under Gandiva: not in the table of costs, because no CPU time was noted for it.
_GANDIVA = {
    "195job": (47, "microsoft_itp_2021/with_models_deadlines/195job.csv"),
    "elasticVpollux_e": (18, "elasticflow_repo/elasticVpollux_e.csv"),
}


def _elasticflow_orderings() -> list[Ordering]:
    found = []
    for trace in ("cluster01", "cluster10", "195job", "elasticVpollux_e"):
        met: dict[str, tuple[float, str, float]] = {}
        for one in PUBLISHED:
            if (one.simulator, one.trace) == ("ElasticFlow", trace):
                met[one.theirs] = (one.met or 0, one.policy, _met(record_row(one.jobs(), one.cluster, one.policy)))
                cluster = one.cluster
        if trace in _GANDIVA:
            n_met, path = _GANDIVA[trace]
            ours = _met(record_row(by_rule(path, Rigid)(), cluster, "fifo:backfill=true"))
            met["Gandiva"] = (n_met, "fifo, backfill", ours)
        found += [_ordering(trace, "deadlines met", met, a, b) for a, b in combinations(met, 2)]
    return found


def _gavel_orderings() -> list[Ordering]:
    pair = {one.theirs: one for one in PUBLISHED if one.simulator == "Gavel"}
    rows = {name: record_row(gavel_jobs(), one.cluster, one.policy) for name, one in pair.items()}
    found = []
    for figure, theirs, ours in (("s mean JCT", "jct_s", "jct_mean_s"), ("s makespan", "makespan_s", "makespan_s")):
        each = {name: (getattr(one, theirs), one.policy, rows[name][ours] or 0.0) for name, one in pair.items()}
        found.append(_ordering("Gavel, max_min_fairness", figure, each, "LAS", "FIFO"))
    return found


def record_row(jobs: Any, cluster: str, policy: str) -> dict[str, float | None]:
    return record_of(jobs, cluster, policy).summary().row()


def _met(row: dict[str, float | None]) -> float:
    return row["n_deadlines_met"] or 0.0


def _ordering(trace: str, figure: str, found: dict[str, tuple[float, str, float]], a: str, b: str) -> Ordering:
    (theirs_a, name_a, ours_a), (theirs_b, name_b, ours_b) = found[a], found[b]
    return Ordering(
        trace=trace, figure=figure, theirs=((a, theirs_a), (b, theirs_b)), ours=((name_a, ours_a), (name_b, ours_b))
    )


# The key figure: what knowing sizes is worth on the trace that everybody uses.


def key_figure(seeds: tuple[int, ...]) -> dict[str, float]:
    """Mean completion time of SRTF over that of FIFO on the Philly slices at load 1, with its interval."""
    philly = WORKLOADS[0]
    jct: dict[str, dict[tuple[int, str], float]] = {"fifo": {}, "shortest-remaining": {}}
    for policy, found in jct.items():
        for seed in seeds:
            record = record_of(jobs_of(philly, seed, 1.0, rigid=True), philly.cluster, policy)
            found |= {(seed, str(job.id)): job.jct_s for job in record.jobs() if job.jct_s is not None}
    base = sum(jct["fifo"].values()) / len(jct["fifo"])
    mean = paired_difference(jct["fifo"], jct["shortest-remaining"], seed=0, n_resamples=400).mean
    return {"ratio": 1 + mean.estimate / base, "low": 1 + mean.low / base, "high": 1 + mean.high / base}


# Tables.

ORDER_HEADS = ["trace", "published", "ours", "order"]


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def number(value: float) -> str:
    return f"{value:.2f}"


def mean_of(key: str, head: str, how: Callable[[float], str]) -> Column:
    """A column with the mean over the seeds and half the width of its 95 % interval."""

    def shown(found: Estimate) -> str:
        return how(found.mean) + (f" ± {how(found.half_width)}" if found.half_width else "")

    return Column(head, key, shown, lambda values: Estimate.of(list(values)))


OVER_FIFO = mean_of("over_fifo", "JCT / FIFO's", number)
COLUMNS = [
    OVER_FIFO, mean_of("jct_mean_s", "mean JCT", format_duration), mean_of("jct_p99_s", "p99 JCT", format_duration),
    mean_of("waiting_mean_s", "waiting", format_duration), mean_of("deadlines_met_frac", "deadlines met", percent),
    mean_of("tardiness_mean_s", "tardiness", format_duration), mean_of("granted_device_frac", "devices in use", percent),
    mean_of("resizes_per_job", "resizes/job", number), mean_of("preemptions_per_job", "pauses/job", number),
]  # fmt: skip


def over_fifo(runs: Iterable[Run]) -> list[Run]:
    """Add the mean completion time over that under FIFO, seed by seed: what seeds differ in drops out."""
    each = grouped(runs, "workload", "load", "seed").values()
    fifo = {id(run): one[0]["jct_mean_s"] for one in each for run in one if one[0]["policy"] == "fifo"}
    return [run | {"over_fifo": run["jct_mean_s"] / fifo[id(run)]} for one in each for run in one]


def at_a_glance(runs: Iterable[Run]) -> tuple[list[str], list[list[str]]]:
    """Policies by workloads, at load 1 or as recorded: completion over FIFO's, and deadlines met."""
    some = grouped((run for run in runs if run["load"] in (1.0, None)), "workload")
    by_policy = [grouped(found, "policy") for found in some.values()]
    rows = [[policy, *(_glance(found.get((policy,), [])) for found in by_policy)] for policy in POLICIES]
    return ["policy", *(workload for (workload,) in some)], rows


def _glance(runs: list[Run]) -> str:
    met = Estimate.of([run["deadlines_met_frac"] for run in runs])
    return f"{OVER_FIFO.cell(runs)}; {percent(met.mean) if met else '–'}" if runs else "–"


def sections(results: Results) -> list[Section]:
    runs, key, rows = over_fifo(results["runs"]), results["key"], results["orderings"]
    n_same = sum(row[-1] == "the same" for row in rows)
    targets = [
        Target("SRTF's mean JCT over FIFO's on the Philly slice, upper end of its interval", 1.0, key["high"], "{:.3f}".format)
    ]  # fmt: skip
    glance = (
        f"Mean completion time over FIFO's, and deadlines met, at load 1 (saturn: as recorded). Means over the seeds with 95 % "
        f"intervals (Student). SRTF's over FIFO's on the Philly slice: {key['ratio']:.3f} [{key['low']:.3f}, {key['high']:.3f}]."
    )
    return [
        Section("At a glance", *at_a_glance(runs), targets, glance),
        Section("Published orderings", ORDER_HEADS, rows, text=f"Reproduced: {n_same} of {len(rows)}."),
        *(
            Section(f"{workload}, load {'as recorded' if load is None else f'{load:g}'}", *table_of(some, {"policy": "policy"}, COLUMNS))
            for (workload, load), some in grouped(runs, "workload", "load").items()
        ),
    ]  # fmt: skip


def measured(*, quick: bool) -> Results:
    workloads: Iterable[Workload] = WORKLOADS
    if quick:
        workloads = [replace(one, loads=one.loads[1:2] or one.loads, seeds=(0,)) for one in WORKLOADS[1:]]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = list(pool.map(simulated, assignments(workloads)))
    key = key_figure((0,) if quick else WORKLOADS[0].seeds)
    return {"runs": runs, "orderings": [one.row() for one in orderings()], "key": key}


def main() -> int:
    quick = parser(__doc__ or "").parse_args().quick
    if not has_data():
        print("not run: PUNCTUAL_DATA is to name the folder of the published traces")
        return 0
    return conclude_report("policies", measured(quick=quick), sections, quick=quick)


if __name__ == "__main__":
    sys.exit(main())
