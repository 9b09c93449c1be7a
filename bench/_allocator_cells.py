"""One policy on one setting: the simulation, what was promised, and what nobody can exceed."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from _published import data, has_data
from _simulated import Simulated
from scipy.optimize import linprog
from scipy.sparse import coo_array

from punctual.core.cluster import Node
from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.sim.job import SimJob
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.measured import Measured as MeasuredTables
from punctual.sim.traces import TraceJob, read
from punctual.sim.traces.deadlines import DeadlineRule, Keep, UniformSlack, assign
from punctual.sim.traces.load import rescaled
from punctual.sim.traces.order import normalized

# Worlds: real traces with stated rules, and a generator.

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
    """Values of one setting: offered load, seconds that a start or a change costs, error of the declared speeds, seed."""

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


@cache
def _fitting(path: Path) -> list[TraceJob]:
    """The jobs that a small cluster can hold and that end within a few days."""
    return [
        job
        for job in normalized(read(path, "skip"))
        if 0 < (job.n_gpus or 0) <= _LARGEST and 60.0 <= (job.duration_s or 0.0) <= _LONGEST_S
    ]


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


# One policy on one setting.

#: Jobs tell how far they are this often, so that a wrong speed is found out.
REPORT_S = 300.0
_N_SLOTS = 60

_KEPT = (
    "jct_mean_s", "jct_median_s", "jct_p99_s", "waiting_mean_s", "waiting_max_s", "makespan_s",
    "n_deadlines", "n_deadlines_met", "resizes_per_job", "preemptions_per_job", "n_rejected", "n_finished",
)  # fmt: skip


def run(policy: str, jobs: Sequence[SimJob], nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the numbers of one simulation."""
    found = Simulated(policy, jobs, nodes, report_s=REPORT_S)
    row, wall_s, promised = found.row, found.watched.wall_s, found.watched.promised
    on_time = {str(job.id): bool(job.on_time) for job in found.record.jobs()}
    return {
        **{name: row[name] for name in _KEPT if name in row},
        "n_promised": len(promised), "n_broken": sum(not on_time[id] for id in promised), "n_rounds": len(wall_s),
        "decision_median_ms": 1e3 * float(np.median(wall_s)), "decision_max_ms": 1e3 * max(wall_s), "cpu_s": found.cpu_s,
    }  # fmt: skip


def deadline_bound(jobs: Sequence[SimJob], n_devices: int) -> int:
    """Return the most deadlines of `jobs` that any policy can meet, even one that knows the future.

    A linear programme: each job may be met in part; in its window it takes at least the device-seconds of the best
    mixture of counts with which it is done just in time, and all together never more than there are.
    """
    due = [job for job in jobs if job.spec.deadline_s]
    needs = [_least_device_s(job, n_devices) for job in due]
    possible = [(job, need) for job, need in zip(due, needs, strict=True) if need is not None]
    if not possible:
        return 0
    return int(_fluid(possible, n_devices) + 1e-6)


def _rates(job: SimJob, n_devices: int) -> dict[int, float]:
    counts = [n for n in job.spec.worker_counts() if n <= n_devices]
    return {n: job.truth.rate_sps(Shape(n_workers=n)) for n in counts}


def _least_device_s(job: SimJob, n_devices: int) -> float | None:
    """Device-seconds of the job's work within its deadline; None if it cannot be done by then."""
    window_s = (job.spec.deadline_s or 0.0) - job.spec.startup_s
    points = [(0, 0.0), *_rates(job, n_devices).items()]
    wanted_sps = job.work_steps / window_s if window_s > 0 else float("inf")
    if max(rate for _, rate in points) < wanted_sps:
        return None
    mixtures = [_mixed(low, high, wanted_sps) for low in points for high in points if low[1] <= wanted_sps <= high[1]]
    return min(mixtures) * window_s


def _mixed(low: tuple[int, float], high: tuple[int, float], wanted_sps: float) -> float:
    """Devices, on average, of the mixture of two counts that has the wanted rate."""
    if high[1] == low[1]:
        return float(min(low[0], high[0]))
    share = (wanted_sps - low[1]) / (high[1] - low[1])
    return low[0] + share * (high[0] - low[0])


def _fluid(possible: Sequence[tuple[SimJob, float]], n_devices: int) -> float:
    """Value of the linear programme."""
    begins = np.array([job.submitted_at for job, _ in possible])
    ends = begins + np.array([job.spec.deadline_s or 0.0 for job, _ in possible])
    edges = np.unique(np.quantile(np.concatenate([begins, ends]), np.linspace(0, 1, _N_SLOTS)))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    slots: list[float] = []
    n = n_variables = len(possible)
    for i, (job, need) in enumerate(possible):
        rows.append(i)
        columns.append(i)
        values.append(need)
        most = max(job.spec.worker_counts())
        for t in range(len(edges) - 1):
            length_s = min(ends[i], edges[t + 1]) - max(begins[i], edges[t])
            if length_s > 0:
                slots.append(min(most, n_devices) * length_s)
                rows += [i, n + t]
                columns += [n_variables, n_variables]
                values += [-1.0, 1.0]
                n_variables += 1
    capacity = n_devices * np.diff(edges)
    matrix = coo_array((values, (rows, columns)), shape=(n + len(capacity), n_variables)).tocsr()
    bounds = [(0.0, 1.0)] * n + [(0.0, most) for most in slots]
    cost = np.concatenate([-np.ones(n), np.zeros(n_variables - n)])
    found = linprog(cost, A_ub=matrix, b_ub=np.concatenate([np.zeros(n), capacity]), bounds=bounds, method="highs")
    return float(-found.fun) if found.success else float(n)


#: Distance to the bound on mean completion times that is wanted of ours.
NEAR = 1.15


def verdict(cells: Mapping[str, Mapping[str, Any]], ours: str, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return how our policy stands in each respect; `bound` is what nobody can exceed.

    `distances` has the mean completion time of each policy over the bound; one that declined jobs is left out.
    """
    mine, jct_s, n_due = cells[ours], bound.get("jct_s"), bound["n"]
    others = [cell for name, cell in cells.items() if name.partition(":")[0] != ours.partition(":")[0]]
    distances = {
        name: float(cell["jct_mean_s"]) / jct_s for name, cell in cells.items() if jct_s and not cell["n_rejected"]
    }
    nearest = min(distances.values(), default=None)
    best_waiting_s = min(float(cell["waiting_mean_s"] or 0.0) for cell in others)
    waiting_s = float(mine["waiting_mean_s"] or 0.0)
    met_frac = mine["n_deadlines_met"] / n_due if n_due else 1.0
    return {
        "distances": distances, "waiting_s": waiting_s, "best_waiting_s": best_waiting_s, "met_frac": met_frac,
        "best_met_frac": max(cell["n_deadlines_met"] for cell in others) / n_due if n_due else 1.0,
        "jct": None if nearest is None or ours not in distances else distances[ours] <= max(NEAR, nearest),
        "wait": waiting_s <= best_waiting_s + 0.01 * float(mine["jct_mean_s"]), "met": met_frac >= 0.98,
    }  # fmt: skip
