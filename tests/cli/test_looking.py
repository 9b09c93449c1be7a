"""What tells of jobs: `show`, `logs` and `top`."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.programs import objects
from tests.cli.test_service import Service, left
from tests.waiting import PATIENCE_S, wait_until

TALKING = """
import pathlib, sys, time, punctual
for i in punctual.track(range(4), total_steps=4):
    print("line", i, flush=True)
    while i == 2 and not pathlib.Path("go").exists():
        pathlib.Path("begun").touch()
        time.sleep(0.01)
print("no end of line", end="", flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.go_on()
    wait_until(lambda: made.jobs() == [])
    made.punctual("down")
    made.close()


def submit_talking(machine: Service) -> "subprocess.Popen[str]":
    """A service with a job that has written three lines and waits."""
    service = machine.up()
    script = machine.script(TALKING)
    told = machine.punctual("submit", "--name", "talk", "--deadline", "1h", "--cores", "0.5..1", "--", *script)
    assert told.returncode == 0, told.stderr
    wait_until((machine.folder / "begun").exists)
    wait_until(lambda: "line 2" in machine.punctual("logs", "talk").stdout)
    return service


def test_a_job_is_shown_and_its_output_followed_to_its_end(machine: Service) -> None:
    service = submit_talking(machine)
    shown = wait_until(
        lambda: json.loads(machine.tell("show", "talk", "--json").stdout),
        lambda told: told["steps_done"] == 2,
    )
    assert (shown["job"], shown["state"], shown["steps_total"]) == ("talk", "running", 4)
    assert (shown["floor_cores"], shown["ceiling_cores"], shown["weight"]) == (0.5, 1.0, 1.0)
    assert shown["argv"][1].endswith("train.py")
    assert shown["cwd"] == str(machine.folder)
    assert (round(shown["deadline_s"]), shown["policy"]) == (3600, "promises-first")
    [running] = objects(machine.tell("ps", "--json").stdout)
    text = machine.tell("show").stdout
    for told in ("talk", "running", "train.py", "step 2 of 4", "0.5 to 1 cores", "promised", "pacing"):
        assert told in text
    assert text.startswith("Measuring: its speed is not known yet; due in 1 h; holds 1 of 2 cores")
    assert [line["text"] for line in objects(machine.punctual("logs", "--lines", "2", "--json").stdout)] == [
        "line 1",
        "line 2",
    ]
    follower = machine.start("logs", "talk", "--follow", "--lines", "1")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "line 2\n"
    machine.go_on()
    rest, errors = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 0, errors
    assert rest == "line 3\nno end of line"
    assert machine.punctual("logs", "talk").stdout == "line 0\nline 1\nline 2\nline 3\nno end of line"
    assert machine.punctual("logs", "talk", "--lines", str(2**63 - 1)).stdout.startswith("line 0\n")
    assert objects(machine.punctual("logs", "talk", "--json").stdout)[-1]["text"] == "no end of line"
    assert machine.punctual("logs", "talk", "--since", "1h").stdout.startswith("line 0\n")
    assert machine.punctual("logs", "talk", "--since", "0s").stdout == ""
    assert machine.punctual("logs", "talk", "--since", "+1h").returncode == 2
    log = next((machine.home / "state").rglob("talk.log"))
    log.with_name("talk.log.1").write_text("line -2\nline -1\n")  # rotated away, as if it had been long
    whole = f"line -2\nline -1\n{log.read_text()}"
    assert [machine.punctual("logs", "talk", *asked).stdout for asked in ((), ("--follow",))] == [whole] * 2
    assert machine.punctual("logs", "talk", "--lines", "6").stdout == whole.partition("\n")[2]
    ended = json.loads(machine.tell("show", "talk", "--json").stdout)
    assert (ended["state"], ended["exit_code"], ended["steps_done"]) == ("finished", 0, 4)
    assert ended["landed_s"] > 0
    [listed] = objects(machine.tell("ps", "--all", "--json").stdout)
    assert listed.keys() <= ended.keys()
    assert listed.keys() == running.keys()
    assert "finished" in machine.tell("show").stdout
    service.terminate()
    left(service)


def test_a_job_that_nobody_steers_is_shown_as_such(machine: Service) -> None:
    service = submit_talking(machine)
    wait_until(lambda: json.loads(machine.tell("show", "talk", "--json").stdout)["steps_total"] == 4)
    machine.kill(service)
    shown = json.loads(machine.tell("show", "talk", "--json").stdout)
    assert (shown["state"], shown["steps_total"]) == ("unsteered", 4)
    assert "unsteered" in machine.tell("show").stdout


def test_all_jobs_are_shown_on_a_terminal_until_ctrl_c(machine: Service) -> None:
    service = submit_talking(machine)
    assert [job["job"] for job in objects(machine.punctual("ps", "--watch", "--json").stdout)] == ["talk"]
    assert "talk" in machine.punctual("ps", "--watch").stdout
    terminal_fd, stdout_fd = pty.openpty()
    environment = {**os.environ, "PUNCTUAL_HOME": str(machine.home), "TERM": "xterm", "COLUMNS": "100"}
    top = subprocess.Popen(
        [sys.executable, "-m", "punctual", "ps", "--watch"],
        env=environment,
        stdout=stdout_fd,
        # Also where the tests run in the background, whose processes ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 -- it does nothing else
    )
    os.close(stdout_fd)
    try:
        seen = b""
        while b"talk" not in seen:
            seen += os.read(terminal_fd, 65536)
        top.send_signal(signal.SIGINT)
        with suppress(OSError):  # which says that the terminal's other end is closed
            while os.read(terminal_fd, 65536):
                continue
        assert top.wait(PATIENCE_S) == 130
    finally:
        top.kill()
        top.wait()
        os.close(terminal_fd)
    assert machine.daemon_pid() == service.pid


def test_a_job_that_has_written_nothing_has_no_log(machine: Service) -> None:
    machine.punctual("run", "--actuator", "pacing", "--name", "mute", "--", "true")
    refused = machine.tell("logs", "no-such-job")
    assert refused.returncode == 2
    assert "exactly one job" in refused.stderr
