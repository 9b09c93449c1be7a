"""`punctual replay`: the live jobs of a journal under other policies."""

from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._policy_table import failure_lines, print_policies
from punctual.cli._streams import write_line, write_lines
from punctual.cli._study import EXIT_FAILED, as_fields, check_folder
from punctual.cli._study_page import write_page
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.units import format_duration
from punctual.daemon.host_options import HostOptions
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import find_job, known_jobs, known_runs
from punctual.journal.boot import clock_shift
from punctual.journal.sqlite import About, SqliteJournal
from punctual.request.deadlines import Now, past_at
from punctual.request.json_text import json_text
from punctual.sim.recorded import UNUSED_KINDS, Period
from punctual.sim.replay import Replay
from punctual.sim.replay import replay as played

FOLDER = Path("replay")
#: Most jobs that are named with the reason why they are estimated or left out; `--json` has all.
_N_NAMED = 3


def replay(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="A run or a job of it, a run's folder, or a file.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:KEY=VALUE,...]", help="Another policy; give it several times for several."),
    ] = None,
    ran: Annotated[
        str | None, typer.Option(metavar="NAME", help="The policy that ran. [default: as the run's record says]")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Only jobs submitted since then: `18:00`, or `2h` ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only jobs submitted before then.")] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of results, for `compare` and `why --study`.")
    ] = FOLDER,
    report: Annotated[bool, typer.Option(help="Write DIR/report.html.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Play the jobs of a journal again under other policies. The policy that ran is played, too."""
    source, opened = _opened(journal)
    with opened:
        # A host may write on: all readings end here.
        about = About(but_kinds=UNUSED_KINDS, until=opened.last_sequence)
        period = _period(opened, from_, until)
        check_folder(out, "--out")
        outcome = played(
            lambda: (message for _, message in opened.read_from(1, about)),
            str(opened.path),
            ran or _policy_of(source),
            list(dict.fromkeys(policy or ())),
            out,
            period=period,
        )
    page = out / "report.html" if report else None
    if page is not None:
        write_page(outcome.result, page)
    _tell(outcome, page, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if outcome.result.failures else 0)


def _opened(text: str) -> tuple[RunFolder, SqliteJournal]:
    """Open the journal that `text` names for reading: a file, or that of a run, named by its folder or a job too.

    Raises
    ------
    InvalidSpec
        There is no such journal, or it cannot be read.
    """
    path = Path(text)
    if path.is_file():
        return _copied(path.parent), SqliteJournal(path, read_only=True)
    if path.is_dir() or len(path.parts) > 1:
        run = _copied(path)
        if not run.journal.is_file():
            raise InvalidSpec(
                "a journal must be a file, or the folder of a run that has one",
                f"a folder without `{run.journal.name}`" if path.is_dir() else "no such file or folder",
                f"'{text}'",
                "Name a run of `punctual ps --all`, its folder, or a copy of its `journal.db`.",
            )
    else:
        run = next((run for run in known_runs() if run.name == text), None) or find_job(text, known_jobs()).run
    return run, run.read_journal()


def _copied(folder: Path) -> RunFolder:
    """Return the run of this folder, or of a copy; it serves as both folders, as nothing of it runs there."""
    return RunFolder(folder.absolute().name, folder, folder)


def _policy_of(run: RunFolder) -> str:
    """Return the policy that ran, as the run's record says; else the default of a host."""
    return str(run.facts().get("options", {}).get("policy", HostOptions().policy))


def _period(journal: SqliteJournal, from_: str | None, until: str | None) -> Period:
    """Convert the options to a period of the journal's time.

    Raises
    ------
    InvalidSpec
        An option is not a time of the past, or they are in the wrong order.
    """
    now, shift_s = Now.read(), clock_shift(journal)
    period = Period(
        from_at=-inf if from_ is None else past_at(from_, now) - shift_s,
        until_at=inf if until is None else past_at(until, now) - shift_s,
    )
    if period.from_at >= period.until_at:
        raise InvalidSpec(
            "`--from` must be before `--until`",
            f"{from_} and {until}",
            "`punctual replay`",
            "Exchange them, or add a date.",
        )
    return period


def _tell(outcome: Replay, page: Path | None, *, as_json: bool) -> None:
    result, load = outcome.result, outcome.load
    if as_json:
        about = {
            "faithfulness": outcome.faithfulness and asdict(outcome.faithfulness),
            "estimated": load.estimated,
            "left_out": load.left_out,
            "n_outside": load.n_outside,
            "unsteered_s": load.unsteered_s,
        }
        write_lines(json_text({**as_fields(result, page), **about}, indent=1).split("\n"))
    else:
        print_policies(result)
        write_lines(_lines(outcome))
        if page is not None:
            write_line(f"report: {page}")
    write_lines(failure_lines(result), err=True)


def _lines(outcome: Replay) -> list[str]:
    load, faithfulness = outcome.load, outcome.faithfulness
    lines = []
    if faithfulness is not None and faithfulness.shift_s is not None:
        lines.append(
            f"Of {faithfulness.n_landed:,} jobs that landed, half land within {format_duration(faithfulness.shift_s)} of "
            f"their live landing when the same policy is replayed; of {faithfulness.n_with_deadline:,} with a deadline, "
            f"{faithfulness.n_same:,} keep or miss it as they did. Smaller differences between policies say nothing."
        )
    lines += _named("Estimated", load.estimated)
    lines += _named("Left out", load.left_out)
    if load.n_outside:
        lines.append(
            f"Not played: {load.n_outside:,} jobs submitted at other times, whatever they took of the machine."
        )
    if load.unsteered_s:
        lines.append(f"Nobody steered for {format_duration(load.unsteered_s)}; the replay steers all the time.")
    if load.policy_changes:
        names = ", ".join(dict.fromkeys(change.policy for change in load.policy_changes))
        lines.append(f"The policy was changed while jobs ran ({names}); 'replayed' changes it at the same instants.")
    return lines


def _named(heading: str, jobs: dict[JobId, str]) -> list[str]:
    if not jobs:
        return []
    told = "; ".join(f"{job} ({why})" for job, why in list(jobs.items())[:_N_NAMED])
    more = f"; and {len(jobs) - _N_NAMED:,} more" if len(jobs) > _N_NAMED else ""
    return [f"{heading}: {len(jobs):,} of the jobs: {told}{more}."]
