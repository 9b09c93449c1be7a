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
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import PerfModel, Policy
from punctual.core.resources import total
from punctual.core.speed import RateCurve
from punctual.papers.elastic_mip.elastic_mip import ElasticMip
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.papers.optimus.optimus import Optimus
from punctual.papers.optimus.optimus_jobs import Optimus as OptimusJobs
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic

MS, S, COUNT = "{:.1f} ms".format, "{:.1f} s".format, "{:,.0f}".format
N_JOBS, N_NODES, PER_NODE = 200, 128, 8
#: Turns of the reference.
LIMIT = 5_000.0
#: One job of so many ends, and another one comes, between two decisions.
ONE_OF = 20
MODEL = registry.load("models", "tabulated")()
CASES = {
    "powers of two": ("powers", ElasticMip()),
    "all counts": ("all", ElasticMip()),
    "powers of two, throughput": ("powers", ElasticMip(objective="throughput")),
    "powers of two, by nodes": ("powers", ElasticMip(unit="nodes")),
}


def elastic_mip(*, quick: bool) -> list[Run]:
    """The policy `elastic-mip` at the size for which its source gives a time."""
    return [_run(name, seed) for name in CASES for seed in range(3 if quick else 10)]


def _elastic_mip_section(runs: list[Run]) -> Section:
    columns = [
        Column("after changes", "changes_ms", MS), Column("slowest", "changes_ms", MS, max), Column("all speeds new", "new_ms", MS),
        Column("slowest", "new_ms", MS, max), Column("jobs changed", "n_changed", COUNT), Column("gap", "gap", "{:.1e}".format, max),
    ]  # fmt: skip
    slowest = most(runs, "changes_turns")
    target = Target("whole decision of elastic-mip, 200 × 1024: CPU time, slowest of all", LIMIT, slowest, TURNS)
    return Section("whole decisions", *table_of(runs, {"200 jobs × 1024 devices": "case"}, columns), [target])


def _run(name: str, seed: int) -> Run:
    """One decision when some jobs have ended and others come, and one when every job's speed is seen anew."""
    counts, policy = CASES[name]
    nodes = nodes_of([NodeGroup(n_nodes=N_NODES, gpus=PER_NODE)])
    first = Snapshot.of(0.0, nodes, _waiting(counts, seed, 0.0))
    running = _in_force(first, policy.allocate(first), 0.0)
    newcomers = _waiting(counts, seed + 1000, 250.0)
    jobs = [newcomers[i] if i % ONE_OF == 0 else one for i, one in enumerate(running)]
    changes_s, plan = _timed(policy, nodes, jobs, 300.0)
    seen = [_seen_anew(one) for one in _in_force(Snapshot.of(300.0, nodes, jobs), plan, 300.0)]
    new_s, _ = _timed(policy, nodes, seen, 300.0)
    assert plan.bound is not None
    assert plan.objective is not None
    gap = (plan.bound - plan.objective) / plan.bound
    return {
        "case": name, "seed": seed, "changes_ms": 1e3 * changes_s, "new_ms": 1e3 * new_s, "n_changed": len(plan.grants),
        "gap": gap, **in_turns(changes_turns=changes_s),
    }  # fmt: skip


def _timed(
    policy: Policy, nodes: Sequence[Node], jobs: Sequence[JobView], at: float, **more: Any
) -> tuple[float, Plan]:
    """Return the CPU seconds of a decision, and the plan."""
    snapshot = Snapshot.of(at, nodes, jobs, **more)
    gc.collect()  # what making the instances left behind is no part of the decision
    return timed_s(lambda: policy.allocate(snapshot))


def _waiting(counts: Any, seed: int, at: float) -> list[JobView]:
    rule = Elastic(counts=counts, startup_s=30.0, resize_cost_s=30.0)
    traces = ModelartsLike(n_jobs=N_JOBS, n_devices=N_NODES * PER_NODE).jobs(seed)
    specs = [job.spec for job in sim_jobs(traces, rule, seed=seed)]
    draw = random.Random(seed)
    return [_view(replace(spec, id=JobId(f"{seed}-{spec.id}")), at, 0.9 * draw.random()) for spec in specs]


def _view(spec: JobSpec, at: float, done_frac: float, model: PerfModel[Any] = MODEL) -> JobView:
    return JobView(
        spec=spec, status="queued", submitted_at=at, done_steps=done_frac * (spec.work_steps or 0.0),
        demand=spec.ceiling, granted={}, curve=RateCurve(model, model.init(spec)),
    )  # fmt: skip


def _in_force(snapshot: Snapshot, plan: Plan, at: float) -> list[JobView]:
    """The jobs once the plan is in force."""
    return [_with(job, plan.grants.get(job.id, job.planned), at) for job in snapshot.jobs]


def _with(job: JobView, held: Allocation, at: float) -> JobView:
    if not held:
        return replace(job, planned={}, granted={})
    return replace(job, planned=held, granted=held, status="running", started_at=at, granted_at=at, progress_at=at)


def _seen_anew(job: JobView) -> JobView:
    return replace(job, curve=RateCurve(MODEL, MODEL.init(job.spec)))


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
    jobs = [_view(job.spec, float(i), 0.0, SERVERS_MODEL) for i, job in enumerate(sim_jobs(traces, RULE, seed=seed))]
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
DECISION_FAMILIES = [Family(elastic_mip, _elastic_mip_section), Family(optimus, _optimus_section)]
