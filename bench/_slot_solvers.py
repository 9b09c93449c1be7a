"""Measure what `bench/solvers.py` measures of slots, of pairs of workers and servers, and of packings."""

import statistics
from typing import Any

import numpy as np
from _reference import TURNS, in_turns, timed_s
from _report import Family, Run, Section, Target, most
from slots import least_cost, minimum_share, most_on_time
from tests.bench.slot_reference import fewest_device_slots, instance, most_weight

from punctual.papers.smd.frieze_clarke import exact_packing, frieze_clarke
from punctual.papers.smd.sum_of_ratios import PairProblem, approximate_pair, fastest_pair

SHARE = "{:.3f}".format
S = "{:.2f} s".format
MS = "{:.2f} ms".format
TIGHT, EASY = (0.9, 1.3, 2.0), (0.4, 0.6, 0.75)
#: Devices and slots of the instances with 12 jobs.
SMALL = ((32, 12), (48, 16))


def few_jobs_on_time(*, quick: bool) -> list[Run]:
    """Most weight on time of 12 jobs, beside HiGHS."""
    cases = [
        (*size, x, seed) for size in SMALL[: 1 if quick else 2] for x in TIGHT for seed in range(1 if quick else 10)
    ]
    return [_few_run(*case, time_limit_s=4.0 if quick else 60.0) for case in cases]


def _few_jobs_on_time_section(runs: list[Run]) -> Section:
    heads = [
        "devices × slots, tightness",
        "of HiGHS's weight",
        "least",
        "minimum share",
        "gap to our bound",
        "CPU time",
        "HiGHS",
    ]
    rows = [
        [
            f"{devices} × {slots}, {tightness}", SHARE(_mean(own, "ratio")), SHARE(_least(own, "ratio")),
            SHARE(_mean(own, "share")), SHARE(_mean(own, "gap")), S(_median(own, "time_s")), S(_median(own, "highs_s")),
        ]
        for (devices, slots, tightness), own in _cases(runs).items()
    ]  # fmt: skip
    targets = [
        Target("12 jobs: weight on time over HiGHS's, worst of all", 0.98, _least(runs, "ratio"), SHARE, at_least=True),
        Target("12 jobs: below minimum share", 0, sum(run["ratio"] < run["share"] for run in runs), "{:.0f}".format),
    ]
    return Section("slots: weight on time, 12 jobs", heads, rows, targets)


def _few_run(devices: int, slots: int, tightness: float, seed: int, time_limit_s: float) -> Run:
    problem = instance(12, devices, slots, tightness, seed, most=16)
    time_s, plan = timed_s(lambda: most_on_time(problem, n_plans_max=24_000))
    highs_s, best = timed_s(lambda: most_weight(problem, time_limit_s=time_limit_s))
    return {
        "case": (devices, slots, tightness), "seed": seed, "time_s": time_s, "gap": plan.gap, "highs_s": highs_s,
        "ratio": plan.value / best.value, "share": minimum_share(problem).value / best.value,
        "highs_gap": (best.bound - best.value) / best.value,
    }  # fmt: skip


def few_jobs_cost(*, quick: bool) -> list[Run]:
    """Least cost of 12 jobs with all deadlines met, beside HiGHS."""
    cases = [
        (*size, x, seed) for size in SMALL[: 1 if quick else 2] for x in EASY for seed in range(1 if quick else 10)
    ]
    return [run for case in cases if (run := _cost_run(*case, time_limit_s=3.0 if quick else 60.0))]


def _few_jobs_cost_section(runs: list[Run]) -> Section:
    heads = [
        "devices × slots, tightness",
        "over HiGHS's cost",
        "most",
        "minimum share",
        "gap to our bound",
        "CPU time",
        "HiGHS",
    ]
    rows = [
        [
            f"{devices} × {slots}, {tightness}", SHARE(_mean(own, "ratio")), SHARE(_most(own, "ratio")),
            _shares(own), SHARE(_mean(own, "gap")), S(_median(own, "time_s")), S(_median(own, "highs_s")),
        ]
        for (devices, slots, tightness), own in _cases(runs).items()
    ]  # fmt: skip
    targets = [
        Target("12 jobs: cost over HiGHS's, worst of all", 1.03, _most(runs, "ratio"), SHARE),
        Target("12 jobs: dearer than minimum share", 0, sum(_is_dearer(run) for run in runs), "{:.0f}".format),
    ]
    return Section("slots: cost, 12 jobs", heads, rows, targets)


def _cost_run(devices: int, slots: int, tightness: float, seed: int, time_limit_s: float) -> Run | None:
    """None if HiGHS finds no plan with all jobs on time."""
    problem = instance(12, devices, slots, tightness, seed, most=16, slack=0.3)
    time_s, plan = timed_s(lambda: least_cost(problem, n_plans_max=24_000))
    highs_s, best = timed_s(lambda: fewest_device_slots(problem, time_limit_s=time_limit_s))
    share = minimum_share(problem)
    if not best.feasible:
        return None
    return {
        "case": (devices, slots, tightness), "seed": seed, "time_s": time_s, "gap": plan.gap, "highs_s": highs_s,
        "ratio": plan.value / best.value, "highs_gap": (best.value - best.bound) / best.value,
        "share": share.cost_device_slots / best.value if share.on_time.all() else None,
    }  # fmt: skip


def _shares(runs: list[Run]) -> str:
    """Cost of minimum shares where they keep all deadlines, and how often that is."""
    met = [run["share"] for run in runs if run["share"] is not None]
    return f"{SHARE(statistics.fmean(met))} ({len(met)} of {len(runs)})" if met else f"– (0 of {len(runs)})"


def _is_dearer(run: Run) -> bool:
    return run["share"] is not None and run["ratio"] > run["share"]


def many_jobs_on_time(*, quick: bool) -> list[Run]:
    """Most weight on time of 1000 jobs on 4096 devices over 100 slots, beside its own bound."""
    return [_many_run(tightness, seed) for tightness in TIGHT for seed in range(1 if quick else 5)]


def _many_jobs_on_time_section(runs: list[Run]) -> Section:
    heads = ["tightness", "of all weight", "bound", "minimum share", "proven gap", "worst", "CPU time", "slowest"]
    rows = [
        [
            str(case), SHARE(_mean(own, "on_time")), SHARE(_mean(own, "bound")), SHARE(_mean(own, "share")),
            SHARE(_mean(own, "gap")), SHARE(_most(own, "gap")), S(_median(own, "time_s")), S(_most(own, "time_s")),
        ]
        for case, own in _cases(runs).items()
    ]  # fmt: skip
    targets = [
        Target("1000 × 4096 × 100: gap to our own bound, worst", 0.02, _most(runs, "gap"), "{:.2%}".format),
        Target("1000 × 4096 × 100: CPU time, slowest", 500_000.0, most(runs, "turns"), TURNS),
        Target(
            "1000 × 4096 × 100: below minimum share",
            0,
            sum(bool(r["on_time"] < r["share"]) for r in runs),
            "{:.0f}".format,
        ),
    ]
    return Section("slots: weight on time, 1000 jobs × 4096 devices × 100 slots", heads, rows, targets)


def _many_run(tightness: float, seed: int) -> Run:
    problem = instance(1000, 4096, 100, tightness, seed)
    repeated = [timed_s(lambda: most_on_time(problem)) for _ in range(3)]
    plan, weight = repeated[0][1], problem.weights.sum()
    time_s = statistics.median(each_s for each_s, _ in repeated)
    return {
        "case": tightness, "seed": seed, "time_s": time_s, "gap": plan.gap, **in_turns(turns=time_s),
        "on_time": plan.value / weight, "bound": plan.bound / weight, "share": minimum_share(problem).value / weight,
    }  # fmt: skip


def pairs_of_one_job(*, quick: bool) -> list[Run]:
    """The published way to choose workers and servers, beside the exact one."""
    return [_pair_run(kind, epsilon, seed) for kind in ("sync", "async") for epsilon in (0.1, 0.03) for seed in range(5 if quick else 30)]  # fmt: skip


def _pairs_of_one_job_section(runs: list[Run]) -> Section:
    heads = ["kind, ε", "published over exact", "most", "programmes", "published", "exact"]
    rows = [
        [
            f"{kind}, {epsilon}", SHARE(_mean(own, "ratio")), SHARE(_most(own, "ratio")),
            f"{_median(own, 'n_programmes'):.0f}", MS(_median(own, "published_ms")), MS(_median(own, "exact_ms")),
        ]
        for (kind, epsilon), own in _cases(runs).items()
    ]  # fmt: skip
    targets = [
        Target("pairs: exact slower than published", 0, sum(r["ratio"] < 1 - 1e-9 for r in runs), "{:.0f}".format)
    ]
    return Section("sum of ratios: time of one job", heads, rows, targets)


def _pair_run(kind: Any, epsilon: float, seed: int) -> Run:
    random = np.random.default_rng(seed)
    theta = random.uniform([1, 0.1, 1, 5, 100], [4, 1, 50, 100, 2000]) if kind == "sync" else random.uniform([1, 0.1, 100, 5], [50, 4, 2000, 100])  # fmt: skip
    needs = random.uniform(1, 10, (2, 4))
    problem = PairProblem.of(
        kind, theta, needs[0], needs[1], random.uniform(1, 20) * needs.max(axis=0) + needs.sum(axis=0)
    )
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
    heads = ["jobs, subsets up to", "published over exact", "least", "published", "exact"]
    rows = [
        [
            f"{n_jobs}, {size}", SHARE(_mean(own, "ratio")), SHARE(_least(own, "ratio")),
            MS(_median(own, "published_ms")), MS(_median(own, "exact_ms")),
        ]
        for (n_jobs, size), own in _cases(runs).items()
    ]  # fmt: skip
    targets = [Target("packings: exact below published", 0, sum(r["ratio"] > 1 + 1e-9 for r in runs), "{:.0f}".format)]
    return Section("packing: profit of the admitted jobs", heads, rows, targets)


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


def _cases(runs: list[Run]) -> dict[Any, list[Run]]:
    """The runs of each case, in order of appearance."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        case = run["case"]
        found.setdefault(tuple(case) if isinstance(case, list) else case, []).append(run)
    return found


def _mean(runs: list[Run], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)


def _median(runs: list[Run], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _least(runs: list[Run], key: str) -> float:
    return min(run[key] for run in runs)


def _most(runs: list[Run], key: str) -> float:
    return max(run[key] for run in runs)


SLOT_FAMILIES = [
    Family(few_jobs_on_time, _few_jobs_on_time_section), Family(few_jobs_cost, _few_jobs_cost_section),
    Family(many_jobs_on_time, _many_jobs_on_time_section), Family(pairs_of_one_job, _pairs_of_one_job_section),
    Family(packings, _packings_section),
]  # fmt: skip
