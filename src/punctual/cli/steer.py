"""`punctual set`, `pause`, `resume` and `stop`: commands that change one job, and show its host's answer."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from punctual.cli._options import AsJson, OpenJob
from punctual.cli._streams import write_line
from punctual.cli._words import cores as cores_text
from punctual.core.errors import InvalidSpec
from punctual.daemon import control_client
from punctual.daemon.machine_providers import end_abandoned
from punctual.daemon.runs import open_job
from punctual.request.json_text import json_text
from punctual.request.spec_change import SpecChange, parse_budget_usd


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
    show_answer(answer, f"{answer['job']}: weight {answer['weight']:g}, may have {may_have}{may_cost}", as_json=as_json)


def pause(
    job: OpenJob = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason that `punctual why` tells.")] = "",
    as_json: AsJson = False,
) -> None:
    """Pause a job until `punctual resume`. It keeps its memory, and its deadline goes on counting."""
    answer = control_client.pause(open_job(job), why)
    show_answer(answer, f"{answer['job']}: paused until `punctual resume {answer['job']}`", as_json=as_json)


def resume(job: OpenJob = None, as_json: AsJson = False) -> None:
    """Let a job go on that was paused with `punctual pause`."""
    answer = control_client.resume(open_job(job))
    show_answer(answer, f"{answer['job']}: goes on with what the next plan gives it", as_json=as_json)


def stop(job: OpenJob = None, as_json: AsJson = False) -> None:
    """Ask a job to make a checkpoint, if it can, and end."""
    target = open_job(job)
    done = control_client.stop(target)
    if target.steering == "interrupted":
        end_abandoned()  # machines that waited with it
    show_answer({"job": target.title, "done": done}, f"{target.title}: {done}", as_json=as_json)


def show_answer(answer: Mapping[str, Any], line: str, *, as_json: bool) -> None:
    """Write `answer` as one JSON object, or `line`."""
    write_line(json_text(answer) if as_json else line)
