"""Measure what simulations cost in CPU time and memory, how that grows, and what comes out beside the published simulators on the same jobs.

Every simulation runs in a fresh process. CPU seconds are those of that process from when everything is imported:
reading the trace, making the jobs, simulating, measuring. Targets are turns of the reference, which is measured before and
after in the same process (`_reference.py`). The table has the best of the repetitions and the worst, because neighbours on
the same core make a process up to twice as expensive.
"""

import json
import subprocess
import sys
from functools import partial
from math import log
from pathlib import Path

from _common import Results, markdown_table
from _published import PUBLISHED, has_data
from _reference import TURNS
from _report import Column, Family, Run, Section, Target, grouped, measured_of, page_of, run, sections_of, table_of

HERE = Path(__file__).parent
RIGID = ("fifo", "shortest-remaining")
SIZES = (1_000, 10_000, 100_000)
#: The targets: turns of the reference for a rigid job (of 100,000) and for an elastic one (of 10,000), MiB.
RIGID_LIMIT, ELASTIC_LIMIT, MEMORY_LIMIT_MIB = 100.0, 3_000.0, 1536.0
#: Ten times the jobs at n log n.
GROWTH_LIMIT = 10 * log(100_000) / log(10_000)

TIMES, COUNT = "{:.1f}x".format, "{:,.0f}".format


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
    return {name: sorted(found, key=lambda one: one["turns"]) for (name,), found in grouped(runs, "name").items()}


def per_job(one: Run) -> float:
    """Turns of the reference."""
    return float(one["turns"] / one["n_jobs"])


def costs_of(cases: dict[str, list[Run]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: the best of the repetitions of a case, and the worst."""
    runs = []
    for name, found in cases.items():
        family, policy, *rest = name.split("/")
        label = f"{policy}, Philly as recorded" if family == "philly" else f"{policy}, {int(rest[0]):,}, {rest[1]}"
        more = {
            "best": per_job(found[0]),
            "worst": per_job(found[-1]),
            "peak_mib": max(one["rss_mib"] for one in found),
        }
        runs.append({**found[0], **more, "label": label})
    columns = [
        Column("jobs", "n_jobs", COUNT), Column("turns a job, best", "best", "{:.1f}".format), Column("worst", "worst", "{:.1f}".format),
        Column("CPU s", "run_s", "{:.2f}".format), Column("µs a turn", "turn_us", "{:.1f}".format),
        Column("imports, s", "import_s", "{:.2f}".format), Column("MiB", "peak_mib", "{:.0f}".format), Column("plans", "n_rounds", COUNT),
        Column("devices in use", "granted_device_frac", "{:.0%}".format), Column("mean JCT, s", "jct_mean_s", COUNT),
    ]  # fmt: skip
    return table_of(runs, {"policy, jobs, seed": "label"}, columns)


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
        one
        for policy in (("greedy",) if quick else ("greedy", "max-min"))
        for one in repeated(f"elastic/{policy}/{n_jobs}/0", 1 if quick else 2)
    ]


def published(*, quick: bool) -> list[Run]:
    """Simulate the jobs of the published simulators, under the nearest policy."""
    return [
        {**found, "against": one.name}
        for i, one in enumerate(PUBLISHED if has_data() else ())
        for found in repeated(f"published/{i}", 1 if quick else 5)
    ]


# What it comes to.


def _rigid_section(runs: list[Run]) -> Section:
    cases = by_case(runs)
    largest = {policy: cases.get(f"rigid/{policy}/{SIZES[-1]}/0") for policy in RIGID}
    smaller = {policy: cases[f"rigid/{policy}/{SIZES[-2]}/0"] for policy in RIGID}
    targets = [
        target
        for policy, large in largest.items()
        if large
        for target in _growth_targets(policy, smaller[policy], large)
    ]
    if None in largest.values():
        most = max(per_job(small[0]) for small in smaller.values())
        targets.append(Target(f"CPU time of a rigid job, {SIZES[-2]:,} jobs", RIGID_LIMIT, most, TURNS))
    else:
        peak = max(one["rss_mib"] for one in runs)
        targets.append(Target("peak memory, rigid", MEMORY_LIMIT_MIB, peak, "{:.0f} MiB".format))
    return Section("Rigid jobs on 64 nodes of 8 devices", *costs_of(cases), targets)


def _growth_targets(policy: str, small: list[Run], large: list[Run]) -> list[Target]:
    ratio = large[0]["turns"] / small[0]["turns"]
    least, most = large[0]["turns"] / small[-1]["turns"], large[-1]["turns"] / small[0]["turns"]
    spread = f"{least:.1f} to {most:.1f} with the spread"
    return [
        Target(f"CPU time of a job, 100,000 jobs under {policy}", RIGID_LIMIT, per_job(large[0]), TURNS),
        Target(f"100,000 jobs over 10,000 under {policy} ({spread})", GROWTH_LIMIT, ratio, TIMES),
    ]


def _elastic_section(runs: list[Run]) -> Section:
    cases = by_case(runs)
    name, found = next((name, found) for name, found in cases.items() if name.startswith("elastic/greedy/"))
    text = f"CPU time of a job, {int(name.split('/')[2]):,} elastic jobs under greedy"
    target = Target(text, ELASTIC_LIMIT, per_job(found[0]), TURNS)
    return Section("Elastic jobs on 64 nodes of 8 devices, re-allocated at every event", *costs_of(cases), [target])


def _published_section(runs: list[Run]) -> Section:
    known, rows = {one.name: one for one in PUBLISHED}, []
    for best in (found[0] for found in by_case(runs).values()):
        one = known[best["against"]]
        met = None if one.met is None else best["n_deadlines_met"]
        theirs = {"their_met": one.met, "our_met": met, "their_jct": one.jct_s, "their_end": one.makespan_s}
        rows.append({**best, "ours": one.ours, **theirs})
    columns = [
        Column("ours", "ours", of=max), Column("jobs", "n_jobs"), Column("turns, ours", "turns", COUNT),
        Column("CPU s", "run_s", "{:.3f}".format), Column("µs a turn", "turn_us", "{:.1f}".format), Column("met, theirs", "their_met", COUNT),
        Column("ours", "our_met", COUNT), Column("mean JCT, theirs", "their_jct", COUNT), Column("ours", "jct_mean_s", COUNT),
        Column("makespan, theirs", "their_end", COUNT), Column("ours", "makespan_s", COUNT),
    ]  # fmt: skip
    table = table_of(rows, {"simulator, trace: policy": "against"}, columns)
    return Section("The published simulators: what comes out", *table)


FAMILIES = (Family(rigid, _rigid_section), Family(elastic, _elastic_section), Family(published, _published_section))


def sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def page(results: Results) -> str:
    models = {
        (one.simulator, one.theirs): [f"{one.simulator}: {one.theirs}, against {one.ours}", one.same, one.differs]
        for one in PUBLISHED
    }
    more = ["", "## What is and what is not the same", ""]
    more += markdown_table(["run", "the same", "not the same"], list(models.values()))
    return page_of(sections(results), results, *more)


if __name__ == "__main__":
    sys.exit(run("simulator", __doc__, partial(measured_of, FAMILIES), sections, page))
