"""`punctual clean`: remove what ended jobs have left."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import Annotated

import typer

from punctual.cli._streams import write_json, write_line
from punctual.core.errors import InvalidSpec
from punctual.core.units import counted, span
from punctual.daemon.machine_providers import abandoned
from punctual.daemon.retention import PastJob, RetentionLimits, expired, past_jobs, remove
from punctual.daemon.runs import Steering, unreadable
from punctual.journal.errors import StoreUnreachable
from punctual.request.quantities import parse_duration_s

_KEPT: dict[Steering, str] = {
    "steered": "in use",
    "unsteered": "in use",
    "elsewhere": "in use",
    "interrupted": "interrupted, and could be resumed (`--interrupted` removes them)",
    "ended": "ended, and within the limits",
}


def clean(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove jobs that ended longer ago: 12h, 7d. [default: 30d]")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all jobs that have ended, however new.")] = False,
    interrupted: Annotated[
        bool, typer.Option("--interrupted", help="Also jobs that were interrupted and could be resumed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the jobs that would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job that is removed, and line.")] = False,
) -> None:
    """Remove what ended jobs have left: their records and outputs, and machines of pools that no daemon has. Jobs in use are never touched."""
    jobs = past_jobs()
    allowed: set[Steering] = {"ended", "interrupted"} if interrupted else {"ended"}
    beyond = expired(jobs, _limits(older_than, every=every), time.time())
    chosen = [past for past in beyond if past.job.steering in allowed]
    removed = chosen if dry_run else remove(chosen)
    _tell_removed(jobs, removed, dry_run=dry_run, as_json=as_json)
    for error in unreadable():
        if isinstance(error, StoreUnreachable):
            write_line(f"punctual: jobs are kept, because they are not known: {error}", err=True)
    for fleet in abandoned():  # last: also those that waited with jobs that are removed now
        done = "would be ended" if dry_run else f"{', '.join(fleet.end()) or 'none was left'}; ended"
        write_line(f"machines of '{fleet.run.name}' that no daemon has: {done}", err=True)


def _tell_removed(jobs: Sequence[PastJob], removed: Sequence[PastJob], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        for past in removed:
            told = {"job": past.job.title, "bytes": round(past.n_bytes), "written_wall": _written_wall(past)}
            write_json(told | {"removed": not dry_run})
        return
    for past in removed:
        write_line(f"{past.job.title:<32} {_size(past.n_bytes):>9}  {_age(past)} old")
    verb = "would be removed" if dry_run else "removed"
    write_line(f"{counted(len(removed), 'job')} {verb}, {_size(sum(past.n_bytes for past in removed))} freed")
    gone = {past.job for past in removed}
    for why, n_jobs in Counter(_KEPT[past.job.steering] for past in jobs if past.job not in gone).items():
        write_line(f"{counted(n_jobs, 'job')} kept: {why}")


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
    return RetentionLimits(age_s=parse_duration_s(older_than, "`--older-than`"), n_jobs=inf, n_bytes=inf)


def _age(past: PastJob) -> str:
    return span(max(0.0, time.time() - past.written_at)) if past.written_at > 0 else "of unknown age,"


def _written_wall(past: PastJob) -> str | None:
    return datetime.fromtimestamp(past.written_at).astimezone().isoformat() if past.written_at > 0 else None


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"
