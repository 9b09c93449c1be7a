"""The process that starts a daemon, and starts it again if it is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.forked_python import ForkedPython
from tests.waiting import PATIENCE_S, wait_until

#: A watcher of a stand-in, which writes down what it is asked for, and then ends as the words say, one for each start.
WATCHER = """
import itertools, os, signal, sys, time, types
from punctual.api import daemon_process, watcher
folder, *ends = sys.argv[1:]
watcher._PAUSE_S = watcher._PAUSE_S_MAX = float(os.environ.get("PAUSE_S", 0.0))
if "SLOW" in os.environ:  # each attempt takes a while
    watcher.time = types.SimpleNamespace(monotonic=lambda ticks=itertools.count(0, 30): next(ticks), sleep=time.sleep)
def daemon(text, begun):
    n_starts = len(os.listdir(folder))
    with open(f"{folder}/{n_starts}.new", "w") as file:
        file.write(f"{os.getpid()} {os.getppid()} {text}")
    os.rename(f"{folder}/{n_starts}.new", f"{folder}/{n_starts}")
    end = ends[n_starts]
    if end == "orphaned":
        os.kill(parent := os.getppid(), signal.SIGKILL)
        while os.getppid() == parent:
            time.sleep(0.01)
        begun("mine")
        os.mkdir(f"{folder}/goes-on")
        return 0
    if not end.startswith("early "):
        begun("mine")
    match end.removeprefix("early ").split():
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["raise"]:
            raise RuntimeError("a fault of ours")
        case ["exit", status]:
            return int(status)
        case ["wait"]:
            while True: time.sleep(60)
daemon_process.main = daemon
sys.exit(watcher.main('{"run": "", "ready_fd": null, "name": "first"}'))
"""


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    with ExitStack() as ending:

        def start(*ends: str, **environment: str) -> "subprocess.Popen[bytes]":
            process: subprocess.Popen[bytes] = ForkedPython(
                [sys.executable, "-c", WATCHER, str(tmp_path), *ends],
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )
            ending.enter_context(process)
            ending.callback(process.kill)
            return process

        yield start


def starts(folder: Path) -> list[tuple[int, str]]:
    """The process of each start, and the run that it was asked to go on with."""
    told = [path.read_text().split(" ", 2) for path in sorted(folder.iterdir()) if path.name.isdigit()]
    return [(int(pid), json.loads(text)["run"]) for pid, _, text in told]


@pytest.mark.parametrize("end", ["kill", "raise", "exit 2", f"exit {os.EX_SOFTWARE}"])
def test_a_daemon_that_was_killed_or_has_failed_is_started_again_with_its_run(
    end: str, watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    assert watch(end, end, "exit 0").wait() == 0
    found = starts(tmp_path)
    assert [run for _, run in found] == ["", "mine", "mine"]
    assert len({pid for pid, _ in found}) == 3


@pytest.mark.parametrize("status", [0, 1])
def test_a_daemon_that_has_ended_by_itself_is_not_started_again(
    status: int, watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    assert watch(f"exit {status}").wait() == status
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize(("end", "status"), [("kill", 128 + signal.SIGKILL), ("raise", os.EX_SOFTWARE)])
def test_a_daemon_that_has_had_no_job_is_not_started_again(
    end: str, status: int, watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """Whoever wanted it learns that it has failed, and tries again."""
    assert watch(f"early {end}").wait() == status
    assert len(starts(tmp_path)) == 1


def test_the_next_daemon_is_started_again_too_if_it_is_killed_while_it_begins(
    watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    assert watch("kill", "early kill", "early raise", "exit 0").wait() == 0
    assert [run for _, run in starts(tmp_path)] == ["", "mine", "mine", "mine"]


def test_a_daemon_that_cannot_begin_is_given_up_however_long_each_attempt_takes(
    watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    assert watch("kill", *["early exit 70"] * 30, SLOW="1").wait(PATIENCE_S) == os.EX_SOFTWARE
    assert len(starts(tmp_path)) == 21


def test_a_daemon_goes_on_without_a_watcher_that_was_killed(
    watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    assert watch("orphaned").wait() == -signal.SIGKILL
    wait_until((tmp_path / "goes-on").exists)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_for_the_watcher_is_for_its_daemon_too(
    number: signal.Signals, watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    process = watch("early wait")
    ((pid, _),) = wait_until(lambda: starts(tmp_path))
    wait_until(lambda: _catches(process.pid, number))
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_two_daemons_ends_the_watcher_and_no_process_that_has_the_number_of_the_first(
    number: signal.Signals, watch: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    process = watch("kill", "kill", "wait", PAUSE_S="600")
    wait_until(lambda: len(starts(tmp_path)) == 2)
    wait_until(lambda: not _children(process.pid))
    process.send_signal(number)
    assert process.wait() == -number
    assert len(starts(tmp_path)) == 2


def _children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def _catches(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)
