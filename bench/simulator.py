"""What simulations cost in CPU time and memory, how that grows, and what the published simulators cost on the same jobs.

Every simulation runs in a fresh process. CPU seconds are those of that process from when everything is imported:
reading the trace, making the jobs, simulating, measuring. Targets are turns of the reference, which is measured before and
after in the same process (`_reference.py`). The table has the best of the repetitions and the worst, because neighbours on
the same core make a process up to twice as expensive.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

from _common import RESULTS, commit, parser, print_table, write_results
from _deadline_tables import Target
from _published import PUBLISHED, Published, has_data
from _reference import TURNS

HERE = Path(__file__).parent
RIGID = ("fifo", "shortest-remaining")
SIZES = (1_000, 10_000, 100_000)
#: The targets: turns of the reference for a rigid job (of 100,000) and for an elastic one (of 10,000), MiB, times the
#: published simulators.
RIGID_LIMIT, ELASTIC_LIMIT, MEMORY_LIMIT_MIB, TIMES_LEAST = 100.0, 3_000.0, 1536.0, 20.0
#: Ten times the jobs at n log n.
GROWTH_LIMIT = 10 * log(100_000) / log(10_000)

TIMES = "{:.1f}x".format

Run = dict[str, Any]


@dataclass
class Section:
    """A table, its targets, and every single run."""

    name: str
    heads: list[str]
    rows: list[list[str]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def repeated(name: str, n_repetitions: int) -> list[Run]:
    """The runs of a case, the cheapest first."""
    found = []
    for _ in range(n_repetitions):
        command = [sys.executable, str(HERE / "_simulator_cases.py"), name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(output.splitlines()[-1]))
    return sorted(found, key=lambda run: run["turns"])


def per_job(run: Run) -> float:
    """Turns of the reference."""
    return float(run["turns"] / run["n_jobs"])


def cost_row(label: str, runs: list[Run]) -> list[str]:
    best, worst = runs[0], runs[-1]
    return [
        label, f"{best['n_jobs']:,}", f"{per_job(best):.1f}", f"{per_job(worst):.1f}", f"{best['run_s']:.2f}",
        f"{best['turn_us']:.1f}", f"{best['import_s']:.2f}", f"{max(run['rss_mib'] for run in runs):.0f}", f"{best['n_rounds']:,}",
        f"{100 * best['granted_device_frac']:.0f} %", f"{best['jct_mean_s']:,.0f}",
    ]  # fmt: skip


COST_HEADS = [
    "policy, jobs, seed", "jobs", "turns a job, best", "worst", "CPU s", "µs a turn", "imports, s", "MiB", "plans", "devices in use",
    "mean JCT, s",
]  # fmt: skip


def rigid(*, quick: bool) -> Section:
    """FIFO and SRTF at constant load, and the Philly trace as it was recorded."""
    section = Section("Rigid jobs on 64 nodes of 8 devices", COST_HEADS)
    by_size = {
        policy: {n: _generated(section, policy, n, quick=quick) for n in _sizes(quick=quick)} for policy in RIGID
    }
    if has_data() and not quick:
        for policy in RIGID:
            runs = repeated(f"philly/{policy}", 2)
            section.runs += runs
            section.rows.append(cost_row(f"{policy}, Philly as recorded", runs))
    for policy, sizes in by_size.items():
        section.targets += _growth_targets(policy, sizes)
    if quick:
        most = max(per_job(sizes[10_000][0]) for sizes in by_size.values())
        section.targets.append(Target("CPU time of a rigid job, 10,000 jobs", RIGID_LIMIT, most, TURNS))
    else:
        peak = max(run["rss_mib"] for run in section.runs)
        section.targets.append(Target("peak memory, rigid", MEMORY_LIMIT_MIB, peak, "{:.0f} MiB".format))
    return section


def _sizes(*, quick: bool) -> tuple[int, ...]:
    return SIZES[:2] if quick else SIZES


def _generated(section: Section, policy: str, n_jobs: int, *, quick: bool) -> list[Run]:
    """The runs of one size: three seeds of the small ones. Returns those of the first seed."""
    first: list[Run] = []
    for seed in range(1 if quick or n_jobs == SIZES[-1] else 3):
        runs = repeated(f"rigid/{policy}/{n_jobs}/{seed}", 2 if n_jobs == SIZES[-1] or quick else 3)
        section.runs += runs
        section.rows.append(cost_row(f"{policy}, {n_jobs:,}, {seed}", runs))
        first = first or runs
    return first


def _growth_targets(policy: str, sizes: dict[int, list[Run]]) -> list[Target]:
    if SIZES[-1] not in sizes:
        return []
    small, large = sizes[SIZES[-2]], sizes[SIZES[-1]]
    ratio = large[0]["turns"] / small[0]["turns"]
    least, most = large[0]["turns"] / small[-1]["turns"], large[-1]["turns"] / small[0]["turns"]
    spread = f"{least:.1f} to {most:.1f} with the spread"
    return [
        Target(f"CPU time of a job, 100,000 jobs under {policy}", RIGID_LIMIT, per_job(large[0]), TURNS),
        Target(f"100,000 jobs over 10,000 under {policy} ({spread})", GROWTH_LIMIT, ratio, TIMES),
    ]


def elastic(*, quick: bool) -> Section:
    """Elastic jobs, re-allocated at every event."""
    section = Section("Elastic jobs on 64 nodes of 8 devices, re-allocated at every event", COST_HEADS)
    n_jobs = 1_000 if quick else 10_000
    for policy in ("greedy",) if quick else ("greedy", "max-min"):
        runs = repeated(f"elastic/{policy}/{n_jobs}/0", 1 if quick else 2)
        section.runs += runs
        section.rows.append(cost_row(f"{policy}, {n_jobs:,}, 0", runs))
    if not quick:
        cost = next(per_job(run) for run in section.runs if "greedy" in run["name"])
        section.targets = [Target("CPU time of a job, 10,000 elastic jobs under greedy", ELASTIC_LIMIT, cost, TURNS)]
    return section


COMPARED_HEADS = [
    "simulator, trace: policy", "ours", "jobs", "turns, theirs", "ours", "times less", "CPU s", "µs a turn", "met, theirs", "ours", "mean JCT, theirs", "ours", "makespan, theirs", "ours",
]  # fmt: skip


def published(*, quick: bool) -> Section:
    """The same jobs as the published simulators, under the nearest policy."""
    section = Section("The published simulators", COMPARED_HEADS)
    for i, one in enumerate(PUBLISHED) if has_data() else ():
        runs = repeated(f"published/{i}", 1 if quick else 5)
        section.runs += [{**run, "against": one.name} for run in runs]
        section.rows.append(_compared(one, runs[0]))
        if one.turns is not None:
            text, ratio = f"CPU time against {one.name}", one.turns / runs[0]["turns"]
            section.targets.append(Target(text, TIMES_LEAST, ratio, TIMES, at_least=True))
    return section


def _compared(one: Published, run: Run) -> list[str]:
    times = "–" if one.turns is None else f"{one.turns / run['turns']:.0f}"
    met = run["n_deadlines_met"] if one.met is not None else None
    return [
        one.name, one.ours, str(run["n_jobs"]), _plain(one.turns), _plain(run["turns"]), times, f"{run['run_s']:.3f}",
        f"{run['turn_us']:.1f}", _plain(one.met), _plain(met), _plain(one.jct_s), _plain(run["jct_mean_s"]), _plain(one.makespan_s), _plain(run["makespan_s"]),
    ]  # fmt: skip


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


SECTIONS: tuple[Callable[..., Section], ...] = (rigid, elastic, published)


def verdict(target: Target) -> str:
    return {None: "not measured", True: "reached", False: "**missed**"}[target.reached]


def limit(target: Target) -> str:
    return f"{'at least' if target.at_least else 'at most'} {target.shown(target.limit)}"


def got(target: Target) -> str:
    return "–" if target.got is None else target.shown(target.got)


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def markdown(sections: list[Section]) -> str:
    targets = [target for section in sections for target in section.targets]
    rows = [[target.text, limit(target), got(target), verdict(target)] for target in targets]
    lines = table(["figure", "target", "measured", ""], rows)
    for section in sections:
        lines += ["", f"## {section.name}", "", *table(section.heads, section.rows)]
    lines += ["", "## What is and what is not the same", ""]
    models = {(one.simulator, one.theirs): [_who(one), one.same, one.differs] for one in PUBLISHED}
    lines += ["| run | the same | not the same |", "|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in models.values()]
    return "\n".join([*lines, "", f"Measured at revision {commit()}.", ""])


def _who(one: Published) -> str:
    return f"{one.simulator}: {one.theirs}, against {one.ours}"


def main() -> int:
    quick = parser(__doc__ or "").parse_args().quick
    sections = [measure(quick=quick) for measure in SECTIONS]
    for section in sections:
        print(section.name)
        print_table(section.heads, section.rows)
        print()
    write_results(
        "simulator-quick" if quick else "simulator",
        {"commit": commit(), "runs": {section.name: section.runs for section in sections}},
    )
    if not quick:
        (RESULTS / "simulator.md").write_text(markdown(sections), encoding="utf-8")
    targets = [target for section in sections for target in section.targets]
    for target in targets:
        if target.reached is not True:
            print(f"{verdict(target)}: {target.text}: {got(target)} ({limit(target)})")
    key = targets[0] if not quick else next(target for target in targets if "rigid job" in target.text)
    n_reached = sum(target.reached is True for target in targets)
    print(f"{n_reached} of {len(targets)} targets reached; {key.text}: {got(key)} (target: {limit(key)})")
    return int((key if quick else min(targets, key=lambda one: one.reached is True)).reached is not True)


if __name__ == "__main__":
    sys.exit(main())
