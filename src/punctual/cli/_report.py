"""What is said of a run at its end: a paragraph for people, an object for machines, and a file to look at."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from punctual.cli import _plot
from punctual.cli._words import short, steps
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.units import format_bytes
from punctual.metrics.run import Point, RunSummary, series, summarize
from punctual.metrics.shortfall import Shortfall
from punctual.runtime.run_folder import RunFolder

#: Usage is drawn over windows of at least this share of the run: over single ticks it shows steps, not usage.
_WINDOW_FRAC = 0.01
_WINDOW_S = 0.5
#: Less than this share of its ceiling that a job did not hold is not worth a word.
_TOLD_FRAC = 0.01
#: What a program does for longer than this after its last declared step is told, also if it was in time.
_WORKED_ON_S = 1.0
#: How the cause of a job's end begins if it was asked to end.
_STOPPED = "stopped: "


def paragraph(summary: RunSummary) -> str:
    """The run in plain words."""
    return " ".join([_outcome(summary), _amounts(summary), *_changes(summary)])


def _outcome(summary: RunSummary) -> str:
    if summary.status == "failed":
        return f"The job {_end(summary)} at {steps(summary.steps_done, summary.steps_total)}."
    if summary.landed_at is None:
        return f"The job has not landed; the last that was heard of it is {steps(summary.steps_done, summary.steps_total)}."
    if summary.deadline_s is None or summary.deviation_s is None:
        return f"Landed after {short(summary.landed_at - summary.submitted_at)}; there was no deadline."
    side = "after" if summary.deviation_s > 0 else "before"
    share = f"{abs(summary.deviation_s) / summary.deadline_s:.2%}"
    verdict = "Deadline missed: landed" if summary.deviation_s > 0 else "Landed"
    return f"{verdict} {share} = {short(abs(summary.deviation_s))} {side} the deadline of {short(summary.deadline_s)}."


def was_stopped(summary: RunSummary) -> bool:
    """Whether a job that has failed was asked to end."""
    return summary.cause.startswith(_STOPPED)


def _end(summary: RunSummary) -> str:
    why = summary.cause.removeprefix(_STOPPED)
    return f"was stopped ({why})" if was_stopped(summary) else f"failed ({why})"


def _amounts(summary: RunSummary) -> str:
    used, granted = summary.used_core_s, summary.granted_core_s
    resizes = "1 resize" if summary.n_resizes == 1 else f"{summary.n_resizes} resizes"
    text = f"It used {used:.1f} core-seconds of {granted:.1f} granted, with {resizes}."
    left_core_s = summary.ceiling_core_s - granted
    if left_core_s > _TOLD_FRAC * summary.ceiling_core_s:
        ceiling = f"{summary.ceiling_core_s:.1f} core-seconds"
        text += f" Its ceiling over the same time is {ceiling}: it left {left_core_s:.1f} of them to others."
    if summary.peak_memory_bytes:
        text += f" It held up to {format_bytes(summary.peak_memory_bytes)} of memory."
    return text


def _changes(summary: RunSummary) -> list[str]:
    changes = _worked_on(summary) + [
        f"The deadline was set to {short(one.deadline_s)} at {short(one.at - summary.submitted_at)}."
        for one in summary.deadlines[1:]
        if one.deadline_s is not None
    ]
    if summary.shortfall is not None:
        changes.append(_shortfall(summary.shortfall))
    if (cut_off := summary.warned("cut-off")) is not None:
        changes.append(f"{cut_off.text[0].upper()}{cut_off.text[1:]}.")
    if summary.unsteered_s:
        changes.append(f"Nobody steered it for {short(summary.unsteered_s)}.")
    infeasible = summary.warned("infeasible")
    if infeasible is not None:
        changes.append(f"At {short(infeasible.at - summary.submitted_at)} it was told that {infeasible.text}.")
    return changes


def _worked_on(summary: RunSummary) -> list[str]:
    """What came after the last declared step, if that took long, or made the job late."""
    is_cause = summary.deviation_s is not None and 0.0 < summary.deviation_s <= summary.worked_on_s
    if not is_cause and summary.worked_on_s < _WORKED_ON_S:
        return []
    remedy = "put that into `punctual.phase`, and it is planned for"
    return [f"It worked on for {short(summary.worked_on_s)} after its last declared step: {remedy}."]


def _shortfall(lack: Shortfall) -> str:
    """A run that lands late often did not get what it was granted: that is told, with what else it may be."""
    return (
        f"For {short(lack.duration_s)} it used {lack.used_cores:.2f} of the {lack.granted_cores:.2f} cores that it held and can "
        "use: the machine gave it no more, or it waited for something other than the processor."
    )


def as_fields(summary: RunSummary) -> dict[str, Any]:
    """Everything of the summary in plain fields; instants also as seconds since the start of the command."""
    landed_at, ended_at = summary.landed_at, summary.ended_at
    return {
        **asdict(summary),
        "landed_s": None if landed_at is None else landed_at - summary.submitted_at,
        "ended_s": None if ended_at is None else ended_at - summary.submitted_at,
    }


def draw(path: Path, run: RunFolder, messages: Sequence[Message], *jobs: JobId) -> None:
    """Write the report of `jobs`, which are of `run`, to `path`: the page of these jobs, frozen, or a picture of the first.

    Raises
    ------
    InvalidSpec
        When `path` cannot be written.
    """
    summaries = [summarize(messages, job) for job in jobs]
    try:
        if path.suffix == ".png":
            rows = [f"{name.capitalize()}: {text}" for name, text in about(run, summaries[0]).items()]
            title = f"{jobs[0]}: {_title(summaries[0])}"
            _plot.save(path, _drawn(messages, summaries[0]), title, [paragraph(summaries[0]), *rows])
        else:
            from punctual.service.frozen import frozen_page  # most commands have no use for what it needs

            said = {summary.job: f"{paragraph(summary)} {_told_about(run, summary)}" for summary in summaries}
            path.write_text(frozen_page(run, messages, said), encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(
            "a report must be a file that can be written", error.strerror or str(error), f"'{path}'",
            "Draw it again elsewhere: `punctual report JOB --out FILE`.",
        ) from error  # fmt: skip


def _told_about(run: RunFolder, summary: RunSummary) -> str:
    """What the page of a job does not say by itself."""
    rows = {name: text for name, text in about(run, summary).items() if name not in ("command", "controller")}
    return "".join(f"{name.capitalize()}: {text}. " for name, text in rows.items()).strip()


def _drawn(messages: Sequence[Message], summary: RunSummary) -> _plot.DrawnRun:
    course, since = series(messages, summary.job), summary.submitted_at
    last_at = max([since, *(message.at for message in messages)])
    ended_s = (summary.ended_at or last_at) - since
    usage = _smooth(course.usage, max(_WINDOW_S, _WINDOW_FRAC * ended_s))
    landed_s = None if summary.landed_at is None else summary.landed_at - since
    return _plot.DrawnRun(replace(course, usage=tuple(usage)), landed_s, ended_s)


def about(run: RunFolder, summary: RunSummary) -> dict[str, str]:
    """What was run, when and where, and how it was steered."""
    facts, end = run.facts(), run.end_facts(summary.job)
    begun = end.get("submitted_wall") or facts.get("wall")
    rows = {
        "command": shlex.join(summary.argv),
        "started": "" if begun is None else f"{datetime.fromisoformat(begun):%Y-%m-%d %H:%M:%S}",
        "host": str(facts.get("machine", "")),
        "controller": summary.controller,
        "actuator": str(facts.get("actuator", "")),
        "loss": "" if summary.loss is None else f"{summary.loss.loss:.5g} at step {summary.loss.steps:,.0f}",
    }
    return {name: text for name, text in rows.items() if text}


def _smooth(usage: Sequence[Point], window_s: float) -> list[Point]:
    """Means over at least `window_s`; a point's value holds since the point before it."""
    smooth: list[Point] = []
    before_s = from_s = usage[0][0] if usage else 0.0
    core_s = 0.0
    for at_s, amount in usage[1:]:
        core_s += amount * (at_s - before_s)
        before_s = at_s
        if at_s - from_s >= window_s:
            smooth.append((at_s, core_s / (at_s - from_s)))
            from_s, core_s = at_s, 0.0
    return smooth


def _title(summary: RunSummary) -> str:
    if summary.status == "failed":
        return "failed"
    if summary.landed_at is None:
        return "not landed"
    if summary.deviation_s is None or summary.deadline_s is None:
        return "no deadline"
    side = "after" if summary.deviation_s > 0 else "before"
    return f"landed {short(abs(summary.deviation_s))} {side} its deadline of {short(summary.deadline_s)}"
