"""Wait for processes, find those below another, and have a home for them."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from punctual.daemon.paths import HOME_VARIABLE

#: Long enough for anything that comes at all.
PATIENCE_S = 240.0
#: For the ends of processes whose jobs have ended.
_ENDING_S_MAX = 60.0


def wait_until(holds: Callable[[], object], patience_s: float = PATIENCE_S, pause_s: float = 0.005) -> bool:
    """Wait until `holds` returns true; whether it did in time."""
    until = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(pause_s)
    return True


def status_of(pid: int | str = "self") -> dict[str, str]:
    """What the kernel says of a process, by name: `Threads`, `VmRSS` in kB, ..."""
    return dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def rss_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return int(status_of(pid)["VmRSS"].split()[0]) * 1024


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def workers_of(agent_pid: int) -> list[int]:
    """The workers of an elastic training's agent, which its fork server has started."""
    return [worker for server in children(agent_pid) for worker in children(server)]


def descendants_of(pid: int) -> list[int]:
    """All processes below `pid`."""
    below = children(pid)
    return [*below, *(further for child in below for further in descendants_of(child))]


def processes_of(home: Path) -> list[int]:
    """The processes that have this home."""
    told = os.fsencode(f"{HOME_VARIABLE}={home}")
    alive = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if told in (process / "environ").read_bytes().split(b"\0"):
                    alive.append(int(process.name))
    return alive


def wait_for_daemons(home: Path) -> bool:
    """Wait until no process has this home; whether it was so in time. A daemon ends a little after its last job."""
    return wait_until(lambda: not processes_of(home), _ENDING_S_MAX, 0.05)


@contextmanager
def home(prefix: str, is_kept: Callable[[], object] = lambda: False) -> Iterator[Path]:
    """Make a folder, with the home of all commands in it; it goes at the end unless `is_kept`, to be looked into."""
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder / "home")
    try:
        yield folder
    finally:
        wait_for_daemons(folder / "home")
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before
        if not is_kept():
            shutil.rmtree(folder, ignore_errors=True)
