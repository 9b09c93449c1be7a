"""A job ends under `punctual run` as it would end alone: Ctrl-C, SIGTERM, the signals of batch systems; live."""

import signal
from pathlib import Path
from subprocess import Popen

import pytest
from tests.cli.programs import PAUSING, Terminal, objects
from tests.waiting import PATIENCE_S, wait_until

#: Tells what it got, and goes on after it as a test says by a file `saves`, which it waits for.
CATCHING = """
import pathlib, signal, sys, time, punctual
def heard(number, _):
    with open("heard", "a") as file:
        file.write(f"{number} ")
    while not pathlib.Path("saves").exists():
        time.sleep(0.01)
    pathlib.Path("saved").touch()
    sys.exit(3)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, heard)
try:
    for i in punctual.track(range(10**6)):
        time.sleep(0.01)
        pathlib.Path("begun").touch()
except KeyboardInterrupt:
    print("exiting from training early", flush=True)
finally:
    pathlib.Path("finally").touch()
print("test loss 1.23", flush=True)
"""

#: Has a hook that takes as long as a test wants.
HOOKED = """
import pathlib, time, punctual
@punctual.on_stop
def save():
    pathlib.Path("saving").touch()
    while not pathlib.Path("saves").exists():
        time.sleep(0.01)
    pathlib.Path("saved").touch()
for i in punctual.track(range(10**6)):
    time.sleep(0.01)
    pathlib.Path("begun").touch()
"""


def begun(terminal: Terminal, program: str, *options: str) -> "Popen[str]":
    """A job that trains, and of which that is known."""
    run = terminal.begin(program, "--deadline", "1h", *options)
    terminal.wait_for_job(lambda job: (job["steps_done"] or 0) > 0)
    return run


def wait_for_file(terminal: Terminal, name: str) -> None:
    wait_until((terminal.folder / name).exists)


def test_a_program_that_catches_ctrl_c_ends_as_it_would_alone(terminal: Terminal) -> None:
    run = begun(terminal, CATCHING)
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert output.splitlines() == ["exiting from training early", "test loss 1.23"]
    assert run.returncode == 0, errors
    assert "The job was stopped (Ctrl-C) at step" in errors


def test_a_program_that_does_not_catch_ctrl_c_runs_its_finally_blocks(terminal: Terminal) -> None:
    run = begun(terminal, CATCHING.replace("except KeyboardInterrupt", "except ZeroDivisionError"))
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, errors
    assert (terminal.folder / "finally").exists()
    assert "KeyboardInterrupt" in errors


#: Saves on Ctrl-C as `CATCHING` does on SIGTERM.
SAVING = CATCHING.replace("except KeyboardInterrupt:", "except KeyboardInterrupt:\n    heard(2, None)")
#: Notes each further Ctrl-C while it saves.
PATIENT = SAVING.replace("    heard(2", "    signal.signal(2, lambda *_: pathlib.Path('again').touch())\n    heard(2")
#: Is told of Ctrl-C, and does not care.
DEAF_TO_CTRL_C = CATCHING.replace("try:", "signal.signal(2, signal.SIG_IGN)\ntry:")


@pytest.mark.parametrize("program", [SAVING, HOOKED])
def test_a_second_ctrl_c_interrupts_what_the_first_one_began(program: str, terminal: Terminal) -> None:
    run = begun(terminal, program)
    run.send_signal(signal.SIGINT)
    wait_for_file(terminal, "heard" if program is SAVING else "saving")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, errors
    assert "KeyboardInterrupt" in errors
    assert not (terminal.folder / "saved").exists()


def test_a_program_that_goes_on_saving_after_a_second_ctrl_c_is_let_to(terminal: Terminal) -> None:
    run = begun(terminal, PATIENT)
    for heard in ("heard", "again"):
        run.send_signal(signal.SIGINT)
        wait_for_file(terminal, heard)
    (terminal.folder / "saves").touch()
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert (terminal.folder / "saved").exists()
    assert run.returncode == 3, errors


def test_a_third_ctrl_c_kills(terminal: Terminal) -> None:
    run = begun(terminal, PATIENT)
    for heard in ("heard", "again"):
        run.send_signal(signal.SIGINT)
        wait_for_file(terminal, heard)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, errors
    assert not (terminal.folder / "saved").exists()
    assert "--stop-grace" not in errors


def test_a_second_ctrl_c_kills_what_ignores_it(terminal: Terminal) -> None:
    run = begun(terminal, DEAF_TO_CTRL_C)
    run.send_signal(signal.SIGINT)
    terminal.wait_for_job(lambda job: job["state"] == "stopping")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, errors


def test_ctrl_z_halts_the_command_and_tells_that_the_job_goes_on(terminal: Terminal) -> None:
    run = begun(terminal, CATCHING)
    run.send_signal(signal.SIGTSTP)
    told = next(line for line in iter(run.stderr.readline, "") if "halts" in line)
    assert "`punctual pause`" in told
    done = terminal.jobs()[0]["steps_done"]
    terminal.wait_for_job(lambda job: job["steps_done"] > done)
    for number in (signal.SIGCONT, signal.SIGINT):
        run.send_signal(number)
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGXCPU])
def test_a_handler_has_its_time_and_its_exit_status(number: signal.Signals, terminal: Terminal) -> None:
    run = begun(terminal, CATCHING)
    run.send_signal(number)
    wait_for_file(terminal, "heard")
    (terminal.folder / "saves").touch()
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert (terminal.folder / "saved").exists()
    assert (terminal.folder / "heard").read_text() == f"{signal.SIGTERM:d} "
    assert run.returncode == 3, errors
    assert f"The job was stopped ({number.name}) at step" in errors


def test_punctual_stop_asks_in_the_same_way(terminal: Terminal) -> None:
    run = begun(terminal, CATCHING)
    assert terminal.tell("stop").returncode == 0
    wait_for_file(terminal, "heard")
    (terminal.folder / "saves").touch()
    run.communicate(timeout=PATIENCE_S)
    assert (terminal.folder / "saved").exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_before_a_limit_of_time_are_passed_on(number: signal.Signals, terminal: Terminal) -> None:
    (terminal.folder / "saves").touch()
    run = begun(terminal, CATCHING)
    run.send_signal(number)
    run.communicate(timeout=PATIENCE_S)
    assert (terminal.folder / "heard").read_text() == f"{number:d} "
    assert run.returncode == 3


@pytest.mark.parametrize("program", [CATCHING, HOOKED])
def test_a_checkpoint_that_was_cut_off_is_told_everywhere(program: str, terminal: Terminal) -> None:
    run = begun(terminal, program, "--stop-grace", "200ms", "--name", "cut", "--json")
    run.send_signal(signal.SIGTERM)
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 143, errors
    assert not (terminal.folder / "saved").exists()
    *told, report = objects(output)
    text = next(line["text"] for line in told if line.get("code") == "cut-off")
    assert "a checkpoint that it was making is not whole" in text
    assert "is not whole" in report["text"]
    assert "cut-off" in [warning["code"] for warning in report["warnings"]]
    assert "is not whole" in terminal.tell("why", "cut").stdout


def test_a_hook_may_take_as_long_as_was_asked_for(terminal: Terminal) -> None:
    run = begun(terminal, HOOKED, "--stop-grace", "1h")
    run.send_signal(signal.SIGTERM)
    wait_for_file(terminal, "saving")
    (terminal.folder / "saves").touch()
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 143, errors
    assert (terminal.folder / "saved").exists()
    assert "is not whole" not in errors


#: Runs `punctual` with signals that are ignored from its start, and others that are blocked.
DEAF = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGUSR2])
os.execv(sys.executable, [sys.executable, "-m", "punctual", *sys.argv[1:]])
"""


def _mask(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith(f"{kind}:"))


def _numbers(mask: int) -> set[int]:
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_signals_that_a_script_ignores_end_no_job_and_are_no_matter_of_later_jobs(terminal: Terminal) -> None:
    """A shell has commands that it puts into the background ignore Ctrl-C."""
    command = terminal.script(PAUSING)
    run = terminal.start_python("-c", DEAF, "run", "--deadline", "1h", "--", *command)
    wait_until(lambda: (terminal.folder / "begun").exists() or run.poll() is not None)
    ignored = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP}
    assert _numbers(_mask(run.pid, "SigIgn")) >= ignored
    (daemon,) = terminal.daemons()
    assert not _numbers(_mask(daemon, "SigIgn")) & {*ignored, signal.SIGCHLD}
    assert not _mask(daemon, "SigBlk")
    for number in ignored:
        run.send_signal(number)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, output) == (0, "trained\n"), errors
