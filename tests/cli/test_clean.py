"""`punctual clean`."""

import os
import time
from pathlib import Path

import pytest
from tests.cli.pieces import submitted
from tests.cli.programs import Terminal

from punctual.core.events import JobFinished
from punctual.core.protocols import Message
from punctual.runtime import paths
from punctual.store.sqlite import SqliteJournal

DAY_S = 86_400.0


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """With three runs that ended, a new one, an old one and a very old one, and one that was interrupted."""
    terminal = Terminal(tmp_path)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    job = submitted(1.0).spec.id
    ended: list[Message] = [submitted(1.0), JobFinished(at=2.0, job=job, landed_at=2.0)]
    for name, messages, age_s in (
        ("new", ended, 0.0),
        ("old", ended, 10 * DAY_S),
        ("very-old", ended, 40 * DAY_S),
        ("cut-off", ended[:1], 40 * DAY_S),
    ):
        folder = paths.state_root() / name
        folder.mkdir()
        with SqliteJournal(folder / "journal.db") as journal:
            journal.append(messages)
        written_at = time.time() - age_s
        os.utime(folder / "journal.db", (written_at, written_at))
    return terminal


def runs_of(terminal: Terminal) -> list[str]:
    return sorted(folder.name for folder in (terminal.home / "state" / "runs").iterdir())


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], ["cut-off", "new", "old"]),
        (["--older-than", "7d"], ["cut-off", "new"]),
        (["--all"], ["cut-off"]),
        (["--all", "--interrupted"], []),
        (["--interrupted"], ["new", "old"]),
    ],
    ids=" ".join,
)
def test_what_is_removed(terminal: Terminal, options: list[str], kept: list[str]) -> None:
    done = terminal.punctual("clean", *options)
    assert done.returncode == 0, done.stderr
    assert runs_of(terminal) == kept
    assert f"{4 - len(kept)} run" in done.stdout
    assert " freed" in done.stdout
    assert ("--interrupted" in done.stdout) == ("cut-off" in kept)


def test_a_dry_run_removes_nothing(terminal: Terminal) -> None:
    done = terminal.punctual("clean", "--all", "--dry-run")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["new", "old", "very-old"]
    assert "3 runs would be removed" in lines[3]
    assert len(runs_of(terminal)) == 4


@pytest.mark.parametrize("options", [["--all", "--older-than", "7d"], ["--older-than", "soon"]])
def test_what_cannot_be_meant_is_a_four_part_error(terminal: Terminal, options: list[str]) -> None:
    done = terminal.punctual("clean", *options)
    assert done.returncode == 2
    for part in ("error: ", "got:", "for:", "to do:"):
        assert part in done.stderr
    assert len(runs_of(terminal)) == 4
