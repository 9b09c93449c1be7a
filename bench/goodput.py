"""Batches that grow with the devices, the same for every policy: Pollux's eight workloads and Sia's first one.

Every job's speed is its goodput, from the step times and the gradient noise that were published with Pollux and Sia: with
each number of devices the batch is, in each epoch, the one with which it is fastest. So the speed changes from epoch to
epoch; ours know from the start what it is on average over the training. Pollux and Sia fit the present one to what they
have seen, and decide once a minute. A start and a change cost what they cost in the published simulators.

Met: the mean completion time of `goodput` on workload-6 is at most 5 % above the one that Pollux's simulator prints, the
margin that its authors state for a repetition. The data lie where PUNCTUAL_DATA says.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean
from typing import Any

from _allocator_cells import nodes
from _common import Results, parser
from _published import POLLUX_KINDS, SIA_RESTART_S, SIA_SLOWDOWN, data, fixed_batch, has_data, trace_of
from _report import Column, Run, Section, Target, conclude_report, table_of
from _simulated import Simulated

from punctual.core.cluster import Node
from punctual.core.resources import Resources
from punctual.papers.pollux.adaptive_batch import AdaptiveBatch
from punctual.papers.pollux.adaptive_tables import AdaptiveTraining
from punctual.sim.job import SimJob
from punctual.sim.scaling._base import Knowledge
from punctual.sim.traces import TraceJob

#: Mean completion times that Pollux's simulator printed for workloads 1 to 8, seconds (its results-jobload).
POLLUX_PRINTS = {
    "Pollux": (2_088.8, 3_322.9, 2_188.5, 2_721.0, 2_673.7, 2_446.1, 3_616.1, 2_951.9),
    "Tiresias in it, batch as submitted": (2_473.7, 5_145.0, 3_876.3, 3_280.3, 3_501.0, 3_469.7, 5_479.9, 5_079.7),
    "Optimus in it, batch as submitted": (4_087.1, 6_913.9, 3_944.0, 5_967.8, 5_656.3, 5_301.9, 7_290.9, 6_293.8),
}
#: The workload that it was compared with a real cluster on, and how far a repetition may be off.
CHECKED, MARGIN_FRAC = 6, 0.05
#: Mean completion time and makespan that Sia's simulator prints on saturn-1.
SIA_PRINTS = {"Sia": (2_092.0, 44_856.0), "Gavel's in it, batch as submitted": (6_473.0, 98_172.0)}

POLLUX_NODES = nodes(16, 4, "T4")
SIA_NODES = [*nodes(6, 4, "T4"), *nodes(3, 8, "2080Ti"), *nodes(2, 8, "A100")]
POLLUX_RESTART_S = 30.0
#: As in Pollux's simulator: this model runs on one device, and of that no larger batch fits on one.
LIMITS: Mapping[str, Mapping[str, float]] = {"ncf": {"n_gpus_max": 1.0}, "yolov3": {"device_batch_max": 8.0}}
POLICIES = (
    "goodput", "promises-first", "elastic-mip", "optimus", "greedy", "max-min", "shortest-remaining:size=smallest",
)  # fmt: skip
OURS = POLICIES[0]
QUICK = POLICIES[:2]
#: How often a job tells how far it is, where that is to correct its declared speed.
REPORT_S = 60.0
#: Numbers of devices: where the batch stays, powers of two, and those among which Sia chooses.
COUNTS, POWERS, SIA_COUNTS = tuple(range(1, 17)), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Way:
    """Kind of the jobs of Pollux, and of the knowledge about them."""

    label: str
    policies: Sequence[str] = ("goodput", "promises-first")
    adaptive: bool = True
    drifts: bool = True
    knows: Knowledge = "all"
    report_s: float | None = None
    counts: Sequence[int] = ()


WAYS = (
    Way("", POLICIES),
    Way("powers of two only", ("goodput", "promises-first", "optimus", "greedy"), counts=POWERS),
    Way("average speed at all times", drifts=False),
    Way("reports each minute", report_s=REPORT_S),
    Way("nothing known, reports each minute", knows="nothing", report_s=REPORT_S),
    Way("batch as submitted", adaptive=False),
)


def pollux_jobs(workload: int, way: Way) -> list[SimJob]:
    """The 160 jobs of a workload."""
    traces = trace_of(f"pollux_workloads/workloads/workload-{workload}.csv")
    folder = data() / "profiles" / "pollux_osdi21"
    if not way.adaptive:
        return [
            fixed_batch(one, folder / str(one.model_name), POLLUX_KINDS, COUNTS, POLLUX_RESTART_S) for one in traces
        ]
    rule = AdaptiveBatch(
        tables=str(folder), devices_per_node=4, startup_s=POLLUX_RESTART_S, restarts=True, knows=way.knows,
        drifts=way.drifts,
    )  # fmt: skip
    jobs = [rule.job(_limited(one)) for one in traces]
    return [_among(job, way.counts) for job in jobs] if way.counts else jobs


def sia_jobs() -> list[SimJob]:
    """The 160 jobs of saturn-1; Sia's simulator slows each model down to what was seen on real devices."""
    rule = AdaptiveBatch(tables=str(data() / "profiles" / "sia"), restarts=True)
    return [_as_sia(rule.job(one), str(one.model_name)) for one in trace_of("sia_workloads/saturn/workload-1.csv")]


def _limited(one: TraceJob) -> TraceJob:
    return replace(one, parameters=LIMITS.get(str(one.model_name), {}))


def _as_sia(job: SimJob, model: str) -> SimJob:
    work_steps, restart_s = job.work_steps * SIA_SLOWDOWN[model], SIA_RESTART_S[model]
    spec = replace(job.spec, work_steps=work_steps, startup_s=restart_s, resize_cost_s=restart_s)
    phases = tuple((begin * SIA_SLOWDOWN[model], truth) for begin, truth in job.phases)
    return _among(replace(job, spec=spec, work_steps=work_steps, phases=phases), SIA_COUNTS)


def _among(job: SimJob, counts: Sequence[int]) -> SimJob:
    """The job with those of its numbers of devices that are in `counts`."""
    kept = tuple(n for n in job.spec.counts if n in counts)
    return replace(job, spec=replace(job.spec, counts=kept, ceiling=Resources(gpus=kept[-1])))


def run(policy: str, jobs: Iterable[SimJob], on: Sequence[Node], *, report_s: float | None = None) -> dict[str, float]:
    """The numbers of one simulation."""
    found = Simulated(policy, jobs, on, report_s=report_s)
    kept = ("jct_mean_s", "jct_p99_s", "makespan_s", "resizes_per_job", "preemptions_per_job", "n_finished")
    return {**{name: float(found.row[name] or 0.0) for name in kept}, "cpu_s": found.cpu_s}


def drift(training: AdaptiveTraining, n: int = 16, per_node: int = 4) -> tuple[float, float]:
    """Speed-up of `n` devices over one in the first and in the last quarter of a training, each on average."""
    goodputs = training.goodputs("")
    ups = [many / one for many, one in zip(goodputs[n, ceil(n / per_node)], goodputs[1, 1], strict=True)]
    quarter = max(1, len(ups) // 4)
    return fmean(ups[:quarter]), fmean(ups[-quarter:])


def pollux_runs(workloads: Sequence[int], ways: Sequence[Way]) -> dict[str, list[Run]]:
    """A row for each policy and way, a run for each workload."""
    found: dict[str, list[Run]] = {}
    for way in ways:
        for workload in workloads:
            jobs = pollux_jobs(workload, way)
            for policy in way.policies:
                name = f"{policy}, {way.label}" if way.label else policy
                found.setdefault(name, []).append(run(policy, jobs, POLLUX_NODES, report_s=way.report_s))
    return found


def pollux_section(found: Mapping[str, list[Run]], workloads: Sequence[int]) -> Section:
    """Published and ours, mean completion times on one workload and on average."""
    i_checked = workloads.index(CHECKED)
    rows = [
        {"policy": name, "checked": times[CHECKED - 1], "jct_mean_s": fmean(times[i - 1] for i in workloads)}
        for name, times in POLLUX_PRINTS.items()
    ]
    rows += [
        {
            "policy": name,
            "checked": runs[i_checked]["jct_mean_s"],
            **{key: fmean(one[key] for one in runs) for key in runs[0]},
        }
        for name, runs in found.items()
    ]
    checked = Column(f"workload-{CHECKED}: mean JCT, s", "checked", SECONDS)
    printed_s = POLLUX_PRINTS["Pollux"][CHECKED - 1]
    target = Target(
        f"mean JCT of {OURS}, workload-{CHECKED} (Pollux printed {printed_s:,.0f} s)", printed_s * (1 + MARGIN_FRAC),
        found[OURS][i_checked]["jct_mean_s"], "{:,.0f} s".format,
    )  # fmt: skip
    columns = [checked, Column("mean of all", "jct_mean_s", SECONDS), *COLUMNS]
    return Section("Pollux's workloads", *table_of(rows, {"policy": "policy"}, columns), [target])


def sections(results: Results) -> list[Section]:
    """A quick run has the first table only, of one workload."""
    found = [pollux_section(results["pollux"], results["workloads"])]
    if "sia" in results:
        printed = [{"policy": name, "jct_mean_s": jct, "makespan_s": end} for name, (jct, end) in SIA_PRINTS.items()]
        rows = [*printed, *({"policy": name, **one} for name, one in results["sia"].items())]
        columns = [Column("mean JCT, s", "jct_mean_s", SECONDS), Column("makespan, s", "makespan_s", SECONDS), *COLUMNS]
        heads = ["model", "speed-up of 16 devices: first quarter", "last quarter"]
        found.append(Section("Sia's saturn-1", *table_of(rows, {"policy": "policy"}, columns)))
        found.append(Section("How speed-ups change during a training", heads, results["drift"]))
    return found


SECONDS = "{:,.0f}".format
COLUMNS = (
    Column("p99 JCT", "jct_p99_s", SECONDS), Column("resizes a job", "resizes_per_job", "{:.1f}".format),
    Column("CPU s", "cpu_s", "{:.1f}".format),
)  # fmt: skip


def drift_rows() -> list[list[str]]:
    """Return how much the speed-up changes during a training, while policies know its average."""
    trainings = AdaptiveBatch(tables=str(data() / "profiles" / "pollux_osdi21")).read.trainings
    return [[model, *(f"{up:.1f}" for up in drift(one))] for model, one in trainings.items() if model != "ncf"]


def main() -> int:
    """Simulate, print the tables, say whether the published policy is met."""
    options = parser(__doc__ or "").parse_args()
    if not has_data():
        print("the data are not there: set PUNCTUAL_DATA")
        return 1
    workloads = [CHECKED] if options.quick else list(range(1, 9))
    results: dict[str, Any] = {
        "workloads": workloads, "pollux": pollux_runs(workloads, [Way("", QUICK)] if options.quick else WAYS)
    }  # fmt: skip
    if not options.quick:
        jobs = sia_jobs()
        results |= {"sia": {name: run(name, jobs, SIA_NODES) for name in POLICIES}, "drift": drift_rows()}
    return conclude_report("goodput", results, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
