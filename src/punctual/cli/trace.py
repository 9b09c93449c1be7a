"""`punctual trace`: describe a trace file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._streams import write_json, write_line
from punctual.core.units import HOUR_S, counted, format_duration
from punctual.sim.traces import BadRow, read
from punctual.sim.traces.limits import UNPACKED_GIB_MAX
from punctual.sim.traces.summary import TraceSummary, summarize

#: Most bad rows printed, and most models, kinds of devices and device counts.
_N_SHOWN = 5


def trace(
    file: Annotated[Path, typer.Argument(help="A published trace, plain or compressed by gzip, or a live journal.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be used.")] = False,
    unpacked_gib_max: Annotated[
        float, typer.Option(metavar="GIB", help="The most that a compressed file may hold.")
    ] = UNPACKED_GIB_MAX,
) -> None:
    """Describe a trace file: format, jobs, unusable rows."""
    found = read(file, on_bad="fail" if strict else "skip", unpacked_gib_max=unpacked_gib_max)
    summary = summarize(found)
    if as_json:
        rows = [asdict(row) for row in found.bad.rows]
        write_json({"file": str(file), **asdict(summary), "bad_rows": rows})
        return
    lines = list(_lines(summary))
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        write_line(f"{label:<{width}}  {text}")
    for line in _bad_lines(found.bad.rows, summary.n_bad_rows):
        write_line(line)


def _lines(summary: TraceSummary) -> Iterator[tuple[str, str]]:
    yield "format", summary.format
    yield "jobs", f"{summary.n_jobs:,}"
    order = "in order of submission" if summary.in_order else "not in order of submission"
    yield "submitted", f"over {format_duration(summary.span_s)}, {order}"
    if summary.n_gpus:
        yield "devices per job", _most_frequent({f"{n:g}": jobs for n, jobs in summary.n_gpus.items()})
    if summary.gpu_s:
        yield "device-hours", f"{summary.gpu_s / HOUR_S:,.0f}"
    yield "durations", _quantiles(summary.durations_s, format_duration)
    yield "deadlines", _deadlines(summary)
    if summary.n_best_effort:
        yield "best-effort", counted(summary.n_best_effort, "job", ",")
    if summary.models:
        yield "models", _most_frequent(summary.models)
    if summary.devices:
        yield "kinds of devices", _most_frequent(summary.devices)
    if summary.n_users:
        yield "users", f"{summary.n_users:,}"
    yield "bad rows", f"{summary.n_bad_rows:,}"


def _deadlines(summary: TraceSummary) -> str:
    if not summary.n_deadlines:
        return "none"
    jobs = counted(summary.n_deadlines, "job", ",")
    return f"{jobs}; times the duration: {_quantiles(summary.slack, '{:.2f}'.format)}" if summary.slack else jobs


def _quantiles(quantiles: Mapping[str, float], text_of: Callable[[float], str]) -> str:
    return ", ".join(f"{name} {text_of(value)}" for name, value in quantiles.items()) or "not said"


def _most_frequent(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} ({n_jobs:,})" for name, n_jobs in ordered[:_N_SHOWN])
    return f"{shown} and {len(ordered) - _N_SHOWN} more" if len(ordered) > _N_SHOWN else shown


def _bad_lines(rows: list[BadRow], n_rows: int) -> Iterator[str]:
    for row in rows[:_N_SHOWN]:
        yield f"  {row}"
    if n_rows > _N_SHOWN:
        yield f"  and {n_rows - _N_SHOWN:,} more"
