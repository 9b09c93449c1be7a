"""Measure what a host costs that only waits: CPU time, memory, its journal, its start, the time from a report to a grant.

`bench/host.md` says how. Targets for CPU time are turns of the reference (`_reference.py`), which is measured in the same process
as a start, and before and after the live hosts. From a report to a grant it is milliseconds: the time is what a job waits, and
most of it is the kernel's and the disk's.
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
import _host_live
from _common import Results, parser
from _reference import TURNS, turn_s
from _report import Column, Section, Target, conclude_report, table_of

N_JOBS = 50
#: Turns of the reference a second, all jobs together; MB; ms.
CPU_LIMIT, MEMORY_LIMIT_MB, GRANT_LIMIT_MS = 15_000.0, 150.0, 50.0
#: Reports per job and second of many jobs against those of one.
REPORTS_LEAST = 0.97
#: MB; turns of the reference.
JOURNAL_LIMIT_MB, START_LIMIT = 5.0, 1_000_000.0

PERCENT, MEGABYTES, MILLISECONDS = "{:.2%}".format, "{:.1f} MB".format, "{:.1f} ms".format
TIMES, COUNT = "{:.3f}x".format, "{:,.0f}".format


# What is measured.


def live(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    window_s = 8.0 if options.quick else 60.0
    before_s = turn_s()
    runs = _host_live.measure(N_JOBS, folder, window_s, quick=options.quick)
    each_s = (before_s + turn_s()) / 2
    return [{**asdict(run), "turn_us": each_s * 1e6} for run in runs]


def journal(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    return [asdict(_host_journals.day(folder, drift_s, 4.0 if options.quick else 24.0)) for drift_s in (300.0, 60.0)]


def start(options: Namespace, folder: Path) -> list[dict[str, Any]]:
    n_messages = 20_000 if options.quick else 1_000_000
    return [asdict(found) for found in _host_journals.starts(folder, N_JOBS, n_messages, 3 if options.quick else 9)]


MEASURES: dict[str, Callable[[Namespace, Path], list[dict[str, Any]]]] = {
    "live": live, "journal": journal, "start": start,
}  # fmt: skip


# What it comes to.


def sections(results: Results) -> list[Section]:
    return [*_live_sections(results["live"]), _journal_section(results["journal"]), _start_section(results["start"])]


def _live_sections(kept: list[dict[str, Any]]) -> list[Section]:
    many, single = runs = [_host_live.LiveRun.of(run) for run in kept]
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
    name = f"A host with live jobs, over {many.window_s:.0f} s"
    heads = ["processes", "number", "CPU, of one core", "resident, MB"]
    return [Section(name, heads, rows, targets), _grants_section(many)]


def _grants_section(run: _host_live.LiveRun) -> Section:
    rows = []
    for label, values in (("the report it rests on", run.report_s), ("the moved deadline", run.change_s)):
        in_order = sorted(1e3 * value for value in values)
        shown = [in_order[0], in_order[len(in_order) // 2], in_order[int(0.95 * len(in_order))], in_order[-1]]
        rows.append([label, f"{len(in_order)} of {run.n_moved}", *(f"{value:.1f}" for value in shown)])
    heads = ["to a changed grant from", "deadlines that changed one", "least, ms", "median", "95 %", "most"]
    median_ms = _host_live.median_ms(run.report_s)
    target = Target("from a report to a changed quota, median", GRANT_LIMIT_MS, median_ms, MILLISECONDS)
    return Section("From a report to a grant", heads, rows, [target])


def _journal_section(days: list[dict[str, Any]]) -> Section:
    columns = [
        Column("hours", "hours", "{:.0f}".format), Column("messages", "n_messages", COUNT), Column("reports", "n_reports", COUNT),
        Column("grants changed", "n_grants", COUNT), Column("MB then", "mb", "{:.2f}".format), Column("MB a day", "mb_day", "{:.2f}".format),
    ]  # fmt: skip
    target = Target("journal of a job that just runs, a day", JOURNAL_LIMIT_MB, days[0]["mb_day"], MEGABYTES)
    table = table_of(days, {"its cost of a step changes every, s": "drift_s"}, columns)
    return Section("The journal of one job with a day to its deadline", *table, [target])


def _start_section(kept: list[dict[str, Any]]) -> Section:
    starts = [_host_journals.Start(**found) for found in kept]
    middle = starts[len(starts) // 2]
    three = {"best": starts[0], "median": middle, "worst": starts[-1]}
    runs = [{"start": name, **asdict(one), "total_s": one.total_s, "turns": one.turns} for name, one in three.items()]
    columns = [
        Column("jobs", "n_jobs", COUNT), Column("messages", "n_messages", COUNT), Column("read again", "n_read", COUNT),
        Column("imports, s", "import_s", "{:.2f}".format), Column("restoring, s", "restore_s", "{:.2f}".format),
        Column("together, s", "total_s", "{:.2f}".format), Column("turns of the reference", "turns", COUNT),
        Column("µs a turn", "turn_us", "{:.1f}".format),
    ]  # fmt: skip
    target = Target(f"start behind {starts[0].n_messages:,} messages, median", START_LIMIT, middle.turns, TURNS)
    return Section("A start behind many messages", *table_of(runs, {"start": "start"}, columns), [target])


def main() -> int:
    options = parser("What a host costs.").parse_args()
    results: Results = {"took_s": {}}
    for name, measure in MEASURES.items():
        begun_at = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="punctual-bench-") as folder:
            results[name] = measure(options, Path(folder))
        results["took_s"][name] = time.monotonic() - begun_at
    return conclude_report("host", results, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
