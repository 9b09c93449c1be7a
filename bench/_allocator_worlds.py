"""The jobs and clusters on which allocators are compared: real traces with stated rules, and a generator."""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _published import data, has_data

from punctual.core.cluster import Node
from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.sim.job import SimJob
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.measured import Measured as MeasuredTables
from punctual.sim.traces import TraceJob, read
from punctual.sim.traces.deadlines import DeadlineRule, Keep, UniformSlack, assign
from punctual.sim.traces.load import rescaled
from punctual.sim.traces.order import normalized

#: Deadlines where the trace has none, or made-up ones that half of the jobs can only meet with more devices.
_SLACK = UniformSlack(low=1.2, high=4.0, share_frac=0.5)


@dataclass(frozen=True, slots=True)
class World:
    """A trace and its cluster.

    `file` and `tables` lie in the folder of data; without a file the generator makes the jobs, without tables the
    speeds are those of the rule `elastic`.
    """

    n_nodes: int
    devices_per_node: int
    file: str = ""
    tables: str = ""
    deadlines: DeadlineRule = _SLACK


#: Loads are reached by drawing arrivals together or apart; jobs longer than two days are left out of slices.
WORLDS: Mapping[str, World] = {
    "modelarts-like": World(8, 8),
    "philly": World(8, 8, "philly_2017/philly_jobs_pollux.csv"),
    "cluster01": World(8, 8, "microsoft_itp_2021/with_models_deadlines/cluster01.csv", "elasticflow/throughputs_A100"),
    "cluster10": World(8, 8, "microsoft_itp_2021/with_models_deadlines/cluster10.csv", "elasticflow/throughputs_A100"),
    "chronus-slo": World(8, 8, "chronus_philly_slo/trace_job_Philly_SLO.csv", deadlines=Keep()),
    "elasticvpollux": World(16, 4, "elasticflow_repo/elasticVpollux_e.csv", "elasticflow/throughputs_T4"),
}
_LONGEST_S = 2 * 86_400.0
_LARGEST = 32


def folder() -> Path | None:
    """Return where the data lie; None: there are none."""
    return data() if has_data() else None


def available(data: Path | None) -> list[str]:
    """Worlds that can be made."""
    return [name for name, one in WORLDS.items() if not one.file or (data and (data / "traces" / one.file).exists())]


def nodes(n_nodes: int, devices_per_node: int, kind: str = "") -> list[Node]:
    """Equal nodes."""
    return [Node(NodeId(f"{kind}n{i:03}"), Resources(gpus=devices_per_node), kind) for i in range(n_nodes)]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is varied: offered load, seconds that a start or a change costs, error of the declared speeds, seed."""

    world: str
    load: float
    restart_s: float
    error: float
    seed: int

    @property
    def key(self) -> str:
        """Its name in files of results."""
        return f"{self.world}/{self.load:g}/{self.restart_s:g}/{self.error:g}/{self.seed}"


def jobs_of(setting: Setting, data: Path | None, n_jobs: int) -> list[SimJob]:
    """The jobs of one setting, always the same."""
    world = WORLDS[setting.world]
    n_devices = world.n_nodes * world.devices_per_node
    traced = list(_traced(world, setting, data, n_jobs, n_devices))
    due = list(assign(rescaled(traced, setting.load, n_devices), world.deadlines, setting.seed))
    jobs = sim_jobs(due, _rule(world, setting, data), seed=setting.seed)
    return [_misjudged(job, setting.error, setting.seed) for job in jobs]


def _traced(world: World, setting: Setting, data: Path | None, n_jobs: int, n_devices: int) -> Iterable[TraceJob]:
    if not world.file or data is None:
        made = ModelartsLike(n_jobs=n_jobs, n_devices=n_devices, load=setting.load, deadline_frac=0.0)
        return made.jobs(setting.seed)
    return _slice(_fitting(data / "traces" / world.file), n_jobs, setting.seed)


_READ: dict[Path, list[TraceJob]] = {}


def _fitting(path: Path) -> list[TraceJob]:
    """The jobs that a small cluster can hold and that end within a few days."""
    if path not in _READ:
        jobs = (
            job
            for job in normalized(read(path, "skip"))
            if job.n_gpus and 60.0 <= (job.duration_s or 0.0) <= _LONGEST_S
        )
        _READ[path] = [job for job in jobs if (job.n_gpus or 0) <= _LARGEST]
    return _READ[path]


def _slice(jobs: list[TraceJob], n_jobs: int, seed: int) -> list[TraceJob]:
    """Consecutive jobs, beginning anywhere."""
    begin = random.Random(seed).randrange(max(1, len(jobs) - n_jobs))
    return normalized(jobs[begin : begin + n_jobs])


def _rule(world: World, setting: Setting, data: Path | None) -> Elastic | MeasuredTables:
    cost: dict[str, Any] = {"startup_s": setting.restart_s, "resize_cost_s": setting.restart_s}
    if world.tables and data is not None:
        tables = str(data / "profiles" / world.tables)
        return MeasuredTables(tables=tables, devices_per_node=world.devices_per_node, **cost)
    return Elastic(devices_per_node=world.devices_per_node, **cost)


def _misjudged(job: SimJob, error: float, seed: int) -> SimJob:
    """The job declared faster or slower than it is, by one factor."""
    if not error:
        return job
    factor = math.exp(random.Random(f"{seed}/{job.spec.id}").gauss(0.0, error))
    profile = tuple(replace(seen, rate_sps=seen.rate_sps * factor) for seen in job.spec.profile)
    return replace(job, spec=replace(job.spec, profile=profile))


@dataclass(frozen=True, slots=True)
class Outside:
    """A published simulator's own trace, with what it printed for its own policy."""

    file: str
    tables: str
    n_nodes: int
    devices_per_node: int
    n_jobs: int
    printed: int
    made_by: str

    def jobs(self, data: Path) -> list[SimJob]:
        """All of its jobs with its speeds and deadlines."""
        tables = str(data / "profiles" / self.tables)
        rule = MeasuredTables(tables=tables, devices_per_node=self.devices_per_node)
        return list(sim_jobs(normalized(read(data / "traces" / self.file, "skip")), rule))


_MICROSOFT = "microsoft_itp_2021/with_models_deadlines"
OUTSIDE: Mapping[str, Outside] = {
    "elasticVpollux_e": Outside("elasticflow_repo/elasticVpollux_e.csv", "elasticflow/throughputs_T4", 16, 4, 195, 142, "ElasticFlow"),
    "195job": Outside(f"{_MICROSOFT}/195job.csv", "elasticflow/throughputs_A100", 16, 8, 195, 171, "ElasticFlow"),
    "cluster10": Outside(f"{_MICROSOFT}/cluster10.csv", "elasticflow/throughputs_A100", 32, 8, 260, 250, "ElasticFlow"),
    "cluster01": Outside(f"{_MICROSOFT}/cluster01.csv", "elasticflow/throughputs_A100", 64, 8, 1595, 787, "Tiresias in it"),
}  # fmt: skip
