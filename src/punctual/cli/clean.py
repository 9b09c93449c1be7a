"""`punctual clean`: remove the journals and outputs of runs that have ended."""

import time
from collections import Counter
from datetime import datetime
from math import inf
from typing import Annotated

import typer

from punctual.cli._streams import write_line
from punctual.core.errors import InvalidSpec
from punctual.core.units import format_duration
from punctual.daemon.retention import PastRun, RetentionLimits, RunUse, expired, past_runs, remove, use_of
from punctual.request.json_text import json_text
from punctual.request.quantities import parse_duration_s

_KEPT: dict[RunUse, str] = {
    "in use": "in use",
    "interrupted": "interrupted, and could be resumed (`--interrupted` removes them)",
    "ended": "ended, and within the limits",
}


def clean(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove what was last written longer ago: 12h, 7d. [default: 30d]")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all runs that have ended, however new.")] = False,
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also runs whose jobs were interrupted and could be resumed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs that would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run that is removed, and line.")] = False,
) -> None:
    """Remove what ended runs have left: journals and outputs. Runs in use are never touched."""
    runs = past_runs()
    uses = {past.name: use_of(past.run) for past in runs}
    allowed: set[RunUse] = {"ended", "interrupted"} if interrupted else {"ended"}
    beyond = expired(runs, _limits(older_than, every=every), time.time())
    chosen = [past for past in beyond if uses[past.name] in allowed]
    removed = chosen if dry_run else [past for past in chosen if remove(past)]
    if as_json:
        for past in removed:
            told = {"run": past.name, "bytes": past.n_bytes, "written_wall": _written_wall(past)}
            write_line(json_text(told | {"removed": not dry_run}))
        return
    for past in removed:
        write_line(f"{past.name:<32} {_size(past.n_bytes):>9}  {_age(past)} old")
    verb = "would be removed" if dry_run else "removed"
    write_line(f"{_runs(len(removed))} {verb}, {_size(sum(past.n_bytes for past in removed))} freed")
    names = {past.name for past in removed}
    for use, n_runs in Counter(use for name, use in uses.items() if name not in names).items():
        write_line(f"{_runs(n_runs)} kept: {_KEPT[use]}")


def _limits(older_than: str | None, *, every: bool) -> RetentionLimits:
    if every and older_than is not None:
        raise InvalidSpec(
            "`--all` and `--older-than` must not be given together", f"both, with '{older_than}'", "`punctual clean`",
            "Leave one of them out.",
        )  # fmt: skip
    if every:
        return RetentionLimits(age_s=-inf)
    if older_than is None:
        return RetentionLimits()
    return RetentionLimits(age_s=parse_duration_s(older_than), n_runs=inf, n_bytes=inf)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _age(past: PastRun) -> str:
    return format_duration(max(0.0, time.time() - past.written_at)) if past.written_at > 0 else "of unknown age,"


def _written_wall(past: PastRun) -> str | None:
    return datetime.fromtimestamp(past.written_at).astimezone().isoformat() if past.written_at > 0 else None


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"
