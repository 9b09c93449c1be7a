"""`punctual attach`: steer a job again whose command has died."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._drive import EXIT_INTERRUPTED, Manner, drive
from punctual.cli._takeover import KeptJob, orphan_of
from punctual.core.errors import InvalidSpec
from punctual.runtime.paths import Run, find_run, known_runs, unsteered_runs

_JOB = "Name of the job or its beginning; may be left out if there is only one that nobody steers."


def attach(
    job: Annotated[str | None, typer.Argument(help=_JOB)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 75 if the deadline is missed.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")] = False,
) -> None:
    """Take over a job whose `punctual run` has died, and bring it to its deadline."""
    try:
        orphan = orphan_of(_unsteered(job))
    except KeyboardInterrupt:  # nothing was asked of the job yet
        raise typer.Exit(EXIT_INTERRUPTED) from None
    manner = Manner(as_json=as_json, strict=strict, report=report, quiet=quiet)
    raise typer.Exit(drive(partial(KeptJob, orphan), manner))


def _unsteered(text: str | None) -> Run:
    """The job that `text` names or begins, of those that nobody steers; None: the only one."""
    unsteered = unsteered_runs()
    if any(run.job.startswith(text or "") for run in unsteered):
        return find_run(text, unsteered)
    if text is None:
        raise _refused("none", "the runs of this user")
    raise _steered_or_ended(find_run(text, known_runs()))


def _steered_or_ended(run: Run) -> InvalidSpec:
    where = f"job '{run.job}'"
    if run.is_live():
        return _refused(f"one that process {run.record()['pid']} steers", where)
    machine = run.machine()
    return _refused("one that has ended" if machine is None else f"one of machine '{machine}'", where)


def _refused(got: str, where: str) -> InvalidSpec:
    return InvalidSpec(
        "there must be a running job of this machine that nobody steers", got, where,
        "See `punctual ps` for what runs, and whether it is steered.",
    )  # fmt: skip
