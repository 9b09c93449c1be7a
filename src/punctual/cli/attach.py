"""`punctual attach`: follow a job again."""

from typing import Annotated

import typer

from punctual.cli._allocation import note_end
from punctual.cli._completion import open_job_names
from punctual.cli._drive import OutputOptions, drive
from punctual.cli._options import AsJson, Quiet, ReportFile, Strict
from punctual.core.errors import InvalidSpec
from punctual.daemon.runs import find_job, known_jobs

_JOB = "Name of the job or its beginning; may be left out if there is only one."


def attach(
    job: Annotated[str | None, typer.Argument(help=_JOB, autocompletion=open_job_names)] = None,
    as_json: AsJson = False,
    strict: Strict = False,
    report: ReportFile = None,
    quiet: Quiet = False,
) -> None:
    """Follow a job as the command does that started it. A job without a daemon gets one, if it was interrupted too."""
    known = known_jobs()
    named = [each for each in known if each.title == job] or known  # a full name is no beginning of another job's
    is_open = [each for each in named if each.steering not in ("ended", "elsewhere")]
    target = find_job(
        job, is_open if job is None or any(each.title.startswith(job or "") for each in is_open) else named
    )
    if target.steering in ("ended", "elsewhere"):
        machine = target.run.machine()
        raise InvalidSpec(
            "the job must be an open one of this machine",
            "one that has ended" if machine is None else f"one of machine '{machine}'",
            f"job '{target.title}'",
            f"See how it ended: `punctual show {target.title}`.",
        )
    output = OutputOptions(as_json=as_json, strict=strict, report=report, quiet=quiet)
    note_end()
    raise typer.Exit(drive(lambda follower: follower.follow(target.run, target.job), [target.job], output))
