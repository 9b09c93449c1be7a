"""What `bench/solvers.py` measures of whole decisions: from a snapshot of running and waiting jobs to a plan."""

import gc
import random
import statistics
import time
from dataclasses import replace
from typing import Any

from _large_decisions import OPTIMUS
from _reference import TURNS, in_turns
from _report import Family, Run, Section, Target, most

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.speed import RateCurve
from punctual.papers.elastic_mip.elastic_mip import ElasticMip
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic

MS = "{:.1f} ms".format
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
    heads = ["200 jobs × 1024 devices", "after changes", "slowest", "all speeds new", "slowest", "jobs changed", "gap"]
    rows = [_row(name, [run for run in runs if run["case"] == name]) for name in CASES]
    slowest = most(runs, "changes_turns")
    target = Target("whole decision of elastic-mip, 200 × 1024: CPU time, slowest of all", LIMIT, slowest, TURNS)
    return Section("whole decisions", heads, rows, [target])


#: A family of decisions is added here.
DECISION_FAMILIES = [Family(elastic_mip, _elastic_mip_section), OPTIMUS]


def _row(name: str, runs: list[Run]) -> list[str]:
    def middle(key: str) -> float:
        return statistics.median(run[key] for run in runs)

    return [
        name, MS(middle("changes_ms")), MS(max(run["changes_ms"] for run in runs)), MS(middle("new_ms")),
        MS(max(run["new_ms"] for run in runs)), f"{middle('n_changed'):.0f}", f"{max(run['gap'] for run in runs):.1e}",
    ]  # fmt: skip


def _run(name: str, seed: int) -> Run:
    """One decision when some jobs have ended and others come, and one when every job's speed is seen anew."""
    counts, policy = CASES[name]
    nodes = nodes_of([NodeGroup(n_nodes=N_NODES, gpus=PER_NODE)])
    first = Snapshot.of(0.0, nodes, _waiting(counts, seed, 0.0))
    running = _in_force(first, policy.allocate(first), 0.0)
    newcomers = _waiting(counts, seed + 1000, 250.0)
    jobs = [newcomers[i] if i % ONE_OF == 0 else one for i, one in enumerate(running)]
    changes_ms, plan = _timed(policy, nodes, jobs)
    seen = [_seen_anew(one) for one in _in_force(Snapshot.of(300.0, nodes, jobs), plan, 300.0)]
    new_ms, _ = _timed(policy, nodes, seen)
    assert plan.bound is not None
    assert plan.objective is not None
    gap = (plan.bound - plan.objective) / plan.bound
    return {
        "case": name, "seed": seed, "changes_ms": changes_ms, "new_ms": new_ms, "n_changed": len(plan.grants),
        "gap": gap, **in_turns(changes_turns=changes_ms / 1e3),
    }  # fmt: skip


def _timed(policy: ElasticMip, nodes: list[Node], jobs: list[JobView]) -> tuple[float, Plan]:
    """CPU milliseconds, which other work on the machine does not add to."""
    snapshot = Snapshot.of(300.0, nodes, jobs)
    gc.collect()  # what making the instances left behind is no part of the decision
    begun = time.process_time()
    plan = policy.allocate(snapshot)
    return (time.process_time() - begun) * 1e3, plan


def _waiting(counts: Any, seed: int, at: float) -> list[JobView]:
    rule = Elastic(counts=counts, startup_s=30.0, resize_cost_s=30.0)
    traces = ModelartsLike(n_jobs=N_JOBS, n_devices=N_NODES * PER_NODE).jobs(seed)
    specs = [job.spec for job in sim_jobs(traces, rule, seed=seed)]
    draw = random.Random(seed)
    return [_view(replace(spec, id=JobId(f"{seed}-{spec.id}")), at, draw.random()) for spec in specs]


def _view(spec: JobSpec, at: float, done_frac: float) -> JobView:
    return JobView(
        spec=spec, status="queued", submitted_at=at, done_steps=0.9 * done_frac * (spec.work_steps or 0.0),
        demand=spec.ceiling, granted={}, curve=RateCurve(MODEL, MODEL.init(spec)),
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
