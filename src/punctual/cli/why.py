"""`punctual why`: the chain behind each grant, from the journal; of running and of ended jobs."""

import json
from typing import Annotated

import typer

from punctual.cli._chain import chain
from punctual.cli._past import job_in, messages_of, some_run

_JOB = "Name of the job or its beginning; left out: the only one that runs, or the last one that ran."


def why(
    job: Annotated[str | None, typer.Argument(help=_JOB)] = None,
    last: Annotated[int, typer.Option(min=1, help="How many of the latest decisions to tell.")] = 10,
    every: Annotated[bool, typer.Option("--all", help="Also tell of new pacing lines; there are many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per decision and line.")] = False,
) -> None:
    """Tell why the job got what it got: reading, demand with its reason, grant asked, grant given."""
    messages = messages_of(some_run(job))
    name = job_in(messages)
    if job is None:
        typer.echo(f"job {name}:", err=True)
    for link in chain(messages, name, every=every)[-last:]:
        if as_json:
            typer.echo(json.dumps({"elapsed_s": link.elapsed_s, "kind": link.kind, "text": link.text, **link.facts}))
        else:
            typer.echo(link.sentence())
