"""`punctual clean`."""

import os
import time
from pathlib import Path
from typing import cast

import pytest
from tests.cli.programs import SILENT, Terminal

from punctual.core.ids import JobId
from punctual.core.job import JobState
from punctual.daemon import paths
from punctual.daemon.run_folder import create_run

DAY_S = 86_400.0


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """With three runs that ended, a new one, an old one and a very old one, and one that was interrupted."""
    terminal = Terminal(tmp_path)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    for name, state, age_s in (
        ("new", "finished", 0.0),
        ("old", "failed", 10 * DAY_S),
        ("very-old", "finished", 40 * DAY_S),
        ("cut-off", "running", 40 * DAY_S),
    ):
        run, ended_at = create_run(name), time.time() - age_s
        if state == "running":
            run.record_job(JobId(name), "running")
        else:
            with monkeypatch.context() as patched:
                patched.setattr(time, "time", lambda: ended_at)  # noqa: B023 -- it is called at once
                run.record_end(JobId(name), cast(JobState, state))
        run.remove_live_places()
        for file in run.state_dir.iterdir():
            os.utime(file, (ended_at, ended_at))
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
    done = terminal.tell("clean", *options)
    assert done.returncode == 0, done.stderr
    assert runs_of(terminal) == kept
    assert f"{4 - len(kept)} job" in done.stdout
    assert " freed" in done.stdout
    assert ("--interrupted" in done.stdout) == ("cut-off" in kept)


def test_a_dry_run_removes_nothing(terminal: Terminal) -> None:
    done = terminal.tell("clean", "--all", "--dry-run")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["new", "old", "very-old"]
    assert "3 jobs would be removed" in lines[3]
    assert len(runs_of(terminal)) == 4


@pytest.mark.parametrize("options", [["--all", "--older-than", "7d"], ["--older-than", "soon"]])
def test_what_cannot_be_meant_is_a_four_part_error(terminal: Terminal, options: list[str]) -> None:
    done = terminal.tell("clean", *options)
    assert done.returncode == 2
    for part in ("error: ", "got:", "for:", "to do:", "--older-than"):
        assert part in done.stderr
    assert len(runs_of(terminal)) == 4


def test_a_new_run_removes_what_is_beyond_the_limits(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--name", "next", "--", *terminal.script(SILENT))
    assert "Landed" in done.stderr
    assert runs_of(terminal) == ["cut-off", "daemon", "new", "old"]
