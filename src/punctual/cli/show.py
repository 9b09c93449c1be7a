"""`punctual show`: all facts about one job."""

import shlex
from datetime import datetime
from typing import Annotated, Any

import typer

from punctual.cli._options import AnyJob
from punctual.cli._streams import write_line
from punctual.cli._words import clock, cost
from punctual.cli.ps import KEYS, remedy
from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus, StatusBoard
from punctual.core.units import format_bytes
from punctual.daemon.control_client import standings
from punctual.daemon.host_executor import HERE
from punctual.daemon.runs import KnownJob, job_to_tell_of
from punctual.daemon.status_reader import forecast_in, standing
from punctual.journal.boot import clock_shift
from punctual.request.deadlines import Now
from punctual.request.json_text import json_text


def show(
    job: AnyJob = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show everything about a job."""
    target = job_to_tell_of(job)
    told = next((each for each in standings(target.run) if each["job"] in (target.job, target.title)), {})
    now, status = _status(target, told)
    fields = _fields(target, told, status, now)
    if as_json:
        write_line(json_text(fields))
        return
    write_line(fields["headline"])
    for name, text in _rows(fields, status, now):
        write_line(f"{name:<10} {text}".rstrip())


def _status(target: KnownJob, told: dict[str, Any]) -> tuple[Now, JobStatus]:
    """Return the present on the clock of the job's journal, and the job's status by journal and host."""
    board = StatusBoard(lambda _: forecast_in(told))
    with target.run.read_journal() as journal:
        for _, message in journal.read_of([target.job], journal.period_of(target.job)[0]):
            board.fold(message)
        now = Now.read(clock_shift(journal.clock))
    if not board.knows(target.job):
        raise InvalidSpec(
            "the job must be in its journal",
            "one that was accepted just now",
            f"job '{target.title}'",
            "Try again.",
        )
    return now, board.job(target.job)


def _fields(target: KnownJob, told: dict[str, Any], status: JobStatus, now: Now) -> dict[str, Any]:
    return {
        **dict.fromkeys(KEYS),
        **standing(status, now),
        "controller": status.spec.controller,
        "promised_until_wall": None,
        "spent_usd": target.run.end_facts(target.job).get("spent_usd"),
        **told,
        "job": target.title,
        **_unsteered(target, told, status),
        "cwd": None if status.program is None else status.program.cwd,
        "weight": status.spec.weight,
        "floor_cores": status.spec.floor.cores,
        "ceiling_cores": status.spec.ceiling.cores,
        "n_attempts": status.n_attempts,
        "exit_code": status.exit_code,
        "reason": None if status.reason is None else {"code": status.reason.code, "text": status.reason.text},
        "warnings": dict(status.warnings),
        "output": str(target.run.log(target.job)),
        "journal": str(target.run.journal),
        "host": target.run.name,
    }


def _unsteered(target: KnownJob, told: dict[str, Any], status: JobStatus) -> dict[str, Any]:
    """Return the state and the headline of a job of which no host tells; empty: one does, or the job has ended."""
    if status.ended or "host" in told:
        return {}
    state = str(told.get("state", target.steering))
    return {"state": state, "headline": remedy({**told, "job": target.title, "state": state})}


def _rows(known: dict[str, Any], status: JobStatus, now: Now) -> list[tuple[str, str]]:
    from punctual.cli._view import view_rows

    state = known["state"] + (f": {status.cause}" if status.cause else "")
    bounds = f"{known['floor_cores']:g} to {known['ceiling_cores']:g} cores, weight {known['weight']:g}"
    return [
        ("job", known["job"]),
        ("state", state),
        ("program", shlex.join(known["argv"])),
        ("folder", known["cwd"] or "-"),
        ("submitted", clock(now.wall_of(status.submitted_at))),
        *((name or "progress", text.plain) for name, text in view_rows(status, now)),
        ("bounds", bounds),
        ("memory", _memory(status)),
        *([] if known["spent_usd"] is None else [("cost", cost(known["spent_usd"], known["budget_usd"]))]),
        *([("nodes", ", ".join(known["nodes"]))] if set(known["nodes"]) - {HERE} else []),
        ("promised", _promised(known["promised_until_wall"])),
        (
            "steered by",
            f"controller {known['controller']}, actuator {known.get('actuator') or '-'}, host {known['host']}",
        ),
        *(("warning", text) for text in status.warnings.values()),
        ("output", known["output"]),
        ("journal", known["journal"]),
    ]


def _memory(status: JobStatus) -> str:
    asked_bytes, peak_bytes = status.spec.ceiling.memory_bytes, status.peak_memory_bytes
    parts = [
        f"{format_bytes(status.memory_bytes)} now" if status.memory_bytes else "",
        f"{format_bytes(peak_bytes)} at most" if peak_bytes else "",
        f"{format_bytes(asked_bytes)} asked for" if asked_bytes else "",
    ]
    return ", ".join(filter(None, parts)) or "-"


def _promised(until_wall: str | None) -> str:
    return "nothing" if until_wall is None else f"to be done by {clock(datetime.fromisoformat(until_wall))}"
