"""`punctual resume`: let a paused job go on."""

from typing import Annotated

import typer

from punctual.cli._completion import open_job_names
from punctual.cli._options import AsJson
from punctual.cli._shown_answer import show_answer
from punctual.runtime.control_client import resume as have_resumed
from punctual.runtime.runs import find_job, open_jobs

_HELP = "Name of the job or its beginning; may be left out if there is only one."


def resume(
    job: Annotated[str | None, typer.Argument(help=_HELP, autocompletion=open_job_names)] = None,
    as_json: AsJson = False,
) -> None:
    """Let a job go on that was paused with `punctual pause`."""
    answer = have_resumed(find_job(job, open_jobs()))
    show_answer(answer, f"{answer['job']}: goes on with what the next plan gives it", as_json=as_json)
