"""What `bench/solvers.py` measures of a decision for a whole data centre: the size that Optimus's source gives a time for."""

import gc
import random
import time
from dataclasses import replace

from _reference import TURNS, in_turns
from _report import Family, Run, Section, Target, most

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.job import JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.resources import total
from punctual.core.speed import RateCurve
from punctual.papers.optimus import optimus_jobs as generator
from punctual.papers.optimus.optimus import Optimus
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs

S = "{:.1f} s".format
COUNT = "{:,.0f}".format
N_JOBS, N_NODES = 4_000, 16_000
NODE = {"gpus": 4, "cores": 18.0, "memory_gib": 80.0}
#: Turns of the reference.
LIMIT = 2_500_000.0
N_PARTS = 100_000
MODEL = registry.load("models", "parameter-server")()
#: Jobs that go on speeding up, so that as many workers and servers are handed out as in the source.
RULE = ParameterServers(
    compute_frac=0.9, fixed_frac=0.01, link_frac=0.08, worker_frac=0.005, server_frac=0.005, n_workers_max=32,
    n_servers_max=32,
)  # fmt: skip


def optimus(*, quick: bool) -> list[Run]:
    """The policy `optimus` with fitted speed models: all jobs new, and again after ten minutes."""
    n_jobs, n_nodes = (N_JOBS // 10, N_NODES // 10) if quick else (N_JOBS, N_NODES)
    return [_run(n_jobs, n_nodes, seed) for seed in range(1 if quick else 3)]


def _optimus_section(runs: list[Run]) -> Section:
    heads = ["jobs × nodes, seed", "workers and servers", "all new: CPU time", "10 min later", "jobs changed"]
    rows = [
        [
            f"{COUNT(run['n_jobs'])} × {COUNT(run['n_nodes'])}, {run['seed']}", COUNT(run["n_parts"]), S(run["new_s"]),
            S(run["later_s"]), COUNT(run["n_changed"]),
        ]
        for run in runs
    ]  # fmt: skip
    is_whole = all(run["n_jobs"] == N_JOBS for run in runs)
    slowest = most(runs, "new_turns", "later_turns") if is_whole else None
    n_parts = min(run["n_parts"] for run in runs) if is_whole else None
    size = f"optimus {COUNT(N_JOBS)} jobs × {COUNT(N_NODES)} nodes"
    targets = [
        Target(f"{size}: CPU time of a decision, slowest of all", LIMIT, slowest, TURNS),
        Target(f"{size}: workers and servers, fewest of all", N_PARTS, n_parts, COUNT, at_least=True),
    ]
    return Section("large decisions", heads, rows, targets)


OPTIMUS = Family(optimus, _optimus_section)


def _run(n_jobs: int, n_nodes: int, seed: int) -> Run:
    nodes = nodes_of([NodeGroup(n_nodes=n_nodes, **NODE)])  # type: ignore[arg-type]
    traces = generator.Optimus(n_jobs=n_jobs).jobs(seed)
    jobs = [_waiting(job.spec, float(i)) for i, job in enumerate(sim_jobs(traces, RULE, seed=seed))]
    first = Snapshot.of(0.0, nodes, jobs)
    new_s, plan = _timed(first)
    draw = random.Random(seed)
    running = [_running(job, plan, draw.uniform(0.0, 0.5)) for job in jobs if plan.grants.get(job.id)]
    later = Snapshot.of(600.0, nodes, running, carry=plan.carry, revision=2)
    later_s, again = _timed(later)
    return {
        "seed": seed, "n_jobs": n_jobs, "n_nodes": n_nodes, "n_parts": sum(map(_n_parts, running)), "new_s": new_s,
        "later_s": later_s, "n_changed": len(again.grants), "n_running": len(running),
        **in_turns(new_turns=new_s, later_turns=later_s),
    }  # fmt: skip


def _timed(snapshot: Snapshot) -> tuple[float, Plan]:
    """CPU seconds, which other work on the machine does not add to."""
    gc.collect()
    begun = time.process_time()
    plan = Optimus().allocate(snapshot)
    return time.process_time() - begun, plan


def _waiting(spec: JobSpec, at: float) -> JobView:
    return JobView(
        spec=spec, status="queued", submitted_at=at, done_steps=0.0, demand=spec.ceiling, granted={},
        curve=RateCurve(MODEL, MODEL.init(spec)),
    )  # fmt: skip


def _running(job: JobView, plan: Plan, done_frac: float) -> JobView:
    held = plan.grants[job.id]
    done_steps = done_frac * (job.spec.work_steps or 0.0)
    return replace(job, planned=held, granted=held, status="running", started_at=0.0, done_steps=done_steps)


def _n_parts(job: JobView) -> int:
    parts = job.spec.parts_of(total(job.planned.values()))
    assert parts is not None
    return sum(parts)
