"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._completion import job_names, open_job_names

#: A job that has not ended, and any job.
OpenJob = Annotated[
    str | None,
    typer.Argument(
        help="Name of the job or its beginning; may be left out if there is only one.", autocompletion=open_job_names
    ),
]
AnyJob = Annotated[
    str | None,
    typer.Argument(
        help="Name of the job or its beginning; left out: the only one that runs, or the last one that ran.",
        autocompletion=job_names,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 75 if the deadline is missed.")]
ReportFile = Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")]
