"""`punctual why`: the chain of causes of each grant, of running, ended and simulated jobs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from punctual.cli._options import AnyJob
from punctual.cli._streams import write_json, write_line
from punctual.cli._words import clock, cores, proven, span
from punctual.core.errors import InvalidSpec
from punctual.core.units import counted
from punctual.daemon.control_client import standings
from punctual.daemon.runs import job_to_tell_of, messages_of, now_of
from punctual.history.decision_trace import DecisionStep, decision_steps, decisive_step
from punctual.history.run import history_of
from punctual.request.deadlines import Now


def why(
    job: AnyJob = None,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="Number of the latest decisions to show.")] = 10,
    every: Annotated[
        bool,
        typer.Option("--all", help="Also tell of new pacing lines, and of each of several changes within a second."),
    ] = False,
    study: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tell of a simulated job: what `punctual simulate --out` wrote.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per decision and line.")] = False,
) -> None:
    """Tell why a job got what it got. For each decision: what was read, demanded and why, asked for, and granted.

    The decisive one, which explains how the job stands now, is told first.
    """
    if study is not None:
        _tell_study(study, job, last, as_json=as_json)
        return
    target = job_to_tell_of(job)
    messages, name = messages_of(target.run, [target.job]), target.job
    if job is None:
        write_line(f"job {name}:", err=True)
    if target.run.log(name).exists():
        write_line(f"what it wrote: {target.run.log(name)}", err=True)
    reason = target.run.facts().get("actuator_reason")
    if reason:
        write_line(f"how grants are enforced: {reason}", err=True)
    history, now = history_of(messages, name), now_of(target.run)
    links, submitted_at = decision_steps(history, every=every), history.submitted_at
    if as_json:
        for link in links[-last:]:
            told: dict[str, Any] = {
                "time": now.wall_of(submitted_at + link.elapsed_s).isoformat(timespec="milliseconds")
            }
            told |= {"elapsed_s": link.elapsed_s, "kind": link.kind, "text": link.text}
            write_json({**told, **link.facts})
        return
    decisive = decisive_step(history)
    if decisive is not None and len(links) > 1:
        at = clock(now.wall_of(submitted_at + decisive.elapsed_s))
        write_line(f"decisive at {at}: {decisive.text}")
    _tell_links(links, last, now, submitted_at, every=every)
    told = next((each for each in standings(target.run) if each["job"] in (target.job, target.title)), {})
    if told.get("kind") == "waiting":
        write_line(f"{clock(now.wall)} {span(told['elapsed_s']):>11}  {told['headline']}")


def _tell_links(links: Sequence[DecisionStep], last: int, now: Now, submitted_at: float, *, every: bool) -> None:
    for group in ([[link] for link in links] if every else grouped(links))[-last:]:
        link = group[-1]
        together = f" (the last of {len(group)} such changes within a second)" if len(group) > 1 else ""
        at = clock(now.wall_of(submitted_at + link.elapsed_s))
        write_line(f"{at} {span(link.elapsed_s):>11}  {link.text}{together}")


def grouped(links: Iterable[DecisionStep]) -> list[list[DecisionStep]]:
    """Group the events of a job: changes of its grant for one reason in short order are one group."""
    groups: list[list[DecisionStep]] = []
    for link in links:
        first = groups[-1][0] if groups else None
        # Changes of a grant for one reason are told as one if they come within so many seconds: the last seconds have
        # one at each tick.
        if (
            first is not None
            and first.kind == link.kind == "grant"
            and first.facts["code"] == link.facts["code"]
            and link.elapsed_s - first.elapsed_s <= 1.0
        ):
            groups[-1].append(link)
        else:
            groups.append([link])
    return groups


def _tell_study(folder: Path, job: str | None, last: int, *, as_json: bool) -> None:
    """Show the decisions about a simulated job under each policy, on the first seed that has it."""
    from punctual.sim.stored import runs_in

    if job is None:
        raise InvalidSpec(
            "a simulated job must be named", "no name", "`punctual why --study`",
            "Names are in the table that `punctual simulate --export` writes.",
        )  # fmt: skip
    told: set[str] = set()
    for run in sorted(runs_in(folder), key=lambda run: run.seed):
        rows = [row for row in run.decisions.iter_rows(named=True) if row["job"] == job]
        if rows and run.policy not in told:
            told.add(run.policy)
            _tell_policy(run.policy, run.seed, rows[-last:], as_json=as_json)
    if not told:
        raise InvalidSpec(
            "the job must be one of the study", f"'{job}'", f"'{folder}'",
            "Names are in the table that `punctual simulate --export` writes.",
        )  # fmt: skip


def _tell_policy(policy: str, seed: int, rows: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    if not as_json:
        write_line(f"{policy}, seed {seed}:")
    for row in rows:
        if as_json:
            write_json({"policy": policy, "seed": seed, **row})
        else:
            write_line(f"{span(row['at']):>12}  {_request_text(row)}: {row['text']}{proven(row['gap_frac'])}")


def _request_text(row: dict[str, Any]) -> str:
    """Format a request: `resize to 4 devices on 2 nodes`."""
    if row["kind"] in {"pause", "reject"}:
        return str(row["kind"])
    n_devices, n_nodes = row["n_devices"], row["n_nodes"]
    amount = counted(n_devices, "device") if n_devices else cores(row["cores"])
    where = f" on {n_nodes} nodes" if n_nodes > 1 else ""
    return f"{row['kind']}{' to' if row['kind'] == 'resize' else ' with'} {amount}{where}"
