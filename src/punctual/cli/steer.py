"""`punctual deadline`, `set`, `pause`, `resume` and `stop`: commands that change one job, and show its host's answer."""

from datetime import datetime
from typing import Annotated

import typer

from punctual.cli._options import AsJson, OpenJob, open_job_names
from punctual.cli._streams import write_answer
from punctual.cli._words import clock, span
from punctual.cli._words import cores as cores_text
from punctual.core.errors import InvalidSpec
from punctual.daemon import control_client
from punctual.daemon.machine_providers import end_abandoned
from punctual.daemon.runs import open_job
from punctual.request.spec_change import SpecChange, parse_budget_usd

#: `-30s` and `-2h` are amounts, not options.
SETTINGS = {"deadline": {"ignore_unknown_options": True, "help_option_names": ["--help"]}}


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
    answer = control_client.change(open_job(words[0] if len(words) == 2 else None), when=words[-1])
    line = f"{answer['job']}: it has no deadline any more"
    if answer["deadline_wall"] is not None:
        wall = clock(datetime.fromisoformat(answer["deadline_wall"]))
        line = f"{answer['job']}: the deadline is now {wall}, in {span(answer['left_s'])}"
    write_answer(answer, line, as_json=as_json)


def set(
    job: OpenJob = None,
    weight: Annotated[float | None, typer.Option(metavar="NUMBER", help="Weight against other jobs, above 0.")] = None,
    cores: Annotated[
        str | None, typer.Option(metavar="A..B", help="Least and most cores, 0.5..2, or the most alone, 2.")
    ] = None,
    workers: Annotated[str | None, typer.Option(metavar="A..B", help="Least and most workers.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Deadline as for `punctual deadline`: 90s, +10m, 18:00, none.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="USD", help="Dollars that it may cost in all, or none for no budget.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change weight, cores, workers, deadline or budget of a running job."""
    if (weight, cores, workers, deadline, budget) == (None, None, None, None, None):
        raise InvalidSpec(
            "`punctual set` must be told what to change",
            "nothing",
            "the command line",
            "Give `--weight`, `--cores`, `--workers`, `--deadline` or `--budget`.",
        )
    budget_usd = None if budget is None else parse_budget_usd(budget)
    changes = SpecChange.written(weight=weight, cores=cores, workers=workers, budget_usd=budget_usd)
    answer = control_client.change(open_job(job), changes, when=deadline)
    may_have = f"{cores_text(answer['floor_cores'])} to {cores_text(answer['ceiling_cores'])}"
    if answer["workers"] is not None:
        may_have = "{} to {} workers".format(*answer["workers"])
    may_cost = "" if answer["budget_usd"] is None else f", may cost ${answer['budget_usd']:g}"
    write_answer(
        answer, f"{answer['job']}: weight {answer['weight']:g}, may have {may_have}{may_cost}", as_json=as_json
    )


def pause(
    job: OpenJob = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason that `punctual why` tells.")] = "",
    as_json: AsJson = False,
) -> None:
    """Pause a job until `punctual resume`. It keeps its memory, and its deadline goes on counting."""
    answer = control_client.pause(open_job(job), why)
    write_answer(answer, f"{answer['job']}: paused until `punctual resume {answer['job']}`", as_json=as_json)


def resume(job: OpenJob = None, as_json: AsJson = False) -> None:
    """Let a job go on that was paused with `punctual pause`."""
    answer = control_client.resume(open_job(job))
    write_answer(answer, f"{answer['job']}: goes on with what the next plan gives it", as_json=as_json)


def stop(job: OpenJob = None, as_json: AsJson = False) -> None:
    """Ask a job to make a checkpoint, if it can, and end."""
    target = open_job(job)
    done = control_client.stop(target)
    if target.steering == "interrupted":
        end_abandoned()  # machines that waited with it
    write_answer({"job": target.title, "done": done}, f"{target.title}: {done}", as_json=as_json)
