"""Measure Punctual on many nodes: what a service with 200 agents costs, and a training that grows to a second node.

`bench/ray_cluster.md` says how. *scale*: agents whose jobs only pretend to run share one process, which the service talks to as to
the one that talks to Ray. Growth is the exponent p of cost ~ agents^p; of CPU and memory after what a service with one agent and no
job costs is taken off. *resize*: Punctual's training beside Ray Train's, as it is by itself, and *quick*; needs `ray[train]`.

The file has not the name `ray.py`, which would hide the package of that name from everything beside it.
"""

import math
import signal
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from _common import Results, parser
from _report import Run, Section, Target, conclude_targets, report
from _scale_runs import ScaleRun, measured
from _service_load import quantile

JOBS_PER_AGENT = 5
#: Exponent of what a cost grows with.
GROWTH_LIMIT = 1.2
STOP_LIMIT_S, TIMES_LEAST = 1.0, 20.0
PERCENT, TIMES = "{:.2%}".format, "{:.3f}x".format
EXPONENT, SECONDS = "{:.2f}".format, "{:.2f} s".format


def scale(options: Namespace, folder: Path) -> Results:
    sizes = (5, 20) if options.quick else (10, 50, 200)
    settle_s, window_s = (3.0, 5.0) if options.quick else (15.0, 40.0)
    nothing = measured(1, 0, folder / "nothing", 1.0, window_s / 2)
    runs = [measured(n, JOBS_PER_AGENT * n, folder / str(n), settle_s, window_s) for n in sizes]
    return {"runs": [run.kept() for run in (nothing, *runs)]}


def scale_sections(results: Results) -> list[Section]:
    nothing, *runs = (ScaleRun(**kept) for kept in results["runs"])
    heads = [
        "agents", "jobs", "service, of a core", "planner", "agents together", "service, MB", "planner, MB", "threads",
        "decisions a second", "p50, ms", "p99", "most",
    ]  # fmt: skip
    before, last = runs[-2], runs[-1]
    cpu = growth([run.cores - nothing.cores for run in (before, last)], (before, last))
    memory = growth([run.rss_mb - nothing.rss_mb for run in (before, last)], (before, last))
    size = f"from {before.n_agents} to {last.n_agents} agents"
    targets = [
        Target(f"growth of CPU time {size}, exponent", GROWTH_LIMIT, cpu, EXPONENT),
        Target(f"growth of memory {size}, exponent", GROWTH_LIMIT, memory, EXPONENT),
        Target(
            f"growth of the p99 of a decision from {runs[0].n_agents} to {last.n_agents} agents, exponent", GROWTH_LIMIT,
            growth([run.decision_p99_s for run in (runs[0], last)], (runs[0], last)), EXPONENT,
        ),
    ]  # fmt: skip
    coming_heads = [
        "agents", "jobs", "until all run, s", "plans", "a plan, p50, ms", "p99", "a decision, p50, ms", "p99", "most",
    ]  # fmt: skip
    threads = [name for name, used in last.threads.items() if used >= 0.001]
    thread_rows = [[name, *(PERCENT(run.threads.get(name, 0.0)) for run in runs)] for name in threads]
    return [
        Section("Many agents without training", heads, [_scale_row(run) for run in (nothing, *runs)], targets),
        Section("While the jobs come, one after the other", coming_heads, [_coming_row(run) for run in runs]),
        Section("CPU of the service by thread", ["thread", *(str(run.n_agents) for run in runs)], thread_rows),
    ]


def growth(costs: Sequence[float], runs: Sequence[ScaleRun]) -> float:
    """p of cost ~ agents^p between two runs."""
    return math.log(costs[1] / costs[0]) / math.log(runs[1].n_agents / runs[0].n_agents)


def _ms(values: Sequence[float], *fracs: float) -> list[str]:
    return [f"{1e3 * quantile(values, frac):.2f}" if values else "–" for frac in fracs]


def _scale_row(run: ScaleRun) -> list[str]:
    return [
        str(run.n_agents), f"{run.n_jobs:,}", PERCENT(run.service_cores), PERCENT(run.planner_cores), PERCENT(run.agents_cores),
        f"{run.rss_mb:.1f}", f"{run.planner_mb:.1f}", str(run.n_threads), f"{run.n_decided / run.window_s:.0f}",
        *_ms(run.decided_s, 0.5, 0.99, 1.0),
    ]  # fmt: skip


def _coming_row(run: ScaleRun) -> list[str]:
    return [
        str(run.n_agents), f"{run.n_jobs:,}", f"{run.running_s:.1f}", "–" if run.n_plans is None else str(run.n_plans), *_ms(run.planned_s, 0.5, 0.99),
        *_ms(run.submitting_s, 0.5, 0.99, 1.0),
    ]  # fmt: skip


def resize(options: Namespace, folder: Path) -> Results:
    from _ray_resize import RAY_TRAIN, ray_cluster, turn_of

    names = list(RAY_TRAIN)[-1:] if options.quick else list(RAY_TRAIN)
    turns: list[Run] = []
    with ray_cluster(folder) as cluster:
        for _ in range(1 if options.quick else options.turns):
            turns.append(turn_of(names[len(turns) % len(names)], cluster))
    return {"turns": turns}


def resize_sections(results: Results) -> list[Section]:
    from _ray_resize import OURS, RAY_TRAIN, changes_of, rows_of, times_less

    turns = results["turns"]
    names = [name for name in RAY_TRAIN if changes_of(turns, name, 1)]
    heads = ["training", "1 → 2 nodes, s", "steps redone", "2 → 1, s", "redone", "times ours, 1 → 2", "2 → 1"]
    longest_s = max(change["stop_s"] for i in (1, 2) for change in changes_of(turns, OURS, i))
    alike_frac = sum(turn["n_looks_alike"] for turn in turns) / sum(turn["n_looks"] for turn in turns)
    return [
        Section("From one node to two and back", heads, rows_of(turns, names), [
            Target(f"{OURS}: longest stop", STOP_LIMIT_S, longest_s, SECONDS),
            Target(f"{OURS}: weights as with one worker all the time", 1.0, alike_frac, PERCENT, at_least=True),
            *(
                Target(f"{name}: stop when {text}, times ours", TIMES_LEAST, median(times_less(turns, name, i)), TIMES, at_least=True)
                for name in names
                for text, i in (("growing", 1), ("shrinking", 2))
            ),
        ])
    ]  # fmt: skip


#: What is measured, and what it comes to.
PARTS: dict[str, tuple[Callable[[Namespace, Path], Results], Callable[[Results], list[Section]]]] = {
    "scale": (scale, scale_sections), "resize": (resize, resize_sections),
}  # fmt: skip
#: It needs no Ray, which takes a minute to start on two busy cores.
QUICK_PARTS = ("scale",)


def sections(results: Results) -> list[Section]:
    return PARTS[results["part"]][1](results)


def main() -> int:
    made = parser("Punctual on many nodes.")
    made.add_argument("--part", choices=list(PARTS), action="append", help="only this one; may be given several times")
    made.add_argument("--turns", type=int, default=6, help="of the part `resize`; each takes two or three minutes")
    options = made.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nodes are removed then too
    targets: list[Target] = []
    for name in options.part or (QUICK_PARTS if options.quick else PARTS):
        with tempfile.TemporaryDirectory(prefix="punctual-bench-") as folder:
            found = PARTS[name][0](options, Path(folder))
        targets += report(f"ray_{name}", {"part": name, **found}, sections, quick=options.quick)
    return conclude_targets(targets, targets[0], quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
