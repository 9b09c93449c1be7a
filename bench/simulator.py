"""Measure what simulations cost in CPU time and memory, how that grows, and what comes out beside the published simulators on the same jobs.

Every simulation runs in a fresh process. CPU seconds are those of that process from when everything is imported:
reading the trace, making the jobs, simulating, measuring. Targets are turns of the reference, which is measured before and
after in the same process (`_reference.py`). The table has the best of the repetitions and the worst, because neighbours on
the same core make a process up to twice as expensive.
"""

import json
import subprocess
import sys
from math import log
from pathlib import Path

from _common import Results, markdown_table, parser
from _published import PUBLISHED, Published, has_data
from _reference import TURNS
from _report import Family, Run, Section, Target, conclude_targets, page_of, report, sections_of

HERE = Path(__file__).parent
RIGID = ("fifo", "shortest-remaining")
SIZES = (1_000, 10_000, 100_000)
#: The targets: turns of the reference for a rigid job (of 100,000) and for an elastic one (of 10,000), MiB.
RIGID_LIMIT, ELASTIC_LIMIT, MEMORY_LIMIT_MIB = 100.0, 3_000.0, 1536.0
#: Ten times the jobs at n log n.
GROWTH_LIMIT = 10 * log(100_000) / log(10_000)

TIMES = "{:.1f}x".format


def repeated(name: str, n_repetitions: int) -> list[Run]:
    """The runs of a case."""
    found = []
    for _ in range(n_repetitions):
        command = [sys.executable, str(HERE / "_simulator_cases.py"), name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(output.splitlines()[-1]))
    return found


def by_case(runs: list[Run]) -> dict[str, list[Run]]:
    """The runs of each case, the cheapest first."""
    cases: dict[str, list[Run]] = {}
    for run in runs:
        cases.setdefault(run["name"], []).append(run)
    return {name: sorted(found, key=lambda run: run["turns"]) for name, found in cases.items()}


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


def rigid(*, quick: bool) -> list[Run]:
    """FIFO and SRTF at constant load, three seeds of the small sizes, and the Philly trace as it was recorded."""
    found = []
    for policy in RIGID:
        for n_jobs in SIZES[:2] if quick else SIZES:
            for seed in range(1 if quick or n_jobs == SIZES[-1] else 3):
                n_repetitions = 2 if n_jobs == SIZES[-1] or quick else 3
                found += repeated(f"rigid/{policy}/{n_jobs}/{seed}", n_repetitions)
    for policy in RIGID if has_data() and not quick else ():
        found += repeated(f"philly/{policy}", 2)
    return found


def elastic(*, quick: bool) -> list[Run]:
    """Elastic jobs, re-allocated at every event."""
    n_jobs = 1_000 if quick else 10_000
    return [
        run
        for policy in (("greedy",) if quick else ("greedy", "max-min"))
        for run in repeated(f"elastic/{policy}/{n_jobs}/0", 1 if quick else 2)
    ]


def published(*, quick: bool) -> list[Run]:
    """Simulate the jobs of the published simulators, under the nearest policy."""
    return [
        {**run, "against": one.name}
        for i, one in enumerate(PUBLISHED if has_data() else ())
        for run in repeated(f"published/{i}", 1 if quick else 5)
    ]


# What it comes to.


def _rigid_section(runs: list[Run]) -> Section:
    cases = by_case(runs)
    rows, targets = [], []
    for name, found in cases.items():
        family, policy, *rest = name.split("/")
        label = f"{policy}, {int(rest[0]):,}, {rest[1]}" if family == "rigid" else f"{policy}, Philly as recorded"
        rows.append(cost_row(label, found))
    largest = {policy: cases.get(f"rigid/{policy}/{SIZES[-1]}/0") for policy in RIGID}
    for policy, large in largest.items():
        small = cases[f"rigid/{policy}/{SIZES[-2]}/0"]
        targets += _growth_targets(policy, small, large) if large else []
    if None in largest.values():
        most = max(per_job(cases[f"rigid/{policy}/{SIZES[-2]}/0"][0]) for policy in RIGID)
        targets.append(Target(f"CPU time of a rigid job, {SIZES[-2]:,} jobs", RIGID_LIMIT, most, TURNS))
    else:
        peak = max(run["rss_mib"] for run in runs)
        targets.append(Target("peak memory, rigid", MEMORY_LIMIT_MIB, peak, "{:.0f} MiB".format))
    return Section("Rigid jobs on 64 nodes of 8 devices", COST_HEADS, rows, targets)


def _growth_targets(policy: str, small: list[Run], large: list[Run]) -> list[Target]:
    ratio = large[0]["turns"] / small[0]["turns"]
    least, most = large[0]["turns"] / small[-1]["turns"], large[-1]["turns"] / small[0]["turns"]
    spread = f"{least:.1f} to {most:.1f} with the spread"
    return [
        Target(f"CPU time of a job, 100,000 jobs under {policy}", RIGID_LIMIT, per_job(large[0]), TURNS),
        Target(f"100,000 jobs over 10,000 under {policy} ({spread})", GROWTH_LIMIT, ratio, TIMES),
    ]


def _elastic_section(runs: list[Run]) -> Section:
    rows, targets = [], []
    for name, found in by_case(runs).items():
        _, policy, n_jobs, seed = name.split("/")
        rows.append(cost_row(f"{policy}, {int(n_jobs):,}, {seed}", found))
        if policy == "greedy":
            text = f"CPU time of a job, {int(n_jobs):,} elastic jobs under greedy"
            targets.append(Target(text, ELASTIC_LIMIT, per_job(found[0]), TURNS))
    return Section("Elastic jobs on 64 nodes of 8 devices, re-allocated at every event", COST_HEADS, rows, targets)


RESULT_HEADS = [
    "simulator, trace: policy", "ours", "jobs", "turns, ours", "CPU s", "µs a turn", "met, theirs", "ours",
    "mean JCT, theirs", "ours", "makespan, theirs", "ours",
]  # fmt: skip


def _published_section(runs: list[Run]) -> Section:
    known = {one.name: one for one in PUBLISHED}
    rows = []
    for found in by_case(runs).values():
        run, one = found[0], known[found[0]["against"]]
        met = run["n_deadlines_met"] if one.met is not None else None
        rows.append([
            one.name, one.ours, str(run["n_jobs"]), _plain(run["turns"]), f"{run['run_s']:.3f}", f"{run['turn_us']:.1f}",
            _plain(one.met), _plain(met), _plain(one.jct_s), _plain(run["jct_mean_s"]), _plain(one.makespan_s),
            _plain(run["makespan_s"]),
        ])  # fmt: skip
    return Section("The published simulators: what comes out", RESULT_HEADS, rows)


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


FAMILIES = (Family(rigid, _rigid_section), Family(elastic, _elastic_section), Family(published, _published_section))


def sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def page(results: Results) -> str:
    models = {(one.simulator, one.theirs): [_who(one), one.same, one.differs] for one in PUBLISHED}
    more = ["", "## What is and what is not the same", ""]
    more += markdown_table(["run", "the same", "not the same"], list(models.values()))
    return page_of(sections(results), results, *more)


def _who(one: Published) -> str:
    return f"{one.simulator}: {one.theirs}, against {one.ours}"


def main() -> int:
    options = parser(__doc__ or "").parse_args()
    runs = {family.name: family.measure(quick=options.quick) for family in FAMILIES}
    targets = report("simulator", {"runs": runs}, sections, page, quick=options.quick)
    return conclude_targets(targets, targets[0], quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
