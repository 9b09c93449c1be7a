"""`punctual set`: change what is declared about a job while it works."""

from typing import Annotated

import typer

from punctual.cli._options import AsJson, OpenJob
from punctual.cli._shown_answer import show_answer
from punctual.cli._words import cores as told_cores
from punctual.core.errors import InvalidSpec
from punctual.runtime.control_client import change
from punctual.runtime.runs import open_job
from punctual.runtime.spec_change import SpecChange


def set(
    job: OpenJob = None,
    weight: Annotated[float | None, typer.Option(help="How much it counts against others, above 0.")] = None,
    cores: Annotated[str | None, typer.Option(help="Least and most cores, 0.5..2, or the most alone, 2.")] = None,
    workers: Annotated[str | None, typer.Option(metavar="A..B", help="Least and most workers.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="As `punctual deadline` takes it: 90s, +10m, 18:00, none.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a job's weight, cores, workers or deadline while it works."""
    if (weight, cores, workers, deadline) == (None, None, None, None):
        raise InvalidSpec(
            "`punctual set` must be told what to change",
            "nothing",
            "the command line",
            "Give `--weight`, `--cores`, `--workers` or `--deadline`.",
        )
    changes = SpecChange.written(weight=weight, cores=cores, workers=workers)
    answer = change(open_job(job), changes, when=deadline)
    may_have = f"{told_cores(answer['floor_cores'])} to {told_cores(answer['ceiling_cores'])}"
    if answer["workers"] is not None:
        may_have = "{} to {} workers".format(*answer["workers"])
    show_answer(answer, f"{answer['job']}: weight {answer['weight']:g}, may have {may_have}", as_json=as_json)
