"""`punctual pause`: have a job hold nothing for a while."""

from typing import Annotated

import typer

from punctual.cli._options import AsJson, OpenJob
from punctual.cli._shown_answer import show_answer
from punctual.runtime.control_client import pause as have_paused
from punctual.runtime.runs import open_job


def pause(
    job: OpenJob = None,
    why: Annotated[str, typer.Option(help="Why, for whoever asks `punctual why`.")] = "",
    as_json: AsJson = False,
) -> None:
    """Have a job hold nothing until `punctual resume`; it keeps its memory, and its deadline goes on counting."""
    answer = have_paused(open_job(job), why)
    show_answer(answer, f"{answer['job']}: paused until `punctual resume {answer['job']}`", as_json=as_json)
