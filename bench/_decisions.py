"""Measure what `bench/solvers.py` measures of whole decisions: from a snapshot of running and waiting jobs to a plan."""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from _reference import TURNS, in_turns, timed_s
from _report import Column, Family, Run, Section, Target, most, table_of

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.job import JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.resources import total
from punctual.core.speed import RateCurve
from punctual.papers.optimus.optimus import Optimus
from punctual.papers.optimus.optimus_jobs import Optimus as OptimusJobs
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs

S, COUNT = "{:.1f} s".format, "{:,.0f}".format


def _timed(
    policy: Policy, nodes: Sequence[Node], jobs: Sequence[JobView], at: float, **more: Any
) -> tuple[float, Plan]:
    """Return the CPU seconds of a decision, and the plan."""
    snapshot = Snapshot.of(at, nodes, jobs, **more)
    gc.collect()  # what making the instances left behind is no part of the decision
    return timed_s(lambda: policy.allocate(snapshot))


def _view(spec: JobSpec, at: float) -> JobView:
    curve = RateCurve(SERVERS_MODEL, SERVERS_MODEL.init(spec))
    return JobView(
        spec=spec, status="queued", submitted_at=at, done_steps=0.0, demand=spec.ceiling, granted={}, curve=curve
    )


# A decision for a whole data centre: the size that the source of Optimus gives a time for.

N_LARGE_JOBS, N_LARGE_NODES = 4_000, 16_000
NODE = {"gpus": 4, "cores": 18.0, "memory_gib": 80.0}
#: Turns of the reference.
LARGE_LIMIT = 2_500_000.0
N_PARTS = 100_000
SERVERS_MODEL = registry.load("models", "parameter-server")()
#: Jobs that go on speeding up, so that as many workers and servers are handed out as in the source.
RULE = ParameterServers(
    compute_frac=0.9, fixed_frac=0.01, link_frac=0.08, worker_frac=0.005, server_frac=0.005, n_workers_max=32,
    n_servers_max=32,
)  # fmt: skip


def optimus(*, quick: bool) -> list[Run]:
    """The policy `optimus` with fitted speed models: all jobs new, and again after ten minutes."""
    n_jobs, n_nodes = (N_LARGE_JOBS // 10, N_LARGE_NODES // 10) if quick else (N_LARGE_JOBS, N_LARGE_NODES)
    return [_large_run(n_jobs, n_nodes, seed) for seed in range(1 if quick else 3)]


def _optimus_section(runs: list[Run]) -> Section:
    columns = [
        Column("workers and servers", "n_parts", COUNT), Column("all new: CPU time", "new_s", S),
        Column("10 min later", "later_s", S), Column("jobs changed", "n_changed", COUNT),
    ]  # fmt: skip
    is_whole = all(run["n_jobs"] == N_LARGE_JOBS for run in runs)
    slowest = most(runs, "new_turns", "later_turns") if is_whole else None
    n_parts = min(run["n_parts"] for run in runs) if is_whole else None
    size = f"optimus {COUNT(N_LARGE_JOBS)} jobs × {COUNT(N_LARGE_NODES)} nodes"
    targets = [
        Target(f"{size}: CPU time of a decision, slowest of all", LARGE_LIMIT, slowest, TURNS),
        Target(f"{size}: workers and servers, fewest of all", N_PARTS, n_parts, COUNT, at_least=True),
    ]
    return Section(
        "large decisions", *table_of(runs, {"jobs": "n_jobs", "nodes": "n_nodes", "seed": "seed"}, columns), targets
    )


def _large_run(n_jobs: int, n_nodes: int, seed: int) -> Run:
    nodes = nodes_of([NodeGroup(n_nodes=n_nodes, **NODE)])  # type: ignore[arg-type]
    traces = OptimusJobs(n_jobs=n_jobs).jobs(seed)
    jobs = [_view(job.spec, float(i)) for i, job in enumerate(sim_jobs(traces, RULE, seed=seed))]
    new_s, plan = _timed(Optimus(), nodes, jobs, 0.0)
    draw = random.Random(seed)
    running = [_running(job, plan, draw.uniform(0.0, 0.5)) for job in jobs if plan.grants.get(job.id)]
    later_s, again = _timed(Optimus(), nodes, running, 600.0, carry=plan.carry, revision=2)
    return {
        "seed": seed, "n_jobs": n_jobs, "n_nodes": n_nodes, "n_parts": sum(map(_n_parts, running)), "new_s": new_s,
        "later_s": later_s, "n_changed": len(again.grants), "n_running": len(running),
        **in_turns(new_turns=new_s, later_turns=later_s),
    }  # fmt: skip


def _running(job: JobView, plan: Plan, done_frac: float) -> JobView:
    held = plan.grants[job.id]
    done_steps = done_frac * (job.spec.work_steps or 0.0)
    return replace(job, planned=held, granted=held, status="running", started_at=0.0, done_steps=done_steps)


def _n_parts(job: JobView) -> int:
    parts = job.spec.parts_of(total(job.planned.values()))
    assert parts is not None
    return sum(parts)


#: A family of decisions is added here.
DECISION_FAMILIES = [Family(optimus, _optimus_section)]
