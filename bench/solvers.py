"""Measure how fast the solvers are, what they prove, and how HiGHS compares: one function per family of solvers.

Everything runs on one core. The instances are those of the tests; times are medians over repetitions of one
instance, and the table gives the median and the slowest of the seeds.
"""

import os

# Before numpy is loaded: the targets are for one core.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from _common import Results, parser

sys.path.append(str(Path(__file__).parents[1]))  # the instances of the tests

from _decisions import DECISION_FAMILIES
from _exact import exact_knapsack, exact_vector_knapsack
from _reference import TURNS, in_turns, timed_s
from _report import Family, Section, Target, conclude_targets, most, page_of, report, sections_of
from _slot_solvers import SLOT_FAMILIES
from tests.solvers.instances import Counts, Instance, VectorInstance, cluster, vector_cluster

from punctual.solvers.knapsack import solve_knapsack
from punctual.solvers.solution import Solution
from punctual.solvers.vector_knapsack import solve_vector_knapsack

METHOD = (
    "Times are CPU times, and targets are turns of a reference that is measured after each instance (`bench/_reference.py`). "
    "Our times are medians of repeated calls on one instance, and the table has the median and the slowest of the seeds. "
    "HiGHS is called once on some of the seeds, asked for a gap of 1e-4 (several resources: our own, if that is "
    "larger); its time includes building its model, about 1 %."
)

T = TypeVar("T")
MS = "{:.2f} ms".format
GAP = "{:.1e}".format
TIMES = "{:.0f}x".format


def timed_ms(solve: Callable[[], T], n_repetitions: int) -> tuple[float, T]:
    """Return the median CPU time of a call, and its answer; the first call warms up and does not count."""
    solve()
    found = [timed_s(solve) for _ in range(n_repetitions)]
    return statistics.median(each_s for each_s, _ in found) * 1e3, found[-1][1]


def middle(runs: list[dict[str, Any]], key: str) -> float | None:
    found = [run[key] for run in runs if key in run]
    return statistics.median(found) if found else None


def shown(value: float | None, how: Callable[[float], str]) -> str:
    return "–" if value is None else how(value)


#: Most time it may take at a proven gap of 1e-4: jobs × devices -> turns of the reference.
KNAPSACK_LIMITS = {(200, 1024): None, (1000, 4096): 5_000.0, (2000, 10_000): 12_500.0}


def knapsack(*, quick: bool) -> list[dict[str, Any]]:
    """Multiple-choice knapsack, one resource."""
    runs = []
    for (n_jobs, capacity), counts in ((size, kind) for size in KNAPSACK_LIMITS for kind in ("all", "powers")):
        for seed in range(3 if quick else 10):
            compares = seed < (n_jobs < 2000 if quick else 3)
            runs.append(_knapsack_run(n_jobs, capacity, seed, counts, compares=compares))  # type: ignore[arg-type]
    return runs


def _knapsack_section(runs: list[dict[str, Any]]) -> Section:
    heads = ["jobs × devices, counts", "time", "slowest", "proven gap, worst", "exact", "slowest", "HiGHS", "faster"]
    rows = [_knapsack_row(n_jobs, capacity, counts, runs) for n_jobs, capacity, counts in _cases(runs)]
    return Section("knapsack", heads, rows, _knapsack_targets(runs))


def _knapsack_run(n_jobs: int, capacity: int, seed: int, counts: Counts, *, compares: bool) -> dict[str, Any]:
    one = cluster(n_jobs, capacity, seed, counts=counts)
    time_ms, found = timed_ms(lambda: solve_knapsack(one.costs, one.values, capacity), 15)
    exact_ms, exact = timed_ms(lambda: solve_knapsack(one.costs, one.values, capacity, gap_limit=0.0), 5)
    run = {
        "n_jobs": n_jobs, "capacity": capacity, "counts": counts, "seed": seed, "time_ms": time_ms, "gap": found.gap,
        "exact_ms": exact_ms, "is_exact": exact.status == "optimal", **in_turns(turns=time_ms / 1e3),
    }  # fmt: skip
    if compares:
        highs_s, reference = timed_s(lambda: _highs(one))
        run |= {"highs_ms": 1e3 * highs_s, "highs_gap": reference.gap, "faster": 1e3 * highs_s / time_ms}
    return run


def _highs(one: Instance) -> Solution:
    return exact_knapsack(one.costs, one.values, one.capacity, gap_limit=1e-4, time_limit_s=60.0)


def _cases(runs: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return list(dict.fromkeys((run["n_jobs"], run["capacity"], run["counts"]) for run in runs))


def _of_size(runs: list[dict[str, Any]], n_jobs: int, counts: str | None = None) -> list[dict[str, Any]]:
    return [run for run in runs if run["n_jobs"] == n_jobs and counts in (None, run["counts"])]


def _knapsack_row(n_jobs: int, capacity: int, counts: str, runs: list[dict[str, Any]]) -> list[str]:
    own = _of_size(runs, n_jobs, counts)
    return [
        f"{n_jobs} × {capacity}, {counts}",
        shown(middle(own, "time_ms"), MS), shown(most(own, "time_ms"), MS), shown(most(own, "gap"), GAP),
        shown(middle(own, "exact_ms"), MS), shown(most(own, "exact_ms"), MS),
        shown(middle(own, "highs_ms"), "{:.0f} ms".format), shown(middle(own, "faster"), TIMES),
    ]  # fmt: skip


def _knapsack_targets(runs: list[dict[str, Any]]) -> list[Target]:
    targets = [Target("knapsack: proven gap, worst of all runs", 1e-4, most(runs, "gap"), GAP)]
    for (n_jobs, capacity), limit in KNAPSACK_LIMITS.items():
        if limit is not None:
            slowest = most(_of_size(runs, n_jobs), "turns")
            targets.append(Target(f"knapsack {n_jobs} × {capacity}: CPU time, slowest of all", limit, slowest, TURNS))
    faster = min((run["faster"] for run in runs if run["n_jobs"] >= 1000 and "faster" in run), default=None)
    text = "knapsack, 1000 jobs and more: HiGHS's time over ours, both at 1e-4, least of all"
    targets.append(Target(text, 100, faster, TIMES, at_least=True))
    n_proven = sum(run["is_exact"] for run in runs) / len(runs)
    targets.append(Target("knapsack: proven best on demand", 1.0, n_proven, "{:.0%}".format, at_least=True))
    return targets


def vector_knapsack(*, quick: bool) -> list[dict[str, Any]]:
    """Three resources: devices, cores, memory."""
    runs = []
    for n_jobs, n_devices in ((200, 1024), (1000, 4096)):
        for seed in range(3 if quick else 10):
            compares = seed < (1 if quick else 3)
            runs.append(_vector_run(n_jobs, n_devices, seed, compares=compares))
    return runs


def _vector_knapsack_section(runs: list[dict[str, Any]]) -> Section:
    heads = ["jobs × devices", "time", "slowest", "proven gap", "worst", "HiGHS at the same gap", "faster"]
    rows = [
        [
            f"{n_jobs} × {n_devices}, 3 resources",
            shown(middle(own, "time_ms"), MS), shown(most(own, "time_ms"), MS), shown(middle(own, "gap"), GAP),
            shown(most(own, "gap"), GAP), shown(middle(own, "highs_ms"), "{:.0f} ms".format),
            shown(middle(own, "faster"), TIMES),
        ]
        for n_jobs, n_devices, own in ((n, c, _of_size(runs, n)) for n, c, _ in _cases(runs))
    ]  # fmt: skip
    large = _of_size(runs, 1000)
    targets = [
        Target("vector knapsack 1000 × 4096 × 3: proven gap, worst", 0.01, most(large, "gap"), GAP),
        Target("vector knapsack 1000 × 4096 × 3: CPU time, slowest", 50_000.0, most(large, "turns"), TURNS),
    ]
    return Section("vector knapsack", heads, rows, targets)


def _vector_run(n_jobs: int, n_devices: int, seed: int, *, compares: bool) -> dict[str, Any]:
    one = vector_cluster(n_jobs, n_devices, seed)
    time_ms, found = timed_ms(lambda: solve_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=1e-3), 5)
    run = {
        "n_jobs": n_jobs, "capacity": n_devices, "counts": "all", "seed": seed, "time_ms": time_ms, "gap": found.gap,
        "n_scarce": int((found.multipliers > 0).sum()), **in_turns(turns=time_ms / 1e3),
    }  # fmt: skip
    if compares:
        highs_s, reference = timed_s(lambda: _vector_highs(one, max(found.gap, 1e-4)))
        run |= {"highs_ms": 1e3 * highs_s, "highs_gap": reference.gap, "faster": 1e3 * highs_s / time_ms}
    return run


def _vector_highs(one: VectorInstance, gap: float) -> Solution:
    return exact_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=gap, time_limit_s=60.0)


#: A family of solvers is added here.
FAMILIES: list[Family] = [
    Family(knapsack, _knapsack_section), Family(vector_knapsack, _vector_knapsack_section), *SLOT_FAMILIES, *DECISION_FAMILIES,
]  # fmt: skip


def sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def page(results: Results) -> str:
    return page_of(sections(results), results, "", f"{METHOD} One core.")


def main() -> int:
    quick = parser(__doc__ or "").parse_args().quick
    runs = {family.name: family.measure(quick=quick) for family in FAMILIES}
    targets = report("solvers", {"runs": runs}, sections, page, quick=quick)
    return conclude_targets(targets, targets[1], quick=quick)


if __name__ == "__main__":
    sys.exit(main())
