"""The published simulators' inputs as jobs of ours, and what those simulators came to on them.

Their figures are deadlines met of all jobs of the trace, mean completion time, makespan. What ElasticFlow's costs is measured by
`bench/elasticflow.py`.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.papers.pollux.adaptive_tables import AdaptiveTables, AdaptiveTraining, StepTimes
from punctual.sim.job import SimJob
from punctual.sim.scaling import ScalingRule
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.measured import Measured as MeasuredTables
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.speed_laws import ByDevice, Constant, MeasuredTruth
from punctual.sim.traces import TraceJob, read
from punctual.sim.traces.order import normalized


def data() -> Path:
    """The folder with published traces and profiles; empty path where there is none."""
    return Path(os.environ.get("PUNCTUAL_DATA", ""))


def has_data() -> bool:
    return bool(os.environ.get("PUNCTUAL_DATA")) and (data() / "traces").is_dir()


@dataclass(frozen=True, kw_only=True)
class Published:
    """One run of a published simulator, and the nearest one of ours.

    Attributes
    ----------
    command
        Trace, cluster, schedule and device for `_elasticflow.py`; None: theirs is not run beside ours.
    met, jct_s, makespan_s
        Theirs; None where it was not noted.
    same, differs
        What the two models have in common, and what they do not.
    """

    simulator: str
    trace: str
    theirs: str
    command: tuple[str, str, str, str] | None = None
    met: int | None = None
    jct_s: float | None = None
    makespan_s: float | None = None
    jobs: Callable[[], Iterable[SimJob]]
    cluster: str
    policy: str
    ours: str
    same: str
    differs: str

    @property
    def name(self) -> str:
        return f"{self.simulator}, {self.trace}: {self.theirs}"


def by_rule(path: str, rule: Callable[[], ScalingRule]) -> Callable[[], Iterator[SimJob]]:
    """The jobs of a trace file by a rule of scaling; both are read only when the jobs are asked for."""

    def jobs() -> Iterator[SimJob]:
        made = rule()
        return (made.job(one) for one in normalized(read(data() / "traces" / path)))

    return jobs


def tables_of(folder: str, devices_per_node: int) -> MeasuredTables:
    return MeasuredTables(tables=str(data() / "profiles" / folder), devices_per_node=devices_per_node)


# Gavel: steps per second of each job type on each kind of device.


def gavel_jobs() -> Iterator[SimJob]:
    trace = read(data() / "traces/gavel_traces/physical_cluster/max_min_fairness.trace")
    speeds = json.loads((data() / "profiles/gavel/physical_cluster_throughputs.json").read_text())
    rule = Rigid()
    return (rule.job(_with_gavel_times(one, speeds)) for one in normalized(trace))


def _with_gavel_times(one: TraceJob, speeds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> TraceJob:
    assert one.work_steps is not None
    batch = f" (batch size {one.batch_size})" if one.batch_size else ""
    key = str((one.model_name + batch if one.model_name else "", int(one.n_gpus or 1)))
    found = {kind.upper(): speeds[kind].get(key, {}).get("null", 0.0) for kind in ("v100", "p100", "k80")}
    return replace(one, device_durations_s={kind: one.work_steps / rate for kind, rate in found.items() if rate})


# Pollux and Sia: the work of an application by its batch size, and the time of a step by placement.

#: Kind of device -> its name in the tables, devices of a node.
SIA_KINDS = {"T4": ("T4", 4), "2080Ti": ("2080Ti", 8), "A100": ("A100", 8)}
POLLUX_KINDS = {"T4": ("", 4)}
#: What Sia's simulator multiplies the time of a step by, to come to what was seen on real devices; and seconds of a restart.
SIA_SLOWDOWN = {"cifar10": 1.8, "imagenet": 1.2, "yolov3": 1.2, "bert": 1.2, "deepspeech2": 1.2, "ncf": 1.5}
SIA_RESTART_S = {"cifar10": 50.0, "imagenet": 250.0, "yolov3": 80.0, "bert": 120.0, "deepspeech2": 25.0, "ncf": 15.0}

Kinds = Mapping[str, tuple[str, int]]


def workload_jobs(path: str, profiles: str, kinds: Kinds) -> Callable[[], Iterator[SimJob]]:
    """Rigid jobs that take on each kind of device the time that the profiles say."""

    def jobs() -> Iterator[SimJob]:
        rule = Rigid(devices_per_node=4)
        return (rule.job(timed(one, data() / "profiles" / profiles, kinds)) for one in trace_of(path))

    return jobs


def trace_of(path: str) -> list[TraceJob]:
    return normalized(read(data() / "traces" / path))


def timed(one: TraceJob, profiles: Path, kinds: Kinds) -> TraceJob:
    """The job with its run time on each kind of device, on as few nodes as possible."""
    folder, n, batch = profiles / str(one.model_name), int(one.n_gpus or 1), one.batch_size or 1
    iterations = iterations_of(folder, batch)
    durations = {
        kind: iterations * _step_s(_times(folder)[named], n, ceil(n / per_node), batch / n)
        for kind, (named, per_node) in kinds.items()
        if named in _times(folder)
    }
    return replace(one, work_steps=iterations, device_durations_s=durations)


def fixed_batch(
    one: TraceJob, folder: Path, kinds: Kinds, counts: Sequence[int], restart_s: float, slowdown: float = 1.0
) -> SimJob:
    """The job with the batch it was submitted with, on any of `counts` devices, each with its measured speed, times `slowdown`."""
    batch = one.batch_size or 1
    found = {kind: _iteration_rates(folder, place, batch, counts, slowdown) for kind, place in kinds.items()}
    rates = {kind: table for kind, table in found.items() if table}
    slowest = min(rate for table in rates.values() for rate in table.values())
    truth = ByDevice({kind: MeasuredTruth(table) for kind, table in rates.items()}, Constant(slowest))
    shapes = [Shape(n_workers=n, n_nodes=on, device=kind) for kind, table in rates.items() for n, on in table]
    work_steps = iterations_of(folder, batch)
    spec = JobSpec(
        id=JobId(one.id), worker=Resources(gpus=1), counts=tuple(counts), floor=Resources(gpus=1),
        ceiling=Resources(gpus=counts[-1]), work_steps=work_steps, startup_s=restart_s, resize_cost_s=restart_s,
        preemptible=True, controller=None, model="tabulated",
        profile=tuple(SeenRate(shape=shape, rate_sps=truth.rate_sps(shape)) for shape in shapes),
    )  # fmt: skip
    return SimJob(one.submitted_at, spec, truth, work_steps)


def _iteration_rates(
    folder: Path, place: tuple[str, int], batch: int, counts: Iterable[int], slowdown: float
) -> dict[tuple[int, int], float]:
    """Iterations a second of a global batch, by (devices, nodes); none where the kind was not measured."""
    named, per_node = place
    times = _times(folder)
    if named not in times:
        return {}
    shapes = [(n, ceil(n / per_node)) for n in counts if n <= batch]
    return {(n, on): 1.0 / (slowdown * _step_s(times[named], n, on, batch / n)) for n, on in shapes}


@cache
def iterations_of(folder: Path, batch: int) -> float:
    """Iterations until training ends, as the curve recorded with this global batch says."""
    with (folder / f"validation-{batch}.csv").open(encoding="utf-8", newline="") as file:
        return max(float(row["iteration"]) for row in csv.DictReader(file))


@cache
def _trainings(profiles: Path) -> Mapping[str, AdaptiveTraining]:
    return AdaptiveTables(profiles).trainings


def _times(folder: Path) -> Mapping[str, Mapping[tuple[int, int], StepTimes]]:
    """Return the times of a model's steps, by the tables' name of a kind of device and by (devices, nodes)."""
    return _trainings(folder.parent)[folder.name.lower()].times


def _step_s(times: Mapping[tuple[int, int], StepTimes], n: int, n_nodes: int, local_batch: float) -> float:
    """Seconds of an iteration; a batch that one device cannot hold is worked off in several rounds.

    Linear between the measured batches, and the nearest one beyond them.
    """
    nearest = times[min(times, key=lambda one: (abs(one[0] - n), abs(one[1] - n_nodes), one[::-1]))]
    n_rounds = ceil(local_batch / nearest.batches[-1] - 1e-9)
    step_s, sync_s = (
        float(np.interp(local_batch / n_rounds, nearest.batches, seconds))
        for seconds in (nearest.step_s, nearest.exchange_s)
    )
    return step_s + (n_rounds - 1) * (step_s - sync_s)


# What is compared.

_EDF_SAME = (
    "jobs, deadlines, iterations, speed tables, cluster; earliest deadline first, no admission, no cost of a resize"
)
_EDF_DIFFERS = (
    "theirs gives the next job whatever is left, up to all it can have, and changes that later; ours gives it all it can "
    "have, if need be by pausing later ones, or nothing. Theirs decides once in 60 s, ours at every event"
)
_TIRESIAS_SAME = "jobs, deadlines, recorded durations and devices, cluster; rigid jobs that may be paused"
_TIRESIAS_DIFFERS = (
    "theirs ranks by the service a job has had, in two queues, without knowing sizes; ours by the time that is left"
)


def _elasticflow(
    trace: str, path: str, tables: str, cluster: str, per_node: int, *,
    edf: int, tiresias: int,
) -> list[Published]:  # fmt: skip
    nodes, kind = cluster.replace("x", "g"), tables.rpartition("_")[2]
    given = (str(data().absolute() / "traces" / path), f"cluster_specs/n{nodes}.csv")
    return [
        Published(
            simulator="ElasticFlow", trace=trace, theirs="EDF", met=edf, command=(*given, "edf", kind),
            jobs=by_rule(path, lambda: tables_of(tables, per_node)), cluster=cluster,
            policy="earliest-deadline", ours="earliest-deadline, largest measured size", same=_EDF_SAME, differs=_EDF_DIFFERS,
        ),
        Published(
            simulator="ElasticFlow", trace=trace, theirs="Tiresias", met=tiresias, command=(*given, "dlas-gpu", kind),
            jobs=by_rule(path, Rigid), cluster=cluster, policy="shortest-remaining",
            ours="shortest-remaining, rigid", same=_TIRESIAS_SAME, differs=_TIRESIAS_DIFFERS,
        ),
    ]  # fmt: skip


_GAVEL_SAME = "jobs, steps, speed tables, cluster; rigid jobs"
_ITP = "microsoft_itp_2021/with_models_deadlines"

PUBLISHED: tuple[Published, ...] = (
    *_elasticflow(
        "cluster01", f"{_ITP}/cluster01.csv", "elasticflow/throughputs_A100", "64x8", 8,
        edf=298, tiresias=787,
    ),
    *_elasticflow(
        "cluster10", f"{_ITP}/cluster10.csv", "elasticflow/throughputs_A100", "32x8", 8,
        edf=202, tiresias=124,
    ),
    *_elasticflow(
        "195job", f"{_ITP}/195job.csv", "elasticflow/throughputs_A100", "16x8", 8,
        edf=19, tiresias=96,
    ),
    *_elasticflow(
        "elasticVpollux_e", "elasticflow_repo/elasticVpollux_e.csv", "elasticflow/throughputs_T4", "16x4", 4,
        edf=23, tiresias=56,
    ),
    Published(
        simulator="Gavel", trace="max_min_fairness", theirs="FIFO", jct_s=47_735, makespan_s=212_507,
        jobs=gavel_jobs, cluster="2x4:V100+2x4:P100+2x4:K80", policy="fifo", ours="fifo, rigid",
        same=_GAVEL_SAME,
        differs="theirs decides in rounds of 6 minutes and does not look for the fastest kind of device; ours takes the "
        "fastest kind that is free. A table says nothing of two job types on the K80: ours lets them run there",
    ),
    Published(
        simulator="Gavel", trace="max_min_fairness", theirs="LAS", jct_s=30_406, makespan_s=84_352,
        jobs=gavel_jobs, cluster="2x4:V100+2x4:P100+2x4:K80", policy="max-min",
        ours="max-min, rigid", same=_GAVEL_SAME,
        differs="theirs shares time: all jobs take turns on all kinds. Ours shares devices and pauses nobody, so that "
        "rigid jobs start in the order of their shares and stay to the end",
    ),
    Published(
        simulator="Sia", trace="saturn-1", theirs="Gavel's policy", jct_s=6_473, makespan_s=98_172,
        jobs=workload_jobs("sia_workloads/saturn/workload-1.csv", "sia", SIA_KINDS),
        cluster="6x4:T4+3x8:2080Ti+2x8:A100", policy="max-min", ours="max-min, rigid",
        same="jobs, devices and batch of each, iterations from the training curves, step times by kind and placement",
        differs="theirs takes turns in rounds of a minute and pays for restarts; ours starts jobs whole and pauses "
        "nobody. Ours has a job's step time on as few nodes as possible wherever it lies; theirs is 1.2 to 1.8 times as long, to "
        "match real devices",
    ),
    Published(
        simulator="Pollux", trace="workload-6", theirs="Tiresias", jct_s=3_470, makespan_s=78_609,
        jobs=workload_jobs("pollux_workloads/workloads/workload-6.csv", "pollux_osdi21", POLLUX_KINDS),
        cluster="16x4:T4", policy="shortest-remaining", ours="shortest-remaining, rigid",
        same="jobs, devices and batch of each, iterations from the training curves, step times by placement",
        differs="as with ElasticFlow's Tiresias; theirs pays 30 s for a restart, ours nothing",
    ),
    Published(
        simulator="Rubick", trace="base", theirs="Morphling", jct_s=3_638, makespan_s=58_680,
        jobs=by_rule("rubick_workloads/workload-base.csv", Elastic), cluster="8x8", policy="max-min",
        ours="max-min, elastic by the synthetic law", same="arrivals, durations with the devices asked for, cluster",
        differs="theirs also changes how a model is parallelised, with a speed model fitted to each; ours changes the "
        "number of devices only, by a law of its own. The two share little but the jobs",
    ),
)  # fmt: skip
