"""Who of a job's processes is asked to end, when, and what is told of it; jobs by a supervisor, with nobody else."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.executors.conftest import is_alive, until

from punctual.executors.local.job_signals import Ending, stop_grace_s
from punctual.executors.local.supervisor import LaunchRequest
from punctual.executors.local.supervisor_client import SupervisorLink, start_supervisor

#: A training with a handler that notes each signal, and saves when it may. `NAME` is what it calls itself.
SAVING = """
import os, pathlib, signal, sys, time
name = sys.argv[1]
def heard(number, _):
    with open(f"heard-{name}", "a") as file:
        file.write(f"{number} ")
    while not os.path.exists("may-save"):
        time.sleep(0.01)
    pathlib.Path(f"saved-{name}").touch()
    sys.exit(3)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, heard)
pathlib.Path(f"up-{name}").write_text(str(os.getpid()))
while True:
    time.sleep(0.01)
"""
#: A process beside it that catches nothing, as the workers of a data loader do.
WORKER = "import pathlib, os, time; pathlib.Path('up-worker').write_text(str(os.getpid())); time.sleep(1000)"
WITH_WORKER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WORKER!r}])\n{SAVING}"
#: Waits for the training as simple launchers do, and catches nothing.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.Popen([sys.executable, *sys.argv[1:]]).wait())"

Keep = Callable[..., SupervisorLink]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """Starts a supervisor with a job, whose folder is `tmp_path`, and sees to its end."""
    (tmp_path / "train.py").write_text(SAVING)
    (tmp_path / "with_worker.py").write_text(WITH_WORKER)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    links: list[SupervisorLink] = []

    def start(*argv: str, **request: Any) -> SupervisorLink:
        link = start_supervisor(())
        links.append(link)
        assert link.read() is not None
        environment = {**os.environ, "PYTHON": sys.executable}
        link.send(LaunchRequest(argv=list(argv), environment=environment, cwd=str(tmp_path), **request))
        line = link.read()
        assert line is not None
        assert "started" in line, line
        return link

    yield start
    for link in links:
        link.terminate()
        link.terminate()
        link.close()


class Folder:
    """What the processes of a job leave in their folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wait_for(self, name: str) -> int:
        """Return the process `name` once it is up."""
        until(lambda: self.text(f"up-{name}"))
        return int(self.text(f"up-{name}"))

    def text(self, name: str) -> str:
        path = self.path / name
        return path.read_text() if path.exists() else ""

    def heard(self, name: str) -> list[int]:
        return [int(number) for number in self.text(f"heard-{name}").split()]

    def may_save(self) -> None:
        (self.path / "may-save").touch()

    def has_saved(self, name: str) -> bool:
        return (self.path / f"saved-{name}").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def last_of(link: SupervisorLink) -> dict[str, Any]:
    last = link.read()
    assert last is not None
    return last


PYTHON = sys.executable
#: How a training may be started; `a` is the one that is asked.
WAYS = {
    "itself": (PYTHON, "train.py", "a"),
    "a shell that goes on": ("bash", "-c", "$PYTHON train.py a; echo $? > code; exit 5"),
    "a shell in a shell": ("sh", "-c", "true; bash -c '$PYTHON train.py a; true'; true"),
    "a pipeline": ("bash", "-c", "$PYTHON train.py a | cat > log; true"),
    "a launcher": (PYTHON, "launcher.py", "train.py", "a"),
    "a launcher in a shell": ("bash", "-c", "$PYTHON launcher.py train.py a; true"),
    "a shell with a handler": ("bash", "-c", "trap 'touch trapped' TERM; $PYTHON train.py a; true"),
    "a shell that passes it on": (
        *("bash", "-c"),
        "trap 'kill -TERM $pid' TERM; $PYTHON train.py a & pid=$!; wait $pid; wait $pid; exit 5",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_training_is_asked_once_and_has_its_time(way: str, keep: Keep, folder: Folder) -> None:
    link = keep(*WAYS[way], grace_s=1000.0)
    pid = folder.wait_for("a")
    link.terminate()
    until(lambda: folder.heard("a"))
    assert is_alive(pid)
    folder.may_save()
    last = last_of(link)
    assert folder.has_saved("a")
    assert folder.heard("a") == [signal.SIGTERM]
    assert "forced_after_s" not in last


def test_a_shell_goes_on_after_its_training_has_saved(keep: Keep, folder: Folder) -> None:
    link = keep(*WAYS["a shell that goes on"], grace_s=1000.0)
    folder.wait_for("a")
    link.terminate()
    folder.may_save()
    assert last_of(link)["ended"] == 5
    assert folder.text("code").strip() == "3"


def test_a_training_that_a_shell_starts_after_another_is_asked_too(keep: Keep, folder: Folder) -> None:
    link = keep("bash", "-c", "$PYTHON train.py a; $PYTHON train.py b; true", grace_s=1000.0)
    folder.wait_for("a")
    folder.may_save()
    link.terminate()
    last_of(link)
    assert folder.has_saved("b")
    assert (folder.heard("a"), folder.heard("b")) == ([signal.SIGTERM], [signal.SIGTERM])


def test_a_loop_of_a_shell_or_a_launcher_ends_long_before_its_time(keep: Keep, folder: Folder) -> None:
    loop = "import subprocess, sys\nwhile True: subprocess.call(['sleep', '0.2']); open('up-launcher', 'w').write('1')"
    links = [
        keep("sh", "-c", "while true; do sleep 0.2; echo 1 > up-shell; done", grace_s=1000.0, kill_s=0.5),
        keep(PYTHON, "-c", loop, grace_s=1000.0, kill_s=0.5),
    ]
    for link, name in zip(links, ("shell", "launcher"), strict=True):
        folder.wait_for(name)
        link.terminate()
    for link in links:
        last = last_of(link)
        assert last["ended"] == 128 + signal.SIGTERM
        assert "forced_after_s" not in last


def test_trainings_side_by_side_are_asked(keep: Keep, folder: Folder) -> None:
    link = keep("bash", "-c", "$PYTHON train.py a & $PYTHON train.py b & wait", grace_s=1000.0)
    folder.wait_for("a")
    folder.wait_for("b")
    link.terminate()
    folder.may_save()
    last_of(link)
    assert folder.has_saved("a")
    assert folder.has_saved("b")


def test_the_workers_of_a_loader_stay_until_the_training_has_saved(keep: Keep, folder: Folder) -> None:
    link = keep(PYTHON, "with_worker.py", "a", grace_s=1000.0)
    folder.wait_for("a")
    worker = folder.wait_for("worker")
    link.terminate()
    until(lambda: folder.heard("a"))
    assert is_alive(worker)
    folder.may_save()
    assert last_of(link)["ended"] == 3
    assert not is_alive(worker)


def test_what_is_left_after_the_grace_is_asked_and_then_killed_and_that_is_told(keep: Keep, folder: Folder) -> None:
    link = keep(PYTHON, "with_worker.py", "a", grace_s=0.2, kill_s=1.0)
    folder.wait_for("a")
    worker = folder.wait_for("worker")
    link.terminate()
    last = last_of(link)
    assert last["ended"] == 128 + signal.SIGKILL
    assert last["forced_after_s"] >= 0.2
    assert folder.heard("a") == [signal.SIGTERM], "it is asked once"
    assert not folder.has_saved("a")
    assert not is_alive(worker)


def test_who_has_had_its_time_otherwise_is_not_given_it_again(keep: Keep, folder: Folder) -> None:
    link = keep(PYTHON, "with_worker.py", "a", grace_s=1000.0, kill_s=1.0)
    folder.wait_for("a")
    folder.wait_for("worker")
    link.hurry()
    assert last_of(link)["ended"] == 128 + signal.SIGKILL
    assert folder.heard("a") == [signal.SIGTERM]


def test_the_grace_can_be_cut_short(keep: Keep, folder: Folder) -> None:
    link = keep(PYTHON, "train.py", "a", grace_s=1000.0)
    folder.wait_for("a")
    link.terminate()
    until(lambda: folder.heard("a"))
    link.terminate()
    last = last_of(link)
    assert last["ended"] == 128 + signal.SIGKILL
    assert last["forced_after_s"] >= 0.0


@pytest.mark.parametrize("way", ["itself", "a shell that goes on", "a pipeline", "a launcher"])
def test_ctrl_c_is_what_a_terminal_sends(way: str, keep: Keep, folder: Folder) -> None:
    link = keep(*WAYS[way], grace_s=0.1)
    pid = folder.wait_for("a")
    link.interrupt()
    until(lambda: folder.heard("a"))
    assert folder.heard("a") == [signal.SIGINT]
    assert is_alive(pid)
    folder.may_save()
    assert "forced_after_s" not in last_of(link)
    assert folder.has_saved("a")


def test_a_training_saves_although_its_launcher_has_ended_by_ctrl_c(keep: Keep, folder: Folder) -> None:
    (folder.path / "worker.py").write_text(WORKER)
    link = keep("bash", "-c", "$PYTHON worker.py & exec $PYTHON launcher.py train.py a", grace_s=1000.0)
    folder.wait_for("a")
    worker = folder.wait_for("worker")
    link.interrupt()
    until(lambda: not is_alive(worker))  # in the background it ignores Ctrl-C: it is ended once the launcher has ended
    folder.may_save()
    last = last_of(link)
    assert (folder.heard("a"), folder.has_saved("a")) == ([signal.SIGINT], True)
    assert "left_running" not in last
    assert "forced_after_s" not in last


def test_a_save_that_a_launcher_leaves_is_told_when_it_is_cut_off(keep: Keep, folder: Folder) -> None:
    link = keep(*WAYS["a launcher"], grace_s=1.0, kill_s=0.5)
    pid = folder.wait_for("a")
    link.interrupt()
    last = last_of(link)
    assert last["forced_after_s"] >= 1.0
    assert (is_alive(pid), folder.has_saved("a")) == (False, False)


def test_a_program_that_goes_on_after_ctrl_c_can_still_be_asked_to_end(keep: Keep, folder: Folder) -> None:
    code = "import signal, time, os; signal.signal(2, lambda *_: open('heard', 'w')); open('up-a', 'w').write('1')\n"
    link = keep(PYTHON, "-c", code + "while True: time.sleep(0.01)", grace_s=1000.0)
    folder.wait_for("a")
    link.interrupt()
    until((folder.path / "heard").exists)
    link.terminate()
    assert last_of(link)["ended"] == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize("way", ["itself", "a shell that goes on"])
def test_signals_of_the_job_s_own_reach_it(number: int, way: str, keep: Keep, folder: Folder) -> None:
    link = keep(*WAYS[way])
    folder.wait_for("a")
    folder.may_save()
    os.kill(link.pid, number)
    last_of(link)
    assert folder.heard("a") == [number]


def test_a_launcher_that_does_not_catch_a_signal_is_not_ended_by_it(keep: Keep, folder: Folder) -> None:
    launch = "import subprocess, sys, time\nranks = [subprocess.Popen([sys.executable, 'train.py', name]) for name in 'ab']\n"
    poll = "while any(rank.poll() is None for rank in ranks): time.sleep(0.01)"
    link = keep(PYTHON, "-c", launch + poll)
    for name in "ab":
        folder.wait_for(name)
    folder.may_save()
    os.kill(link.pid, signal.SIGUSR1)
    assert last_of(link)["ended"] == 0
    assert [folder.heard(name) for name in "ab"] == [[signal.SIGUSR1], [signal.SIGUSR1]]


def test_sigquit_kills_at_once(keep: Keep, folder: Folder) -> None:
    link = keep(PYTHON, "train.py", "a", grace_s=1000.0)
    pid = folder.wait_for("a")
    os.kill(link.pid, signal.SIGQUIT)
    assert last_of(link)["ended"] == 128 + signal.SIGKILL
    assert not is_alive(pid)
    assert folder.heard("a") == []


def test_the_time_to_end_is_what_was_asked_for_or_what_is_left_of_an_allocation() -> None:
    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 500)}
    assert stop_grace_s(20.0, end, 60.0) == 20.0
    assert 400 < stop_grace_s(None, end, 60.0) <= 500
    assert stop_grace_s(None, {}, 60.0) == 60.0
    assert stop_grace_s(None, {"SLURM_JOB_END_TIME": "17"}, 60.0) == 60.0, "a shell that has outlived it"
    assert stop_grace_s(None, {"SLURM_JOB_END_TIME": ""}, 60.0) == 60.0, "Slurm 22.05 leaves it empty"


def test_what_is_killed_waits_for_nothing() -> None:
    ending = Ending(0, 1000.0)
    assert ending.left_s() <= 1000.0
    ending.kill()
    assert ending.left_s() < 1.0
