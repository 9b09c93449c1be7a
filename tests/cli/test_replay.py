"""`punctual replay` as a user has it."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.sim.test_replay import lived

from punctual.store.sqlite import SqliteJournal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    with SqliteJournal(tmp_path / "journal.db") as journal:
        journal.append(lived())
    yield terminal
    terminal.close()


def test_a_journal_is_played_under_the_policy_that_ran_and_under_another(terminal: Terminal) -> None:
    with SqliteJournal(terminal.folder / "journal.db"):  # a host writes it
        done = terminal.tell("replay", ".", "--policy", "fifo", "--no-report")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split()[:3] == ["policy", "deadlines", "met"]
    assert [row[:12].rstrip() for row in rows[1:4]] == ["as it was li", "promises-fir", "fifo"]
    assert "Of 5 jobs that landed, half land within" in done.stdout

    told = terminal.tell("replay", "journal.db", "--policy", "fifo", "--json", "--no-report")
    fields = json.loads(told.stdout)
    assert [row["policy"] for row in fields["policies"]] == ["as it was live", "promises-first, replayed", "fifo"]
    assert (fields["faithfulness"]["n_landed"], fields["left_out"]) == (5, {})
    compared = terminal.tell("compare", "replay", "--baseline", "promises-first, replayed", "--json")
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
        ("none-such",): "the name must be that of exactly one job",
        ("folder",): "a journal must be a file, or the folder of a run that has one",
        ("journal.db", "--policy", "none-such"): "the name must be one of the policies",
        ("empty.db",): "a journal must have jobs whose work is known",
        ("older.db",): "the journal must be of version",
    }
    for arguments, must in refused.items():
        done = terminal.tell("replay", *arguments, "--no-report")
        assert done.returncode == 2
        assert must in done.stderr
        assert "to do: " in done.stderr
