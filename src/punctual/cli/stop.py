"""`punctual stop`: end a job, after a checkpoint if it can make one."""

from typing import Annotated

import typer

from punctual.cli._door import running
from punctual.cli._door import stop as ask_to_stop

_HELP = "Name of the job or its beginning; may be left out if only one runs."


def stop(job: Annotated[str | None, typer.Argument(help=_HELP)] = None) -> None:
    """Ask a running job to make a checkpoint, if it can, and end."""
    answer = ask_to_stop(running(job))
    typer.echo(f"{answer['job']}: asked to stop")
