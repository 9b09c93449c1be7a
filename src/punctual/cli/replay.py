"""`punctual replay`: what another policy would have done with the live jobs of a journal."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from punctual.cli._policy_table import failures_in_words, print_policies
from punctual.cli._study import EXIT_FAILED, as_fields, check_folder
from punctual.cli._study_page import write_page
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.units import format_duration
from punctual.runtime.local_host import HostOptions
from punctual.runtime.runs import find_job, known_jobs, known_runs
from punctual.sim.recorded import UNUSED_KINDS
from punctual.sim.replay import Replay
from punctual.sim.replay import replay as played
from punctual.store.codec import decode
from punctual.store.sqlite import SqliteJournal

FOLDER = Path("replay")
_JOURNAL_FILE, _RECORD_FILE = "journal.db", "run.json"
_N_ROWS = 500
#: So many jobs are named with why they are estimated or left out; `--json` has all.
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
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where results go, for `compare` and `why --study`.")
    ] = FOLDER,
    report: Annotated[bool, typer.Option(help="Write DIR/report.html.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Play the live jobs of a journal again, under the policy that ran and under others."""
    path = journal_of(journal)
    with SqliteJournal(path, read_only=True) as opened:
        last = opened.last_sequence  # a host may write on: both readings end here

        def read() -> Iterator[Message]:
            return _messages(opened, last)

        check_folder(out, "--out")
        outcome = played(read, path, ran or _policy_of(path), _others(policy), out)
    page = out / "report.html" if report else None
    if page is not None:
        write_page(outcome.result, page)
    _tell(outcome, page, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if outcome.result.failures else 0)


def _others(policy: list[str] | None) -> list[str]:
    return list(dict.fromkeys(policy or ()))


def journal_of(text: str) -> Path:
    """The journal that `text` means: a file, the folder of a run, or the name of a run or of a job of one.

    Raises
    ------
    InvalidSpec
        There is none.
    """
    path = Path(text)
    if path.is_file():
        return path
    if (path / _JOURNAL_FILE).is_file():
        return path / _JOURNAL_FILE
    if path.is_dir() or len(path.parts) > 1:
        raise InvalidSpec(
            "a journal must be a file, or the folder of a run that has one",
            f"a folder without `{_JOURNAL_FILE}`" if path.is_dir() else "no such file or folder",
            f"'{text}'",
            "Name a run of `punctual ps --all`, its folder, or a copy of its `journal.db`.",
        )
    run = next((run for run in known_runs() if run.name == text), None)
    return run.journal if run is not None else find_job(text, known_jobs()).run.journal


def _policy_of(journal: Path) -> str:
    """The policy with which the run began, as the record beside its journal says; else the default of a host."""
    try:
        record: dict[str, Any] = json.loads((journal.parent / _RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    return HostOptions(**record.get("options", {})).policy


def _messages(journal: SqliteJournal, last: int) -> Iterator[Message]:
    """The messages up to number `last` that a replay needs, oldest first."""
    sequence = 1
    while rows := journal.rows_from(sequence, _N_ROWS):
        for number, kind, body in rows:
            if number > last:
                return
            if kind not in UNUSED_KINDS:
                yield decode(kind, body)
        sequence = rows[-1][0] + 1


def _tell(outcome: Replay, page: Path | None, *, as_json: bool) -> None:
    result, load = outcome.result, outcome.load
    if as_json:
        about = {
            "faithfulness": outcome.faithfulness and asdict(outcome.faithfulness),
            "estimated": load.estimated,
            "left_out": load.left_out,
            "unsteered_s": load.unsteered_s,
        }
        sys.stdout.write(json.dumps({**as_fields(result, page), **about}, indent=1) + "\n")
    else:
        print_policies(result)
        sys.stdout.write("".join(f"{line}\n" for line in _lines(outcome)))
        if page is not None:
            sys.stdout.write(f"report: {page}\n")
    sys.stderr.write(failures_in_words(result))


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
