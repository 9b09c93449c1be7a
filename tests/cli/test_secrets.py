"""What is secret on a command line reaches the job, and no file that can be read later."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest
from tests.cli.programs import SPIN, Terminal, objects
from tests.waiting import PATIENCE_S, wait_until

from punctual.request.redaction import LEFT_OUT

KEY, TOKEN = "k3y-of-the-user", "t0ken-of-the-user"

#: Says what it was called with to a file, and waits until it may go on.
TELLING = (
    SPIN
    + """
import os, pathlib, sys, time, punctual
pathlib.Path("told").write_text(" ".join(sys.argv[1:]) + " " + os.environ.get("KEY", ""))
for i in punctual.track(range(20), total_steps=20):
    step()
    while i == 5 and not pathlib.Path("go").exists():
        pathlib.Path("begun").touch()
        time.sleep(0.01)
"""
)
WORDS = ("--api-key", TOKEN, f"x{KEY}x")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("KEY", KEY)
    made = Terminal(tmp_path)
    yield made
    made.close()
    assert made.left_behind() == []


def holding(terminal: Terminal, *secrets: str) -> dict[str, int]:
    """The files of runs that hold one of `secrets`, and who may read them."""
    files = [file for file in terminal.home.rglob("*") if file.is_file()]
    return {
        file.name: S_IMODE(file.stat().st_mode)
        for file in files
        if any(secret.encode() in file.read_bytes() for secret in secrets)
    }


def test_secrets_reach_the_job_and_no_file_that_stays(terminal: Terminal) -> None:
    command = terminal.start(
        "run", "--name", "job", "--json", "--secret-env", "KEY", "--", *terminal.script(TELLING), *WORDS
    )
    wait_until(lambda: (terminal.folder / "begun").exists() or command.poll() is not None)
    held = holding(terminal, KEY, TOKEN)
    assert held.keys() <= {"journal.db", "journal.db-wal"}
    assert set(held.values()) == {0o600}
    terminal.go_on()
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    assert (terminal.folder / "told").read_text() == " ".join([*WORDS, KEY])
    wait_until(lambda: holding(terminal, KEY, TOKEN) == {})
    assert KEY not in output
    assert TOKEN not in output
    (told,) = (json.loads(line) for line in terminal.tell("ps", "--all", "--json").stdout.splitlines())
    assert told["argv"][-3:] == ["--api-key", LEFT_OUT, f"x{LEFT_OUT}x"]


def test_a_job_that_is_started_again_after_a_crash_gets_its_whole_command_line(terminal: Terminal) -> None:
    (terminal.folder / "jobs.toml").write_text(
        f'[[job]]\nprogram = {[*terminal.script(TELLING), *WORDS]}\nname = "job"\nretries = 3\nsecret_env = ["KEY"]\n'
    )
    command = terminal.start("run", "--jobs", "jobs.toml")
    wait_until(lambda: (terminal.folder / "begun").exists() or command.poll() is not None)
    command.kill()
    command.wait()
    terminal.kill_daemon()
    record = json.loads((terminal.home / "runtime" / "live" / "daemon" / "job.supervisor.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    (terminal.folder / "told").unlink()
    terminal.go_on()
    wait_until(lambda: [job["state"] for job in terminal.jobs()] == ["interrupted"])
    resumed = terminal.start("attach", "--json")
    output, errors = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, errors
    assert (terminal.folder / "told").read_text() == " ".join([*WORDS, KEY])
    assert objects(output)[-1]["status"] == "finished"
    wait_until(lambda: holding(terminal, KEY, TOKEN) == {})


def test_a_secret_that_is_not_set_is_refused(terminal: Terminal) -> None:
    refused = terminal.punctual("run", "--secret-env", "NOT_SET", "--", *terminal.script(TELLING))
    assert refused.returncode == 2
    assert "`--secret-env` must name a variable that is set" in refused.stderr
    assert not (terminal.folder / "told").exists()


def test_no_file_of_a_run_is_for_others_whatever_the_umask(terminal: Terminal) -> None:
    """A page may hold the key of a training on several nodes; the end of a job that nobody steers keeps its page."""
    before = os.umask(0)
    try:
        command = terminal.start("run", "--name", "job", "--", *terminal.script(TELLING), *WORDS)
    finally:
        os.umask(before)
    wait_until(lambda: (terminal.folder / "begun").exists() or command.poll() is not None)

    def open_to_others() -> dict[str, str]:
        return {
            str(file.relative_to(terminal.home)): f"{S_IMODE(file.stat().st_mode):o}"
            for file in terminal.home.rglob("*")
            if not file.is_symlink() and not file.is_socket() and file.stat().st_mode & 0o077
        }

    run = terminal.home / "state" / "runs" / "daemon"
    assert (run / "job.end.json.new").exists()
    assert open_to_others() == {}
    command.kill()
    command.wait()
    terminal.kill_daemon()
    terminal.go_on()
    wait_until((run / "job.end.json").exists)
    assert "page" in json.loads((run / "job.end.json").read_text())
    assert open_to_others() == {}
    wait_until(lambda: terminal.jobs() == [])  # which clears away what the killed daemon has left
