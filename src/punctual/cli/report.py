"""`punctual report`: summary and plot of a run from its journal."""

from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._options import AnyJob
from punctual.cli._plot import check_can_plot
from punctual.cli._report import about, draw, paragraph, report_fields
from punctual.cli._streams import write_line
from punctual.daemon.runs import job_to_tell_of, messages_of
from punctual.history.run import summarize
from punctual.request.json_text import json_text


def report(
    job: AnyJob = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Summarise a run and plot it."""
    if out is not None:
        check_can_plot(out, "--out")
    target = job_to_tell_of(job)
    messages, name = messages_of(target.run, [target.job], with_others=True), target.job
    if job is None:
        write_line(f"job {name}:", err=True)
    summary = summarize(messages, name)
    if out is not None:
        draw(out, target.run, messages, name)
    if as_json:
        drawn = None if out is None else str(out)
        write_line(json_text({**report_fields(target.run, summary), "text": paragraph(summary), "report": drawn}))
        return
    write_line(paragraph(summary))
    for heading, text in about(target.run, summary).items():
        write_line(f"{heading}: {text}")
    if target.run.log(name).exists():
        write_line(f"output: {target.run.log(name)}")
    if out is not None:
        write_line(f"report: {out}")
