"""`punctual deadline`: change your mind while the job runs."""

from datetime import datetime
from typing import Annotated

import typer

from punctual.cli._completion import open_job_names
from punctual.cli._options import AsJson
from punctual.cli._words import clock, span
from punctual.cli.steer import show_answer
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import change
from punctual.daemon.runs import open_job

#: `-30s` and `-2h` are amounts, not options.
SETTINGS = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


def deadline(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB] WHEN",
            help="WHEN is 90s (from now), +10m or -30s (moves the present deadline), 18:00, or none. "
            "JOB may be left out if only one runs, and may be shortened.",
            autocompletion=open_job_names,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change the deadline of a running job, or remove it."""
    if len(words) > 2:
        raise InvalidSpec(
            "`punctual deadline` takes a job and a time", f"{len(words)} words", f"'{' '.join(words)}'",
            "Put a time with a space in quotes: `punctual deadline JOB '2026-12-01 18:00'`.",
        )  # fmt: skip
    answer = change(open_job(words[0] if len(words) == 2 else None), when=words[-1])
    line = f"{answer['job']}: it has no deadline any more"
    if answer["deadline_wall"] is not None:
        wall = clock(datetime.fromisoformat(answer["deadline_wall"]))
        line = f"{answer['job']}: the deadline is now {wall}, in {span(answer['left_s'])}"
    show_answer(answer, line, as_json=as_json)
