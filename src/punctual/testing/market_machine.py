"""One machine of a market: a process below which all its processes stay, whatever they do, and which ends with them at once."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from punctual.executors.local.cgroup_files import leave_command_group
from punctual.executors.local.job_signals import descendants, send

_LOCK = ".machine"


def start(folder: Path, name: str, command: Sequence[str]) -> None:
    """Start a machine that runs `command`; returns at once. It outlives this process."""
    file = (folder / f"{name}{_LOCK}").open("w")
    with file, (folder / f"{name}.log").open("ab") as log:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the machine has the lock with its file
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "punctual.testing.market_machine", str(file.fileno()), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[file.fileno()],
            start_new_session=True,
        )
        leave_command_group(process.pid)
    threading.Thread(target=process.wait, name="punctual-market-machine", daemon=True).start()  # leaves no zombie


def running(folder: Path) -> list[str]:
    """Return the names of the machines that run."""
    return [path.name.removesuffix(_LOCK) for path in folder.glob(f"*{_LOCK}") if _is_locked(path)]


def end(folder: Path, name: str) -> None:
    """End a machine, and all that runs on it, at once; returns when it is gone."""
    path = folder / f"{name}{_LOCK}"
    give_up_at = time.monotonic() + 10.0
    while _is_locked(path) and time.monotonic() < give_up_at:
        if text := path.read_text():
            send(int(text), signal.SIGTERM)
        time.sleep(0.02)


def _is_locked(path: Path) -> bool:
    with suppress(OSError), path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return path.exists()


def _kill_all() -> None:
    """Kill all processes below this one, also those that they start meanwhile."""
    while below := descendants(os.getpid()):
        for pid in below:
            send(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def main(lock_fd: int, command: Sequence[str]) -> int:
    """Be a machine until SIGTERM, or until its command has ended."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    os.set_inheritable(lock_fd, False)
    child = subprocess.Popen(command)
    ended: set[int] = set()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.write(lock_fd, f"{os.getpid()}".encode())  # from now on it can be ended
    while child.pid not in ended:
        if signal.sigtimedwait({signal.SIGTERM}, 0.2) is not None:
            break
        with suppress(ChildProcessError):  # orphans end as its children
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                ended.add(pid)
    _kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
