"""Measure how fast the solvers are, what they prove, and how HiGHS compares: one function per family of solvers.

Everything runs on one core. The instances are those of the tests; times are medians over repetitions of one
instance, and the table gives the median and the slowest of the seeds.
"""

import os

# Before numpy is loaded: the targets are for one core.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import gc
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from _common import Results
from _reference import TURNS, in_turns, timed_s
from _report import Column, Family, Run, Section, Target, measured_of, most, page_of, run, sections_of, table_of
from tests.solvers.exact import exact_knapsack, exact_vector_knapsack
from tests.solvers.instances import Counts, cluster, vector_cluster

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
from punctual.papers.smd.frieze_clarke import exact_packing, frieze_clarke
from punctual.papers.smd.sum_of_ratios import PairProblem, approximate_pair, fastest_pair
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs
from punctual.solvers.knapsack import solve_knapsack
from punctual.solvers.vector_knapsack import solve_vector_knapsack

METHOD = (
    "Times are CPU times, and targets are turns of a reference that is measured after each instance (`bench/_reference.py`). "
    "Our times are medians of repeated calls on one instance, and the table has the median and the slowest of the seeds. "
    "HiGHS is called once on some of the seeds, asked for a gap of 1e-4 (several resources: our own, if that is "
    "larger); its time includes building its model, about 1 %."
)

T = TypeVar("T")
MS, GAP, TIMES = "{:.2f} ms".format, "{:.1e}".format, "{:.0f}x".format
SHARE, COUNT, MANY, S = "{:.3f}".format, "{:.0f}".format, "{:,.0f}".format, "{:.1f} s".format


def timed_ms(solve: Callable[[], T], n_repetitions: int) -> tuple[float, T]:
    """Return the median CPU time of a call, and its answer; the first call warms up and does not count."""
    solve()
    found = [timed_s(solve) for _ in range(n_repetitions)]
    return statistics.median(each_s for each_s, _ in found) * 1e3, found[-1][1]


#: Most time it may take at a proven gap of 1e-4: jobs × devices -> turns of the reference.
KNAPSACK_LIMITS = {(200, 1024): None, (1000, 4096): 5_000.0, (2000, 10_000): 12_500.0}


def knapsack(*, quick: bool) -> list[Run]:
    """Multiple-choice knapsack, one resource."""
    runs = []
    for (n_jobs, capacity), counts in ((size, kind) for size in KNAPSACK_LIMITS for kind in ("all", "powers")):
        for seed in range(3 if quick else 10):
            compares = seed < (n_jobs < 2000 if quick else 3)
            runs.append(_knapsack_run(n_jobs, capacity, seed, counts, compares=compares))  # type: ignore[arg-type]
    return runs


def _knapsack_section(runs: list[Run]) -> Section:
    columns = [
        Column("time", "time_ms", MS), Column("slowest", "time_ms", MS, max), Column("proven gap, worst", "gap", GAP, max),
        Column("exact", "exact_ms", MS), Column("slowest", "exact_ms", MS, max), Column("HiGHS", "highs_ms", "{:.0f} ms".format),
        Column("faster", "faster", TIMES),
    ]  # fmt: skip
    return Section(
        "knapsack", *table_of(runs, {"jobs": "n_jobs", "devices": "capacity", "counts": "counts"}, columns),
        _knapsack_targets(runs),
    )  # fmt: skip


def _knapsack_run(n_jobs: int, capacity: int, seed: int, counts: Counts, *, compares: bool) -> Run:
    one = cluster(n_jobs, capacity, seed, counts=counts)
    time_ms, found = timed_ms(lambda: solve_knapsack(one.costs, one.values, capacity), 15)
    exact_ms, exact = timed_ms(lambda: solve_knapsack(one.costs, one.values, capacity, gap_limit=0.0), 5)
    found_run = {
        "n_jobs": n_jobs, "capacity": capacity, "counts": counts, "seed": seed, "time_ms": time_ms, "gap": found.gap,
        "exact_ms": exact_ms, "is_exact": exact.status == "optimal", **in_turns(turns=time_ms / 1e3),
    }  # fmt: skip
    if compares:
        found_run |= _highs(
            time_ms, lambda: exact_knapsack(one.costs, one.values, capacity, gap_limit=1e-4, time_limit_s=60.0)
        )
    return found_run


def _highs(time_ms: float, solve: Callable[[], Any]) -> Run:
    """Return what HiGHS takes for the same, and what it proves."""
    highs_s, reference = timed_s(solve)
    return {"highs_ms": 1e3 * highs_s, "highs_gap": reference.gap, "faster": 1e3 * highs_s / time_ms}


def _knapsack_targets(runs: list[Run]) -> list[Target]:
    targets = [Target("knapsack: proven gap, worst of all runs", 1e-4, most(runs, "gap"), GAP)]
    for (n_jobs, capacity), limit in KNAPSACK_LIMITS.items():
        if limit is not None:
            slowest = most([one for one in runs if one["n_jobs"] == n_jobs], "turns")
            targets.append(Target(f"knapsack {n_jobs} × {capacity}: CPU time, slowest of all", limit, slowest, TURNS))
    faster = min((one["faster"] for one in runs if one["n_jobs"] >= 1000 and "faster" in one), default=None)
    text = "knapsack, 1000 jobs and more: HiGHS's time over ours, both at 1e-4, least of all"
    n_proven = sum(one["is_exact"] for one in runs) / len(runs)
    return [
        *targets, Target(text, 100, faster, TIMES, at_least=True),
        Target("knapsack: proven best on demand", 1.0, n_proven, "{:.0%}".format, at_least=True),
    ]  # fmt: skip


def vector_knapsack(*, quick: bool) -> list[Run]:
    """Three resources: devices, cores, memory."""
    return [
        _vector_run(n_jobs, n_devices, seed, compares=seed < (1 if quick else 3))
        for n_jobs, n_devices in ((200, 1024), (1000, 4096))
        for seed in range(3 if quick else 10)
    ]


def _vector_knapsack_section(runs: list[Run]) -> Section:
    columns = [
        Column("time", "time_ms", MS), Column("slowest", "time_ms", MS, max), Column("proven gap", "gap", GAP),
        Column("worst", "gap", GAP, max), Column("HiGHS at the same gap", "highs_ms", "{:.0f} ms".format),
        Column("faster", "faster", TIMES),
    ]  # fmt: skip
    large = [one for one in runs if one["n_jobs"] == 1000]
    return Section("vector knapsack, 3 resources", *table_of(runs, {"jobs": "n_jobs", "devices": "capacity"}, columns), [
        Target("vector knapsack 1000 × 4096 × 3: proven gap, worst", 0.01, most(large, "gap"), GAP),
        Target("vector knapsack 1000 × 4096 × 3: CPU time, slowest", 50_000.0, most(large, "turns"), TURNS),
    ])  # fmt: skip


def _vector_run(n_jobs: int, n_devices: int, seed: int, *, compares: bool) -> Run:
    one = vector_cluster(n_jobs, n_devices, seed)
    time_ms, found = timed_ms(lambda: solve_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=1e-3), 5)
    found_run = {
        "n_jobs": n_jobs, "capacity": n_devices, "seed": seed, "time_ms": time_ms, "gap": found.gap,
        "n_scarce": int((found.multipliers > 0).sum()), **in_turns(turns=time_ms / 1e3),
    }  # fmt: skip
    if compares:
        gap = max(found.gap, 1e-4)
        found_run |= _highs(
            time_ms,
            lambda: exact_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=gap, time_limit_s=60.0),
        )
    return found_run


def pairs_of_one_job(*, quick: bool) -> list[Run]:
    """The published way to choose workers and servers, beside the exact one."""
    seeds = range(5 if quick else 30)
    return [_pair_run(kind, epsilon, seed) for kind in ("sync", "async") for epsilon in (0.1, 0.03) for seed in seeds]


def _pairs_of_one_job_section(runs: list[Run]) -> Section:
    columns = [
        Column("published over exact", "ratio", SHARE, fmean), Column("most", "ratio", SHARE, max),
        Column("programmes", "n_programmes", COUNT), Column("published", "published_ms", MS), Column("exact", "exact_ms", MS),
    ]  # fmt: skip
    target = Target("pairs: exact slower than published", 0, sum(one["ratio"] < 1 - 1e-9 for one in runs), COUNT)
    return Section("sum of ratios: time of one job", *table_of(runs, {"kind, ε": "case"}, columns), [target])


def _pair_run(kind: Any, epsilon: float, seed: int) -> Run:
    random = np.random.default_rng(seed)
    low, high = (
        ([1, 0.1, 1, 5, 100], [4, 1, 50, 100, 2000]) if kind == "sync" else ([1, 0.1, 100, 5], [50, 4, 2000, 100])
    )
    theta, needs = random.uniform(low, high), random.uniform(1, 10, (2, 4))
    limits = random.uniform(1, 20) * needs.max(axis=0) + needs.sum(axis=0)
    problem = PairProblem.of(kind, theta, needs[0], needs[1], limits)
    published_s, approximate = timed_s(lambda: approximate_pair(problem, epsilon=epsilon, seed=seed))
    exact_s, exact = timed_s(lambda: fastest_pair(problem))
    return {
        "case": (kind, epsilon), "seed": seed, "ratio": approximate.value / exact.value,
        "n_programmes": approximate.n_programmes, "published_ms": published_s * 1e3, "exact_ms": exact_s * 1e3,
    }  # fmt: skip


def packings(*, quick: bool) -> list[Run]:
    """The published way to choose the admitted jobs, beside the exact one; four resources."""
    cases = [(50, 0), (50, 1), (100, 1)] if quick else [(50, 0), (50, 1), (100, 1), (200, 1), (50, 2)]
    return [_packing_run(n_jobs, size, seed) for n_jobs, size in cases for seed in range(1 if quick else 5)]


def _packings_section(runs: list[Run]) -> Section:
    columns = [
        Column("published over exact", "ratio", SHARE, fmean), Column("least", "ratio", SHARE, min),
        Column("published", "published_ms", MS), Column("exact", "exact_ms", MS),
    ]  # fmt: skip
    target = Target("packings: exact below published", 0, sum(one["ratio"] > 1 + 1e-9 for one in runs), COUNT)
    return Section(
        "packing: profit of the admitted jobs", *table_of(runs, {"jobs, subsets up to": "case"}, columns), [target]
    )


def _packing_run(n_jobs: int, size: int, seed: int) -> Run:
    random = np.random.default_rng(seed)
    profits, costs = random.uniform(1, 100, n_jobs), random.uniform(1, 20, (n_jobs, 4))
    capacities = 0.4 * costs.sum(axis=0)
    published_s, published = timed_s(lambda: frieze_clarke(profits, costs, capacities, subset_size=size))
    exact_s, exact = timed_s(lambda: exact_packing(profits, costs, capacities))
    return {
        "case": (n_jobs, size), "seed": seed, "ratio": published.value / exact.value,
        "published_ms": published_s * 1e3, "exact_ms": exact_s * 1e3,
    }  # fmt: skip


# Whole decisions: from a snapshot of running and waiting jobs to a plan.


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
        Column("workers and servers", "n_parts", MANY), Column("all new: CPU time", "new_s", S),
        Column("10 min later", "later_s", S), Column("jobs changed", "n_changed", MANY),
    ]  # fmt: skip
    is_whole = all(run["n_jobs"] == N_LARGE_JOBS for run in runs)
    slowest = most(runs, "new_turns", "later_turns") if is_whole else None
    n_parts = min(run["n_parts"] for run in runs) if is_whole else None
    size = f"optimus {MANY(N_LARGE_JOBS)} jobs × {MANY(N_LARGE_NODES)} nodes"
    targets = [
        Target(f"{size}: CPU time of a decision, slowest of all", LARGE_LIMIT, slowest, TURNS),
        Target(f"{size}: workers and servers, fewest of all", N_PARTS, n_parts, MANY, at_least=True),
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


#: A family of solvers is added here.
FAMILIES: list[Family] = [
    Family(knapsack, _knapsack_section), Family(vector_knapsack, _vector_knapsack_section),
    Family(pairs_of_one_job, _pairs_of_one_job_section), Family(packings, _packings_section), Family(optimus, _optimus_section),
]  # fmt: skip


def sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def page(results: Results) -> str:
    return page_of(sections(results), results, "", f"{METHOD} One core.")


if __name__ == "__main__":
    sys.exit(run("solvers", __doc__, partial(measured_of, FAMILIES), sections, page, key=1))
