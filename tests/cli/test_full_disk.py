"""A disk without room below the folders of runs: nothing is half done, and it is told."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.programs import PAUSING, TRACKED, Terminal, objects
from tests.small_disk import fill, mounted
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


def test_without_room_for_a_journal_the_job_goes_on_and_is_steered_again_once_there_is(
    terminal: Terminal, small_disk: Path
) -> None:
    terminal.home.symlink_to(small_disk)
    run = terminal.begin(PAUSING, "--name", "job", "--deadline", "60s", "--actuator", "pacing", "--json")
    filler = fill(small_disk)
    assert run.stderr is not None
    told = next(line for line in run.stderr if "cannot be taken over" in line)
    assert "to do" in told or "No space left" in told or "disk is full" in told
    assert [job["state"] for job in terminal.jobs()] != ["running"]
    filler.unlink()
    wait_until(lambda: [job["state"] for job in terminal.jobs()], lambda states: states in (["running"], ["stalled"]))
    wait_until(lambda: terminal.tell("deadline", "job", "1s").returncode == 0)  # it is slowed down until then
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    report = objects(output)[-1]
    assert (report["status"], report["steps_done"]) == ("finished", 200)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_command_can_be_interrupted_while_no_daemon_can_be_started(
    is_recorded: bool, terminal: Terminal, small_disk: Path
) -> None:
    """The first Ctrl-C ends the job, and the third the command if the job's end can be recorded nowhere."""
    terminal.home.symlink_to(small_disk)
    run = terminal.begin(PAUSING, "--name", "job", "--deadline", "60s", "--actuator", "pacing")
    if not is_recorded:
        (small_disk / "state" / "runs" / "daemon" / "job.end.json").mkdir()
    fill(small_disk)
    assert run.stderr is not None
    next(line for line in run.stderr if "cannot be taken over" in line)
    run.send_signal(signal.SIGINT)
    if not is_recorded:
        wait_until(lambda: _processes_of(terminal) == [])
        wait_until(lambda: _interrupted(run), pause_s=0.5)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == (130 if is_recorded else 2)
    assert ("to do: " in errors) is not is_recorded
    assert errors.count("Traceback") <= 1, "the program's own"


def _interrupted(run: "subprocess.Popen[str]") -> bool:
    """Interrupt a command again; return whether it has ended."""
    run.send_signal(signal.SIGINT)
    return run.poll() is not None


def _processes_of(terminal: Terminal) -> list[str]:
    """Return the processes of the job that have not ended."""
    command, found = f"{sys.executable}\0{terminal.folder / 'train.py'}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().startswith(command):
                found.append(entry.name)
    return found


@pytest.mark.parametrize(("last", "code"), [("", 0), ("; import sys; sys.exit(3)", 3)])
def test_a_job_that_has_ended_is_told_as_ended_although_no_daemon_can_write_it(
    last: str, code: int, terminal: Terminal
) -> None:
    run = terminal.begin(
        PAUSING.replace('print("trained", flush=True)', "pass") + f"print('trained'){last}\n", "--json"
    )
    log = terminal.home / "state" / "daemon.log"
    log.rename(log.with_name("before"))
    log.mkdir()  # no daemon can be started
    terminal.kill_daemon()
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    report = objects(output)[-1]
    assert (run.returncode, report["job_exit_code"], report["steps_done"]) == (code, code, 200), errors
    assert "is written by the next daemon" in errors
    assert "Traceback" not in errors
    log.rmdir()
    assert terminal.jobs() == []
    (job,) = objects(terminal.tell("ps", "--all", "--json").stdout)
    assert job["state"] == ("failed" if code else "finished")


def test_without_room_at_the_start_nothing_is_begun(terminal: Terminal, small_disk: Path) -> None:
    terminal.home.symlink_to(small_disk)
    filler = fill(small_disk)
    refused = terminal.punctual("run", "--name", "job", "--", *terminal.script(TRACKED), "5")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "error: " in refused.stderr
    assert "to do: " in refused.stderr
    filler.unlink()
    done = terminal.punctual("run", "--name", "job", "--", *terminal.script(TRACKED), "5")
    assert done.returncode == 0, done.stderr


def test_no_command_ends_in_a_traceback_once_the_disk_is_full(terminal: Terminal, small_disk: Path) -> None:
    """The job has ended unsteered, and its end can be written nowhere."""
    terminal.home.symlink_to(small_disk)
    run = terminal.begin(PAUSING, "--name", "job", "--deadline", "60s", "--actuator", "pacing")
    fill(small_disk)
    wait_until(terminal.jobs, lambda jobs: [job["state"] for job in jobs] != ["running"])
    run.kill()
    run.wait()
    terminal.go_on()
    wait_until(lambda: terminal.jobs() == [])
    for words in ("ps --all", "doctor", "why job", "submit -- true", "up", "run -- true", "clean"):
        fill(small_disk)  # the job has given some room back, and a command may have
        told = terminal.punctual("run", "--", "true") if words == "run -- true" else terminal.tell(*words.split())
        assert "Traceback" not in told.stderr + told.stdout, words
        if words in ("submit -- true", "up", "run -- true"):
            assert told.returncode == 2, words
            assert "No space left on device" in told.stderr or "disk is full" in told.stderr
        if words == "ps --all":
            assert "job " in told.stdout
