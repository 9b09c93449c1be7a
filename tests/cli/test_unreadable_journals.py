"""A journal that this user may not use: every command says so and what to do, and nothing of it is lost."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.programs import Terminal, without_rights
from tests.waiting import PATIENCE_S

#: Runs `punctual` as a user to whom modes and owners of files apply: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH.
BOUND = without_rights(1, 2)
RUN = ("run", "--quiet", "--actuator", "pacing", "--name", "new", "--", "true")
#: Commands that need what the journal says.
READING = (("ps", "--all"), ("logs", "old"))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


def told(terminal: Terminal, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = terminal.start_forked("-c", BOUND, *arguments)
    output, errors = process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


@pytest.fixture
def folder(terminal: Terminal) -> Path:
    """The folder of a run that has had a job."""
    first = told(terminal, "run", "--quiet", "--actuator", "pacing", "--name", "old", "--", "true")
    assert first.returncode == 0, first.stderr
    return terminal.home / "state" / "runs" / "daemon"


@contextmanager
def mode_of(place: Path, mode: int) -> Iterator[None]:
    """Give the file or folder another mode while the block runs."""
    before = place.stat().st_mode & 0o777
    place.chmod(mode)
    try:
        yield
    finally:
        place.chmod(before)


def check_refused(done: subprocess.CompletedProcess[str], place: Path, got: str) -> None:
    assert done.returncode == 2, (done.args, done.stdout, done.stderr)
    must, *others = done.stderr.splitlines()
    assert "a journal, with its folder, must be one that this user may" in must
    assert [line.split(":")[0].strip() for line in others[-3:]] == ["got", "for", "to do"]
    assert got in others[-3]
    assert f"'{place}'" in others[-2]


@pytest.mark.parametrize(("what", "mode"), [("journal.db", 0o000), (".", 0o000)])
def test_a_journal_that_may_not_be_read_is_told_by_each_command(
    what: str, mode: int, folder: Path, terminal: Terminal
) -> None:
    place = folder / what
    with mode_of(place, mode):
        for command in (*READING, RUN):
            check_refused(told(terminal, *command), place, f"mode {mode:o}")
        cleaned = told(terminal, "clean", "--all")
        assert "jobs are kept, because they are not known" in cleaned.stderr
        terminal.hide_torch()
        checked = told(terminal, "doctor")
        assert checked.returncode == 1
        assert f"mode {mode:o}" in checked.stdout
    done = told(terminal, *RUN)
    assert done.returncode == 0, done.stderr
    listed = told(terminal, "ps", "--all")
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [["old", "finished"], ["new", "finished"]]


@pytest.mark.parametrize(("what", "mode"), [("journal.db", 0o444), (".", 0o555)])
def test_a_journal_that_may_only_be_read_is_shown_and_no_job_is_run(
    what: str, mode: int, folder: Path, terminal: Terminal
) -> None:
    place = folder / what
    with mode_of(place, mode):
        listed = told(terminal, "ps", "--all")
        assert "old" in listed.stdout, listed.stderr
        check_refused(told(terminal, *RUN), place, f"mode {mode:o}")
    assert told(terminal, *RUN).returncode == 0


def test_a_database_of_the_service_that_may_not_be_used_is_told(terminal: Terminal) -> None:
    assert told(terminal, "token", "list").returncode == 0
    place = terminal.home / "state" / "service" / "service.db"
    place.chmod(0o000)
    for command in (("token", "list"), ("up", "--detach")):
        done = told(terminal, *command)
        assert done.returncode == 2, done.stderr
        assert "the database of the service, with its folder, must be one that this user may write" in done.stderr
        assert "Traceback" not in done.stderr
    place.chmod(0o600)
    assert told(terminal, "token", "list").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("what", ["journal.db", "."])
def test_a_journal_of_another_user_is_told(what: str, folder: Path, terminal: Terminal) -> None:
    place = folder / what
    os.chown(place, 1234, 1234)
    try:
        for command in (("ps", "--all"), RUN):
            done = told(terminal, *command)
            check_refused(done, place, "one of user 1234")
            assert "chown" in done.stderr
    finally:
        os.chown(place, 0, 0)
    assert told(terminal, *RUN).returncode == 0
