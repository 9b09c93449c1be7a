"""`punctual ps`: what runs, and how it stands against its deadline."""

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from punctual.cli._door import status
from punctual.cli._words import clock, short
from punctual.runtime.control_socket import ControlFailed
from punctual.runtime.paths import live_runs, unsteered_runs

#: The command that steered the job was killed; it runs on at full speed.
UNSTEERED = "unsteered"

_COLUMNS = ("JOB", "STATE", "PROGRESS", "DEADLINE", "TIME LEFT", "FORECAST", "GRANT", "ACTUATOR")


def ps(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job and line.")] = False,
) -> None:
    """List the running jobs."""
    standings = _standings()
    if as_json:
        for standing in standings:
            typer.echo(json.dumps(standing))
        return
    rows = [_COLUMNS, *(_row(standing) for standing in standings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    for standing in standings:
        if standing["state"] == UNSTEERED:
            job = standing["job"]
            typer.echo(f"nobody steers {job}: its command has died. Take it over: punctual attach {job}", err=True)


def _standings() -> list[dict[str, Any]]:
    found = []
    for run in live_runs():
        try:
            found.append(status(run))
        except ControlFailed:  # it is just starting, or it ended between the listing and the question
            continue
    return found + [{"job": run.job, "state": UNSTEERED} for run in unsteered_runs()]


def _row(standing: dict[str, Any]) -> tuple[str, ...]:
    if standing["state"] == UNSTEERED:
        return (standing["job"], UNSTEERED, *["-"] * (len(_COLUMNS) - 2))
    left_s = standing["left_s"]
    return (
        standing["job"],
        standing["state"],
        "-" if standing["progress_frac"] is None else f"{standing['progress_frac']:.1%}",
        "-" if left_s is None else clock(datetime.fromisoformat(standing["deadline_wall"])),
        "-" if left_s is None else ("-" if left_s < 0 else "") + short(abs(left_s)),
        _forecast(standing),
        _grant(standing),
        standing["actuator"],
    )


def _grant(standing: dict[str, Any]) -> str:
    n_workers = standing["n_workers"]
    return f"{n_workers} worker{'s' * (n_workers != 1)}" if n_workers else f"{standing['grant_cores']:.2f}"


def _forecast(standing: dict[str, Any]) -> str:
    """When it is expected to land, against the deadline."""
    forecast_s, deadline_s = standing["forecast_s"], standing["deadline_s"]
    if standing["landed"]:
        return "landed"
    if forecast_s is None or deadline_s is None:
        return "-"
    side = "late" if forecast_s > deadline_s else "early"
    return f"{short(abs(forecast_s - deadline_s))} {side}"
