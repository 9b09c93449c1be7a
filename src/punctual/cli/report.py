"""`punctual report`, and what other commands tell of a finished run: a paragraph, an object for machines, a file to look at."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from punctual.cli import _plot
from punctual.cli._errors import refused_if_failing
from punctual.cli._options import AnyJob
from punctual.cli._streams import write_json, write_line
from punctual.cli._words import cost, span, steps
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.units import counted, format_bytes
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import job_to_tell_of, messages_of, now_of
from punctual.history.run import RunSummary, history_of, series, smooth_usage, summarize
from punctual.history.shortfall import Shortfall


def paragraph(summary: RunSummary) -> str:
    """Describe the run in plain words."""
    if summary.status == "turned away":
        return _outcome(summary)
    return " ".join([_outcome(summary), _amounts(summary), *_changes(summary)])


def _outcome(summary: RunSummary) -> str:
    if summary.status == "turned away":
        return f"The job was turned away: {summary.cause}."
    if summary.status in ("failed", "stopped"):
        how = "was stopped" if summary.status == "stopped" else "failed"
        return f"The job {how} ({summary.cause}) at {steps(summary.steps_done, summary.steps_total)}."
    if summary.landed_at is None:
        return f"The job has not landed; the last that was heard of it is {steps(summary.steps_done, summary.steps_total)}."
    if summary.deadline_s is None or summary.deviation_s is None:
        return f"Landed after {span(summary.landed_at - summary.submitted_at)}; there was no deadline."
    side = "after" if summary.deviation_s > 0 else "before"
    share = f"{abs(summary.deviation_s) / summary.deadline_s:.2%}"
    verdict = "Deadline missed: landed" if summary.deviation_s > 0 else "Landed"
    return f"{verdict} {span(summary.deviation_s)} ({share}) {side} the deadline of {span(summary.deadline_s)}."


def _amounts(summary: RunSummary) -> str:
    used, granted = summary.used_core_s, summary.granted_core_s
    resizes = counted(summary.n_resizes, "resize")
    text = f"It used {used:.1f} core-seconds of {granted:.1f} granted, with {resizes}."
    left_core_s = summary.ceiling_core_s - granted
    # A hundredth of its ceiling that a job did not hold, or less than is written as 0.1, is not worth a word.
    if left_core_s > max(0.01 * summary.ceiling_core_s, 0.05):
        ceiling = f"{summary.ceiling_core_s:.1f} core-seconds"
        text += f" Its ceiling over the same time is {ceiling}: it left {left_core_s:.1f} of them to others."
    if summary.peak_memory_bytes:
        text += f" It held up to {format_bytes(summary.peak_memory_bytes)} of memory."
    return text


def _changes(summary: RunSummary) -> list[str]:
    changes = _worked_on(summary) + [
        f"The deadline was set to {span(one.deadline_s)} at {span(one.at - summary.submitted_at)}."
        for one in summary.deadlines[1:]
        if one.deadline_s is not None
    ]
    if summary.shortfall is not None:
        changes.append(_shortfall(summary.shortfall))
    for code in ("cut-off", "left-running"):
        if (warning := summary.warned(code)) is not None:
            changes.append(f"{warning.text[0].upper()}{warning.text[1:]}.")
    if summary.unsteered_s:
        changes.append(f"Nobody steered it for {span(summary.unsteered_s)}.")
    infeasible = summary.warned("infeasible")
    if infeasible is not None:
        changes.append(f"At {span(infeasible.at - summary.submitted_at)} it was told that {infeasible.text}.")
    return changes


def _worked_on(summary: RunSummary) -> list[str]:
    """Report work after the last declared step, if it took long or made the job late."""
    is_cause = summary.deviation_s is not None and 0.0 < summary.deviation_s <= summary.worked_on_s
    # Seconds of work after the last declared step above which it is reported, even for a job that was in time.
    if not is_cause and summary.worked_on_s < 1.0:
        return []
    remedy = "put that into `punctual.phase`, and it is planned for"
    return [f"It worked on for {span(summary.worked_on_s)} after its last declared step: {remedy}."]


def _shortfall(lack: Shortfall) -> str:
    """Report missing CPU time as the likely cause of a late landing, with other possible causes."""
    return (
        f"For {span(lack.duration_s)} it used {lack.used_cores:.2f} of the {lack.granted_cores:.2f} cores that it held and can "
        "use: the machine gave it no more, or it waited for something other than the processor."
    )


def report_fields(run: RunFolder, summary: RunSummary) -> dict[str, Any]:
    """Return all facts about a run as plain fields; instants in seconds since the start of the command."""
    known, facts = asdict(summary), run.facts()
    for name in ("started", "landed", "ended"):
        at = known.pop(f"{name}_at")
        known[f"{name}_s"] = None if at is None else at - summary.submitted_at
    for name in ("deadlines", "warnings"):
        known[name] = [{"at_s": entry.pop("at") - summary.submitted_at, **entry} for entry in known[name]]
    del known["submitted_at"]
    return {
        **known,
        "steps": summary.steps_done,
        "actuator": facts.get("actuator"),
        "host": facts.get("machine"),
        **{name: run.end_facts(summary.job).get(name) for name in ("budget_usd", "spent_usd")},
        "submitted_wall": _submitted_wall(run, summary),
        "journal": str(run.journal),
        "output": str(run.log(summary.job)),
    }


def draw(path: Path, run: RunFolder, messages: Sequence[Message], *jobs: JobId) -> None:
    """Write the report of `jobs` of `run` to `path`: their frozen page, or a picture of the first.

    Raises `InvalidSpec`: `path` cannot be written.
    """
    summaries = [summarize(messages, job) for job in jobs]
    remedy = "Draw it again elsewhere: `punctual report JOB --out FILE`."
    with refused_if_failing("a report must be a file that can be written", f"'{path}'", remedy):
        if path.suffix == ".png":
            rows = [f"{name.capitalize()}: {text}" for name, text in about(run, summaries[0]).items()]
            title = f"{jobs[0]}: {_title(summaries[0])}"
            _plot.save(path, _drawn(messages, summaries[0]), title, [paragraph(summaries[0]), *rows])
        else:
            from punctual.api.frozen import frozen_page  # most commands have no use for what it needs

            said = {summary.job: f"{paragraph(summary)} {_about_text(run, summary)}" for summary in summaries}
            path.write_text(frozen_page(run, messages, said), encoding="utf-8")


def _about_text(run: RunFolder, summary: RunSummary) -> str:
    """Return facts about a job that its page does not show by itself."""
    rows = {name: text for name, text in about(run, summary).items() if name not in ("command", "controller")}
    return "".join(f"{name.capitalize()}: {text}. " for name, text in rows.items()).strip()


def _drawn(messages: Sequence[Message], summary: RunSummary) -> _plot.DrawnRun:
    course, since = series(history_of(messages, summary.job)), summary.submitted_at
    last_at = max([since, *(message.at for message in messages)])
    ended_s = (summary.ended_at or last_at) - since
    landed_s = None if summary.landed_at is None else summary.landed_at - since
    return _plot.DrawnRun(replace(course, usage=smooth_usage(course.usage, ended_s)), landed_s, ended_s)


def about(run: RunFolder, summary: RunSummary) -> dict[str, str]:
    """Return command, start, machine, controller and actuator of a run."""
    facts, ended = run.facts(), run.end_facts(summary.job)
    begun = datetime.fromisoformat(_submitted_wall(run, summary)).astimezone()
    rows = {
        "command": shlex.join(summary.argv),
        "started": f"{begun:%Y-%m-%d %H:%M:%S}",
        "host": str(facts.get("machine", "")),
        "controller": summary.controller,
        "actuator": str(facts.get("actuator", "")),
        "cost": "" if (usd := ended.get("spent_usd")) is None else cost(usd, ended.get("budget_usd")),
        "loss": "" if summary.loss is None else f"{summary.loss.loss:.5g} at step {summary.loss.steps:,.0f}",
    }
    return {name: text for name, text in rows.items() if text}


def _submitted_wall(run: RunFolder, summary: RunSummary) -> str:
    """Wall time of the job's submission: as recorded at its end, else by the clock of the journal."""
    recorded: str | None = run.end_facts(summary.job).get("submitted_wall")
    return recorded or now_of(run).wall_of(summary.submitted_at).isoformat(timespec="seconds")


def _title(summary: RunSummary) -> str:
    if summary.deviation_s is None or summary.deadline_s is None or summary.status not in (None, "finished"):
        return kind_of(summary)
    side = "after" if summary.deviation_s > 0 else "before"
    return f"landed {span(summary.deviation_s)} {side} its deadline of {span(summary.deadline_s)}"


def kind_of(summary: RunSummary) -> str:
    """Return the outcome of a job in a word or a few."""
    if summary.status not in (None, "finished"):
        return str(summary.status)
    if summary.landed_at is None:
        return "not landed"
    if summary.on_time is None:
        return "landed without a deadline"
    return "on time" if summary.on_time else "late"


def report(
    job: AnyJob = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Summarise a run and plot it."""
    if out is not None:
        _plot.check_can_plot(out, "--out")
    target = job_to_tell_of(job)
    messages, name = messages_of(target.run, [target.job], with_others=True), target.job
    if job is None:
        write_line(f"job {name}:", err=True)
    summary = summarize(messages, name)
    if out is not None:
        draw(out, target.run, messages, name)
    if as_json:
        drawn = None if out is None else str(out)
        write_json({**report_fields(target.run, summary), "text": paragraph(summary), "report": drawn})
        return
    write_line(paragraph(summary))
    for heading, text in about(target.run, summary).items():
        write_line(f"{heading}: {text}")
    if target.run.log(name).exists():
        write_line(f"output: {target.run.log(name)}")
    if out is not None:
        write_line(f"report: {out}")
