"""`punctual ps`: open jobs and their forecasts against their deadlines; `punctual show`: all facts about one."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from punctual.cli._options import AnyJob
from punctual.cli._streams import table_lines, write_json, write_line, write_lines
from punctual.cli._words import clock, cost, dollars, early_or_late, span, visible
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobSpec, JobState
from punctual.core.resources import Resources
from punctual.core.status import JobStatus, StatusBoard
from punctual.core.units import counted, format_bytes
from punctual.daemon.control_client import SILENT, STARTING, standings
from punctual.daemon.host_executor import HERE
from punctual.daemon.machine_providers import abandoned
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import KnownJob, job_to_tell_of, known_jobs, known_runs, unreadable
from punctual.daemon.status_reader import forecast_in
from punctual.daemon.status_reader import standing as standing_of
from punctual.daemon.sweeping import sweep
from punctual.history.judge import judge
from punctual.journal.boot import clock_shift
from punctual.request.deadlines import Now

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_NONE = "no job runs; --all lists those that have ended"

#: Remedies for a job of which only the state is known.
_REMEDIES = {
    "unsteered": "nobody steers {job}: its daemon was ended or killed, or could write nothing any more. Take it over: punctual attach {job}",
    "paused": "nobody steers {job}, and it stands still ({paused}). Have it go on: punctual up, then punctual resume {job}",
    "interrupted": "{job} was interrupted. Resume it: punctual attach {job}; or give it up: punctual stop {job}",
    "elsewhere": "{job} is a job of another machine: give commands there",
    SILENT: "the daemon that steers {job} is stopped or hangs. Take the job from it: punctual attach {job}",
    STARTING: "the daemon that steers {job} is just starting, or ending, or another is taking its place",
}

_COLUMNS = (
    "JOB", "STATE", "PROGRESS", "DEADLINE", "TIME LEFT", "FORECAST", "GRANT", "WANTS", "MEMORY", "PROMISED", "ACTUATOR",
)  # fmt: skip

#: Fields of each job in JSON; null: unknown, or without meaning in its state.
KEYS = (
    "job", "state", "kind", "word", "phrase", "headline", "submitted_wall", "elapsed_s", "deadline_s",
    "deadline_wall", "left_s", "started_s", "starts_s", "lands_s", "lands_low_s", "lands_high_s", "landed_s",
    "landed", "cause", "argv", "steps_done", "steps_total", "steps_expected", "progress_frac", "forecast_s",
    "forecast_std_s", "earliest_finish_s", "feasible", "promised_until_wall", "grant_cores", "n_workers",
    "demand_cores", "usage_cores", "used_core_s", "budget_usd", "spent_usd", "memory_bytes", "peak_memory_bytes",
    "asked_memory_bytes", "waits", "paused", "waits_for", "controller", "actuator", "output", "host", "host_cores",
    "host_free_cores", "host_usd_h", "host_spent_usd", "policy", "slow_nodes", "host_memory_bytes",
    "host_used_memory_bytes", "nodes", "silent_nodes", "lost_nodes_wall", "leaving_nodes_wall", "taken_cores",
    "lacking_machines",
)  # fmt: skip

#: Columns of ended jobs.
_PAST_COLUMNS = ("JOB", "STATE", "STARTED", "DEADLINE", "CAME TO", "COMMAND")
#: Most characters shown of a command or a cause.
_N_CHARACTERS = 60


def ps(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job and line.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also list the jobs that have ended.")] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Show them as they go on, until Ctrl-C; once if the output is no terminal."),
    ] = False,
) -> None:
    """List the jobs that have not ended, what each holds and wants, and what is free."""
    sweep()
    if watch and not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _watch(everything=everything)
    rows, ended = _standings(everything=everything)
    if as_json:
        for standing in [*rows, *ended]:
            write_json({**dict.fromkeys(KEYS), **standing})
        return
    write_lines(_listing(rows, ended))
    if not rows and not ended:
        write_line("there is no job" if everything else _NONE, err=True)
    write_lines(_remedies(rows), err=True)
    for fleet in abandoned():
        write_line(
            f"machines that a daemon of '{fleet.run.name}' asked for may be left and paid for: punctual clean ends them",
            err=True,
        )
    if errors := list(unreadable()):
        more = f" (and jobs of {len(errors) - 1} more)" if len(errors) > 1 else ""
        write_line(f"not listed{more}: {errors[0]}", err=True)


def _watch(*, everything: bool) -> NoReturn:
    """Draw the lanes again and again, on a screen of its own."""
    from rich.console import Group
    from rich.live import Live

    known: dict[KnownJob, dict[str, Any]] = {}
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(Group(*screen(live.console, *_standings(everything=True, known=known), unfolds=everything)))
            live.refresh()
            # Seconds from one list to the next with `--watch`.
            time.sleep(1.0)


def screen(
    console: "Console", rows: Sequence[dict[str, Any]], ended: Sequence[dict[str, Any]], *, unfolds: bool
) -> "list[Text]":
    """Draw what fits on the screen: figures, lanes, and what is to be said of hosts and nodes."""
    from rich.text import Text

    from punctual.cli._lanes import Lanes, fold_ended

    all_rows, width = [*rows, *ended], console.width
    shown, n_folded = (all_rows, 0) if unfolds else fold_ended(all_rows)
    now, told = datetime.now().astimezone(), [*budgets(rows), *_remedies(rows)]
    lanes = Lanes(shown, now, width)
    head = Lanes(all_rows, now, width).figures() if all_rows else [Text(_NONE)]
    foot = [line for text in told for line in Text(visible(text), "dim").wrap(console, width)]
    lines, n_room = lanes.lines(), max(2, console.height - len(head) - len(lanes.legend()) - len(foot) - 2)
    if len(lines) > n_room:
        n_jobs = max(0, n_room - 2) // lanes.n_lines_each
        n_more = len(shown) - n_jobs
        more = Text(f"and {counted(n_more, 'more job')}", "dim")
        lines = [*lines[: 1 + n_jobs * lanes.n_lines_each], more]
    elif n_folded:
        lines.append(Text(f"{counted(n_folded, 'ended job')}; --all shows {'them' if n_folded != 1 else 'it'}", "dim"))
    return [*head, *lines, *lanes.legend(), *foot]


def _standings(
    *, everything: bool, known: dict[KnownJob, dict[str, Any]] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the jobs that have not ended, and with `everything` those that have, in order of submission.

    `known`: ended jobs that were read before, to which the others are added.
    """
    rows = [standing for run in known_runs() for standing in standings(run)]
    read = {} if known is None else known
    past = [job for job in known_jobs() if job.steering == "ended"] if everything else []
    ended = [
        told for run, jobs in groupby(past, key=lambda job: job.run) for told in _ended_jobs(run, list(jobs), read)
    ]
    return rows, sorted(ended, key=lambda standing: standing["submitted_wall"] or "")


def _listing(rows: Sequence[dict[str, Any]], ended: Sequence[dict[str, Any]]) -> list[str]:
    lines = _with_costs(_COLUMNS, rows, _row) if rows else []
    if ended:
        lines += _with_costs(_PAST_COLUMNS, ended, _past_row)
    return [*lines, *budgets(rows)]


def _with_costs(
    columns: tuple[str, ...], standings: Sequence[dict[str, Any]], row_of: Callable[[dict[str, Any]], tuple[str, ...]]
) -> list[str]:
    """Return the lines of a table, with what each job has cost behind its state where anything costs."""
    costs = [
        "-" if (usd := standing.get("spent_usd")) is None else cost(usd, standing.get("budget_usd"))
        for standing in standings
    ]
    rows = [row_of(standing) for standing in standings]
    if all(each == "-" for each in costs):
        return table_lines(columns, rows)
    dear = [(*row[:2], each, *row[2:]) for row, each in zip(rows, costs, strict=True)]
    return table_lines((*columns[:2], "COST", *columns[2:]), dear)


def _remedies(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [remedy(standing) for standing in rows if "host" not in standing]


def remedy(standing: Mapping[str, Any]) -> str:
    """Say what can be done about a job of which only the state is known."""
    return _REMEDIES.get(standing["state"], "{job} is {state}").format(**standing)


def budgets(standings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Describe each host's capacity and its free part."""
    told = [standing for standing in standings if "host" in standing]
    for host in dict.fromkeys(standing["host"] for standing in told):
        jobs = [standing for standing in told if standing["host"] == host]
        budget, n_holding = jobs[-1], sum(job["grant_cores"] > 0 for job in jobs)
        n_others = len(jobs) - n_holding
        others = f"; {counted(n_others, 'job')} hold{'s' * (n_others == 1)} nothing" if n_others else ""
        yield (
            f"host {host} ({budget['policy']}): {budget['host_cores']:g} cores, "
            f"{budget['host_cores'] - budget['host_free_cores']:.2f} held by {counted(n_holding, 'job')}, "
            f"{budget['host_free_cores']:.2f} free{others}{_of_memory(budget)}{_of_money(budget)}"
        )
        yield from _waiting(jobs)
        yield from _nodes(jobs, budget)


def _nodes(jobs: Sequence[dict[str, Any]], budget: Mapping[str, Any]) -> Iterator[str]:
    """List the jobs on each node of a cluster, and slow, silent or shared nodes; an earlier version tells less."""
    named = sorted({node for job in jobs for node in job.get("nodes", ()) if node != HERE})
    for node in named:
        yield f"node {node}: {', '.join(job['job'] for job in jobs if node in job['nodes'])}"
    for node, slowness in budget.get("slow_nodes", {}).items():
        yield f"node {node} is slow: steps cost {slowness:.2g} times the CPU time there, see `punctual why`"
    for node, silent_s in budget.get("silent_nodes", {}).items():
        lost = budget.get("lost_nodes_wall", {}).get(node)
        then = (
            "see `punctual why`" if lost is None else f"and at {clock(datetime.fromisoformat(lost))} it counts as lost"
        )
        yield f"node {node} has not answered for {span(silent_s)}: what is told of its jobs is as old, {then}"
    for node, wall in budget.get("leaving_nodes_wall", {}).items():
        yield f"node {node} {_leaving(node, datetime.fromisoformat(wall))}"
    for node, cores in budget.get("taken_cores", {}).items():
        yield f"node {node}: other applications of the cluster hold {cores:g} cores"
    for text in budget.get("lacking_machines", ()):
        yield f"waited for: {text}"


def _leaving(node: str, ends: datetime) -> str:
    if ends > datetime.now().astimezone():
        return f"is leaving at {clock(ends)}: its jobs move, see `punctual why`"
    return f"was to leave by {clock(ends)}: no job runs there until `punctual node undrain {node}`"


def _of_memory(budget: dict[str, Any]) -> str:
    if not budget.get("host_memory_bytes"):
        return ""
    used, there = (format_bytes(budget[name]) for name in ("host_used_memory_bytes", "host_memory_bytes"))
    return f"; {used} of {there} of memory used"


def _of_money(budget: dict[str, Any]) -> str:
    if budget.get("host_usd_h") is None:
        return ""
    return f"; machines for {dollars(budget['host_usd_h'])} an hour, {dollars(budget['host_spent_usd'])} spent"


def _waiting(jobs: list[dict[str, Any]]) -> Iterator[str]:
    """Describe the waiting jobs: their number, when a place is expected, and the reason of the first."""
    waiting = [job for job in jobs if job.get("waits")]
    if not waiting:
        return
    first, n_jobs = waiting[0], len(waiting)
    _, room, when = first.get("phrase", "").partition("waits for room")
    what = "" if first.get("phrase") and not room else f" for room{when}"
    yield f"{n_jobs} job{'s wait' if n_jobs > 1 else ' waits'}{what}; {first['job']}: {first['waits']}"


def _ended_jobs(
    run: RunFolder, ended: Sequence[KnownJob], read: dict[KnownJob, dict[str, Any]]
) -> list[dict[str, Any]]:
    if new := [job for job in ended if job not in read]:
        states, facts = run.jobs(), run.all_end_facts()  # once for all; in this order what has ended is recorded
        read.update((job, _ended(job, states, facts.get(job.job, {}))) for job in new)
    return [read[job] for job in ended]


def _ended(job: KnownJob, states: Mapping[JobId, JobState], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a job's end; null: nothing was recorded. `states`: those of its run's jobs."""
    told = {
        name: known.get(name)
        for name in ("submitted_wall", "argv", "deadline_s", "landed_s", "cause", "budget_usd", "spent_usd")
    }
    state = states.get(job.job, "ended")
    judged = _judged(job.job, state, known) if state in ENDED else {}
    return {
        "job": job.title,
        "state": state,
        **judged,
        **told,
        "elapsed_s": known.get("ended_s"),
        "output": str(job.run.log(job.job)),
    }


def _judged(job: JobId, state: JobState, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return how an ended job came out, in the words of all displays."""
    spec = JobSpec(id=job, ceiling=Resources(1.0), deadline_s=known.get("deadline_s"))
    ended = JobStatus(spec=spec, submitted_at=0.0, state=state, landed_at=known.get("landed_s"))
    status = replace(ended, cause=known.get("cause") or "", exit_code=known.get("exit_code"))
    now = Now.read()
    return asdict(judge(status, now.at, now.clock))


def _past_row(standing: dict[str, Any]) -> tuple[str, ...]:
    begun, deadline_s = standing["submitted_wall"], standing["deadline_s"]
    return (
        standing["job"],
        standing["state"],
        "-" if begun is None else f"{datetime.fromisoformat(begun).astimezone():%Y-%m-%d %H:%M}",
        "-" if deadline_s is None else span(deadline_s),
        _came_to(standing),
        _cut(shlex.join(standing["argv"] or ["-"])),
    )


def _came_to(standing: dict[str, Any]) -> str:
    """Describe the job's landing against its deadline, or why it did not land."""
    landed_s, deadline_s = standing["landed_s"], standing["deadline_s"]
    if standing["state"] != "finished" or landed_s is None:
        return _cut(" ".join(str(standing["cause"] or "-").split()))
    if deadline_s is None:
        return f"landed after {span(landed_s)}"
    return f"landed {early_or_late(landed_s - deadline_s)}"


def _cut(text: str) -> str:
    """Cut `text` to the terminal's width; return it whole if there is no terminal."""
    text = visible(text)
    is_short = len(text) <= _N_CHARACTERS or not sys.stdout.isatty()
    return text if is_short else f"{text[: _N_CHARACTERS - 1]}…"


def _row(standing: dict[str, Any]) -> tuple[str, ...]:
    if "actuator" not in standing:
        return (standing["job"], standing["state"], *["-"] * (len(_COLUMNS) - 2))
    left_s = standing["left_s"]
    return (
        standing["job"],
        standing["state"],
        "-" if standing["progress_frac"] is None else f"{standing['progress_frac']:.1%}",
        "-" if left_s is None else clock(datetime.fromisoformat(standing["deadline_wall"])),
        "-" if left_s is None else ("-" if left_s < 0 else "") + span(left_s),
        _forecast(standing),
        _grant(standing),
        "-" if standing["demand_cores"] is None else f"{standing['demand_cores']:.2f}",
        _memory(standing),
        _promised(standing),
        standing["actuator"],
    )


def _memory(standing: dict[str, Any]) -> str:
    """Format the memory that the job holds and asked for; a host of an earlier version does not tell it."""
    held, asked = (standing.get(name, 0) for name in ("memory_bytes", "asked_memory_bytes"))
    told = format_bytes(held) if held else "-"
    return f"{told} of {format_bytes(asked)}" if asked else told


def _promised(standing: dict[str, Any]) -> str:
    """Format the time until which the job is promised to be done."""
    until = standing["promised_until_wall"]
    return "-" if until is None else clock(datetime.fromisoformat(until))


def _grant(standing: dict[str, Any]) -> str:
    n_workers = standing["n_workers"]
    return counted(n_workers, "worker") if n_workers else f"{standing['grant_cores']:.2f}"


def _forecast(standing: dict[str, Any]) -> str:
    """Format the expected landing against the deadline; without one, its time of day."""
    lands_s, deadline_s, begun = standing.get("lands_s"), standing["deadline_s"], standing.get("submitted_wall")
    if standing["landed"]:
        return "landed"
    if lands_s is not None and deadline_s is not None:
        return early_or_late(lands_s - deadline_s)
    if lands_s is not None and begun is not None:
        return f"lands {clock(datetime.fromisoformat(begun) + timedelta(seconds=lands_s))}"
    return "measuring" if standing.get("kind") == "measuring" else "-"


def show(job: AnyJob = None, as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Show everything about a job."""
    target = job_to_tell_of(job)
    told = next((each for each in standings(target.run) if each["job"] in (target.job, target.title)), {})
    now, status = _status(target, told)
    fields = _shown_fields(target, told, status, now)
    if as_json:
        write_json(fields)
        return
    write_line(fields["headline"])
    for name, text in _facts(fields, status, now):
        write_line(f"{name:<10} {text}".rstrip())


def _status(target: KnownJob, told: dict[str, Any]) -> tuple[Now, JobStatus]:
    """Return the present on the clock of the job's journal, and the job's status by journal and host."""
    board = StatusBoard(lambda _: forecast_in(told))
    with target.run.read_journal() as journal:
        for _, message in journal.read_of([target.job], journal.period_of(target.job)[0]):
            board.fold(message)
        now = Now.read(clock_shift(journal.clock))
    if not board.knows(target.job):
        raise InvalidSpec(
            "the job must be in its journal", "one that was accepted just now", f"job '{target.title}'", "Try again."
        )
    return now, board.job(target.job)


def _shown_fields(target: KnownJob, told: dict[str, Any], status: JobStatus, now: Now) -> dict[str, Any]:
    return {
        **dict.fromkeys(KEYS),
        **standing_of(status, now),
        "controller": status.spec.controller,
        "spent_usd": target.run.end_facts(target.job).get("spent_usd"),
        **told,
        "job": target.title,
        **_unsteered(target, told, status),
        "cwd": None if status.program is None else status.program.cwd,
        "weight": status.spec.weight,
        "floor_cores": status.spec.floor.cores,
        "ceiling_cores": status.spec.ceiling.cores,
        "n_attempts": status.n_attempts,
        "exit_code": status.exit_code,
        "reason": None if status.reason is None else {"code": status.reason.code, "text": status.reason.text},
        "warnings": dict(status.warnings),
        "output": str(target.run.log(target.job)),
        "journal": str(target.run.journal),
        "host": target.run.name,
    }


def _unsteered(target: KnownJob, told: dict[str, Any], status: JobStatus) -> dict[str, Any]:
    """Return the state and the headline of a job of which no host tells; empty: one does, or the job has ended."""
    if status.ended or "host" in told:
        return {}
    state = str(told.get("state", target.steering))
    return {"state": state, "headline": remedy({**told, "job": target.title, "state": state})}


def _facts(known: dict[str, Any], status: JobStatus, now: Now) -> list[tuple[str, str]]:
    from punctual.cli._view import view_rows

    state = known["state"] + (f": {status.cause}" if status.cause else "")
    bounds = f"{known['floor_cores']:g} to {known['ceiling_cores']:g} cores, weight {known['weight']:g}"
    return [
        ("job", known["job"]),
        ("state", state),
        ("program", shlex.join(known["argv"])),
        ("folder", known["cwd"] or "-"),
        ("submitted", clock(now.wall_of(status.submitted_at))),
        *((name or "progress", text.plain) for name, text in view_rows(status, now)),
        ("bounds", bounds),
        ("memory", _memory_text(status)),
        *([] if known["spent_usd"] is None else [("cost", cost(known["spent_usd"], known["budget_usd"]))]),
        *([("nodes", ", ".join(known["nodes"]))] if set(known["nodes"]) - {HERE} else []),
        ("promised", _promise_text(known["promised_until_wall"])),
        (
            "steered by",
            f"controller {known['controller']}, actuator {known.get('actuator') or '-'}, host {known['host']}",
        ),
        *(("warning", text) for text in status.warnings.values()),
        ("output", known["output"]),
        ("journal", known["journal"]),
    ]


def _memory_text(status: JobStatus) -> str:
    asked_bytes, peak_bytes = status.spec.ceiling.memory_bytes, status.peak_memory_bytes
    parts = [
        f"{format_bytes(status.memory_bytes)} now" if status.memory_bytes else "",
        f"{format_bytes(peak_bytes)} at most" if peak_bytes else "",
        f"{format_bytes(asked_bytes)} asked for" if asked_bytes else "",
    ]
    return ", ".join(filter(None, parts)) or "-"


def _promise_text(until_wall: str | None) -> str:
    return "nothing" if until_wall is None else f"to be done by {clock(datetime.fromisoformat(until_wall))}"
