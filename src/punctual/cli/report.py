"""`punctual report`: the plot of a run from its journal."""

from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._past import job_in, messages_of, some_run
from punctual.cli._plot import check_can_plot
from punctual.cli._report import draw, paragraph
from punctual.metrics.run import summarize

_JOB = "Name of the job or its beginning; left out: the only one that runs, or the last one that ran."


def report(
    job: Annotated[str | None, typer.Argument(help=_JOB)] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")] = None,
) -> None:
    """Say what a run came to, and draw it."""
    if out is not None:
        check_can_plot(out, "--out")
    messages = messages_of(some_run(job))
    name = job_in(messages)
    if job is None:
        typer.echo(f"job {name}:", err=True)
    typer.echo(paragraph(summarize(messages, name)))
    if out is not None:
        draw(out, messages, name)
        typer.echo(f"report: {out}")
