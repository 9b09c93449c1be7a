"""Measure what a host costs that only waits: CPU time, memory, its journal, its start, the time from a report to a grant, simulations.

*Live.* A host with fifty jobs that have deadlines, and one that has none, runs in a process of its own, and beside it, at the
same time, one with a single job. The jobs compute for 2 ms in each tenth of a second and have hours left. CPU time is that of all threads of the host's process, from the
kernel's clock of that process; keepers and jobs are processes of their own and are counted by themselves.

*From a report to a grant.* The deadline of each job is moved, one job after another, so that its demand changes. The time counts
from the tick, before the executor reads the job's page and usage, to the instant at which the executor has the new quota
written and read back: reading, the controller's decision, the plan, the journal's transactions and the quota are in it. What
is not: the time until the job is looked at at all, which is up to a tick (2 s where hours are left, 0.5 s in the last minutes)
where nobody moves a deadline. The same from the moved deadline on is beside it.

*Journal and start.* Messages of simulated jobs whose costs keep changing go through the journal and its upkeep in virtual time,
see `_host_journals.py`. The size is that of all files of the journal while it is open. A start is measured in a fresh process,
imports included, behind a host that was killed just before its next snapshot, with fifty jobs at two ticks a second.

*Targets* for CPU time are turns of the reference (`_reference.py`), which is measured in the same process as a start, and
before and after the live hosts. From a report to a grant it is milliseconds: the time is what a job waits, and most of it is
the kernel's and the disk's.

*Simulations.* The same simulations with the code of another checkout (`--before`) and with this one, in turns.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import _host_journals
import _host_live_runs
from _common import Results, parser
from _host_simulations import Compared, compared, ratio_of
from _reference import TURNS, turn_s
from _report import Section, Target, conclude_targets, page_of, report

N_JOBS = 50
#: Turns of the reference a second, all jobs together; MB; ms.
CPU_LIMIT, MEMORY_LIMIT_MB, GRANT_LIMIT_MS = 15_000.0, 150.0, 50.0
#: Reports per job and second of many jobs against those of one.
REPORTS_LEAST = 0.97
#: MB; turns of the reference; ratio.
JOURNAL_LIMIT_MB, START_LIMIT, SIMULATION_LIMIT = 5.0, 1_000_000.0, 1.03

PERCENT, MEGABYTES, MILLISECONDS = "{:.2%}".format, "{:.1f} MB".format, "{:.1f} ms".format
TIMES = "{:.3f}x".format


# What is measured.


def live(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    window_s = 8.0 if options.quick else 60.0
    before_s = turn_s()
    runs = _host_live_runs.measure(N_JOBS, folder, window_s, quick=options.quick, profile=options.profile)
    each_s = (before_s + turn_s()) / 2
    return [{**asdict(run), "turn_us": each_s * 1e6} for run in runs]


def journal(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    return [asdict(_host_journals.day(folder, drift_s, 4.0 if options.quick else 24.0)) for drift_s in (300.0, 60.0)]


def start(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    n_messages = 20_000 if options.quick else 1_000_000
    return [asdict(found) for found in _host_journals.starts(folder, N_JOBS, n_messages, 3 if options.quick else 9)]


def simulations(options: Namespace, _: Path) -> list[dict[str, Any]]:
    if options.before is None:
        return []
    quick = {"rigid/fifo": 1000, "steered/proportional": 1}
    families = quick if options.quick else {"rigid/fifo": 5000, "elastic/greedy": 1000, "steered/proportional": 4}
    n_seeds, n_rounds = (1, 3) if options.quick else (3, 7)
    cases = [f"{family}/{n_jobs}/{seed}" for family, n_jobs in families.items() for seed in range(n_seeds)]
    return [asdict(row) for row in compared(options.before, cases, n_rounds)]


MEASURES: dict[str, Callable[[Namespace, Path], list[dict[str, Any]]]] = {
    "live": live, "journal": journal, "start": start, "simulations": simulations,
}  # fmt: skip


# What it comes to.


def sections(results: Results) -> list[Section]:
    found = [*_live_sections(results["live"]), _journal_section(results["journal"]), _start_section(results["start"])]
    return [*found, *([_simulations_section(results["simulations"])] if results["simulations"] else [])]


def _live_sections(kept: list[dict[str, Any]]) -> list[Section]:
    many, single = runs = [_host_live_runs.LiveRun.of(run) for run in kept]
    rows = []
    for run in runs:
        for kind, usage in run.usage.items():
            label = f"{kind}, {run.n_jobs} job{'s' * (run.n_jobs > 1)}"
            rows.append([label, str(usage.n_processes), PERCENT(usage.cores), f"{usage.rss_mb:.1f}"])
    if many.last_minutes_cores is not None:
        rows.append([f"host, {N_JOBS} jobs in their last minutes", "1", PERCENT(many.last_minutes_cores), "–"])
    reports = many.reports_per_job_s / single.reports_per_job_s if single.n_reports else None
    turns = many.usage["host"].cores / kept[0]["turn_us"] * 1e6
    targets = [
        Target(f"CPU time of a host with {N_JOBS} jobs that run, a second", CPU_LIMIT, turns, TURNS),
        Target("its memory", MEMORY_LIMIT_MB, many.usage["host"].rss_mb, MEGABYTES),
        Target(
            f"reports per job and second, {N_JOBS} jobs over one job", REPORTS_LEAST, reports, TIMES, at_least=True
        ),
    ]  # fmt: skip
    name = f"A host with live jobs, under {many.actuator}, over {many.window_s:.0f} s"
    heads = ["processes", "number", "CPU, of one core", "resident, MB"]
    return [Section(name, heads, rows, targets), _grants_section(many)]


def _grants_section(run: _host_live_runs.LiveRun) -> Section:
    rows = []
    for label, values in (("the report it rests on", run.report_s), ("the moved deadline", run.change_s)):
        in_order = sorted(1e3 * value for value in values)
        shown = [in_order[0], in_order[len(in_order) // 2], in_order[int(0.95 * len(in_order))], in_order[-1]]
        rows.append([label, f"{len(in_order)} of {run.n_moved}", *(f"{value:.1f}" for value in shown)])
    heads = ["to a changed grant from", "deadlines that changed one", "least, ms", "median", "95 %", "most"]
    median_ms = _host_live_runs.median_ms(run.report_s)
    target = Target("from a report to a changed quota, median", GRANT_LIMIT_MS, median_ms, MILLISECONDS)
    return Section("From a report to a grant", heads, rows, [target])


def _journal_section(kept: list[dict[str, Any]]) -> Section:
    days = [_host_journals.Day(**day) for day in kept]
    heads = [
        "its cost of a step changes every", "hours", "messages", "reports", "grants changed", "MB then", "MB a day",
    ]  # fmt: skip
    rows = [
        [
            f"{day.drift_s:.0f} s", f"{day.hours:.0f}", f"{day.n_messages:,}", f"{day.n_reports:,}", f"{day.n_grants:,}",
            f"{day.mb:.2f}", f"{day.mb_day:.2f}",
        ]
        for day in days
    ]  # fmt: skip
    target = Target("journal of a job that just runs, a day", JOURNAL_LIMIT_MB, days[0].mb_day, MEGABYTES)
    return Section("The journal of one job with a day to its deadline", heads, rows, [target])


def _start_section(kept: list[dict[str, Any]]) -> Section:
    starts = [_host_journals.Start(**found) for found in kept]
    heads = [
        "start", "jobs", "messages", "read again", "imports, s", "restoring, s", "together, s", "turns of the reference",
        "µs a turn",
    ]  # fmt: skip
    middle = starts[len(starts) // 2]
    rows = [
        [
            label, str(found.n_jobs), f"{found.n_messages:,}", f"{found.n_read:,}", f"{found.import_s:.2f}",
            f"{found.restore_s:.2f}", f"{found.total_s:.2f}", f"{found.turns:,.0f}", f"{found.turn_us:.1f}",
        ]
        for label, found in (("best", starts[0]), ("median", middle), ("worst", starts[-1]))
    ]  # fmt: skip
    target = Target(f"start behind {starts[0].n_messages:,} messages, median", START_LIMIT, middle.turns, TURNS)
    return Section("A start behind many messages", heads, rows, [target])


def _simulations_section(kept: list[dict[str, Any]]) -> Section:
    rows_found = [Compared(**row) for row in kept]
    heads = ["simulation", "CPU s before", "CPU s now", "ratio", "the same came out"]
    rows = [
        [row.case, f"{row.before_s:.3f}", f"{row.after_s:.3f}", TIMES(row.ratio), "yes" if row.is_same else "no"]
        for row in rows_found
    ]
    targets = []
    for family in dict.fromkeys(row.case.split("/")[0] for row in rows_found):
        of_family = [row for row in rows_found if row.case.startswith(f"{family}/")]
        spread = f"{min(row.ratio for row in of_family):.2f} to {max(row.ratio for row in of_family):.2f}"
        text = f"CPU time of simulations, now over before, {family} ({spread})"
        targets.append(Target(text, SIMULATION_LIMIT, ratio_of(of_family), TIMES))
    return Section("Simulations before and now", heads, rows, targets)


def page(results: Results) -> str:
    return page_of(sections(results), results)


def main() -> int:
    options = _options()
    results: Results = {"took_s": {}}
    for name, measure in MEASURES.items():
        begun_at = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="punctual-bench-") as folder:
            results[name] = measure(options, Path(folder))
        results["took_s"][name] = time.monotonic() - begun_at
    targets = report("host", results, sections, page, quick=options.quick)
    return conclude_targets(targets, targets[0], quick=options.quick)


def _options() -> Namespace:
    made = parser("What a host costs.")
    made.add_argument(
        "--before", type=Path, help="checkout of an earlier revision, whose simulations are run in turns with ours"
    )
    made.add_argument("--profile", type=Path, help="where a profile of the host's thread is written; makes it dearer")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
