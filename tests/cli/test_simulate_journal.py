"""`punctual simulate --trace JOURNAL` as a user has it."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import INLINE, TRACKED, Terminal
from tests.sim.test_replay import lived

from punctual.cli._recorded import journal_named
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.daemon.run_folder import create_run
from punctual.journal.sqlite import SqliteJournal


@pytest.fixture(scope="module")
def journal_of_five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a host that has ended."""
    path = tmp_path_factory.mktemp("host") / "journal.db"
    with SqliteJournal(path) as journal:
        journal.append(lived())
    return path


@pytest.fixture
def terminal(tmp_path: Path, journal_of_five: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    shutil.copyfile(journal_of_five, tmp_path / "journal.db")
    yield terminal
    terminal.close()


def test_a_journal_is_played_under_the_policy_that_ran_and_under_another(terminal: Terminal) -> None:
    with SqliteJournal(terminal.folder / "journal.db"):  # a host writes it
        done = terminal.tell("simulate", "--trace", ".", "--policy", "fifo", *INLINE)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split()[:3] == ["policy", "deadlines", "met"]
    assert [row[:12].rstrip() for row in rows[1:4]] == ["as it was li", "promises-fir", "fifo"]
    assert "Of 5 jobs that landed, half land within" in done.stdout

    told = terminal.tell("simulate", "--trace", "journal.db", "--policy", "fifo", "--json", *INLINE)
    fields = json.loads(told.stdout)
    assert [row["policy"] for row in fields["policies"]] == ["as it was live", "promises-first, replayed", "fifo"]
    assert (fields["faithfulness"]["n_landed"], fields["left_out"]) == (5, {})
    compared = terminal.tell("compare", "simulation", "--baseline", "promises-first, replayed", "--json")
    assert compared.returncode == 0, compared.stderr
    assert len(json.loads(compared.stdout)["comparisons"]) == 2


def test_what_cannot_be_played_is_refused(terminal: Terminal) -> None:
    with SqliteJournal(terminal.folder / "empty.db"):
        pass
    connection = sqlite3.connect(terminal.folder / "older.db")
    with SqliteJournal(terminal.folder / "older.db"):
        pass
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    (terminal.folder / "folder").mkdir()
    refused = {
        ("none-such",): "a trace must be a readable, whole file",
        ("folder",): "a trace must be a file, or the folder of a run",
        ("journal.db", "--policy", "none-such"): "the name must be one of the policies",
        ("empty.db",): "a journal must have jobs whose work is known",
        ("older.db",): "the journal must be of version",
        ("journal.db", "--from", "+1h"): "a time of the past must be one that has been",
        ("journal.db", "--from", "1h", "--until", "2h"): "`--until` must be after `--from`",
        ("journal.db", "--load", "0.5"): "the jobs of a live journal must be played at the times",
        ("generator:poisson", "--policy", "live"): "the policy `live` must go with a live journal",
    }
    for arguments, must in refused.items():
        done = terminal.tell("simulate", "--trace", *arguments, *INLINE)
        assert done.returncode == 2
        assert must in done.stderr
        assert "to do: " in done.stderr


def test_the_jobs_of_a_real_host_are_played_whose_journal_is_found_by_its_name(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    python, script = terminal.script(TRACKED)
    jobs = (
        f"[[job]]\nname = '{name}'\nprogram = ['{python}', '{script}', '{n_steps}']\n"
        for name, n_steps in (("first", 20), ("second", 40))
    )
    (tmp_path / "jobs.toml").write_text("".join(jobs))
    begun_at = time.monotonic()
    ran = terminal.punctual("run", "--jobs", "jobs.toml", "--policy", "max-min", "--actuator", "pacing")
    assert ran.returncode == 0, ran.stderr

    (folder,) = (terminal.home / "state" / "runs").iterdir()
    for journal in (folder.name, "second", str(folder)):
        done = terminal.tell("simulate", "--trace", journal, "--policy", "fifo", "--json", *INLINE)
        assert done.returncode == 0, done.stderr
        fields = json.loads(done.stdout)
        assert [row["policy"] for row in fields["policies"]] == ["as it was live", "max-min, replayed", "fifo"]
        assert fields["faithfulness"]["n_landed"] == 2
        assert (fields["left_out"], fields["estimated"], fields["n_outside"]) == ({}, {}, 0)
    since = f"{time.monotonic() - begun_at + 60:.0f}s"
    assert terminal.tell("simulate", "--trace", "second", "--from", since, *INLINE).returncode == 0
    before = terminal.tell("simulate", "--trace", "second", "--until", since, *INLINE)
    assert before.returncode == 2
    assert "`--until` must be after `--from` and the first submission" in before.stderr


def test_a_job_names_the_jobs_of_its_daemon_and_not_those_before_and_after() -> None:
    run = create_run("daemon")
    with SqliteJournal(run.journal) as journal:
        for i, job in enumerate(("first", "second", "third")):
            journal.append([JobSubmitted(at=100.0 + 50.0 * i, spec=JobSpec(id=JobId(job), ceiling=Resources(1)))])
            journal.reset()
            run.record_end(JobId(job), "finished")
    path = str(run.journal)
    assert journal_named("first") == (path, {"trace.end_s": 50.0})
    assert journal_named("second") == (path, {"trace.start_s": 50.0, "trace.end_s": 100.0})
    assert journal_named("third") == (path, {"trace.start_s": 100.0})
    assert journal_named("daemon") == (path, {})
    assert journal_named("philly:some.csv") == ("philly:some.csv", {})
