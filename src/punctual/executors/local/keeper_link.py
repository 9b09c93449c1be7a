"""A keeper, seen from the process that steers its job: the one that started it, or one that took the job over."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from punctual.core.ids import JobId
from punctual.executors.local import keeper
from punctual.executors.local.actuator import file_name
from punctual.executors.local.keeper import Errand

#: What starts a keeper: nothing of the user's settings or packages, which it does not need and which take time.
_PYTHON = (sys.executable, "-I", "-S", keeper.__file__)

#: How long a keeper may take to answer its door, in seconds.
_ANSWER_S_MAX = 10.0


class _Process(Protocol):
    @property
    def pid(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> object: ...


class KeeperLink:
    """Holds a keeper's leash; letting go of it tells the keeper that nobody steers the job any more."""

    def __init__(self, leash: socket.socket, process: _Process) -> None:
        self._leash = leash
        self._process = process
        self._lines = leash.makefile("r", encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, errand: Errand) -> None:
        """Tell the keeper what to do; to be called once."""
        self._leash.sendall(json.dumps(asdict(errand)).encode() + b"\n")

    def read(self) -> dict[str, Any] | None:
        """The keeper's next line; None: it has ended."""
        try:
            words: dict[str, Any] | None = json.loads(self._lines.readline() or "null")
        except (OSError, ValueError):
            return None
        return words

    def terminate(self) -> None:
        """Have the job ended; said again, have it killed."""
        self._process.terminate()

    def kill(self) -> None:
        """End the keeper itself at once, and by that the job."""
        self._process.kill()

    def close(self) -> None:
        """Let go of the leash; wait for the end of a keeper that this process has started, which must be near."""
        self._lines.close()
        self._leash.close()
        self._process.wait()


def start_keeper(
    prefix: Sequence[str], output_fd: int | None = None, drain_fd: int | None = None, door_fd: int | None = None
) -> KeeperLink:
    """Start a keeper.

    Parameters
    ----------
    prefix
        What the command line begins with.
    output_fd
        Where the job writes; None: where this process does.
    drain_fd, door_fd
        Handed to the keeper, see `punctual.executors.local.keeper.Errand`.

    Raises
    ------
    OSError
        The keeper could not be started.
    """
    leash, other_end = socket.socketpair()
    with other_end:
        fds = [fd for fd in (other_end.fileno(), drain_fd, door_fd) if fd is not None]
        command = [*prefix, *_PYTHON, str(other_end.fileno())]
        try:
            # A session of its own: what the terminal sends (Ctrl-C, hanging up) is for us alone.
            process = subprocess.Popen(
                command, pass_fds=fds, stdout=output_fd, stderr=output_fd, start_new_session=True
            )  # fmt: skip
        except OSError:
            leash.close()
            raise
    return KeeperLink(leash, process)


# Taking over.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A job that runs and that nobody steers but whoever holds this.

    Attributes
    ----------
    link
        Closing it leaves the job as it was found.
    errand
        What its keeper was told, without the environment.
    started_at
        When the job's process was started, monotonic seconds.
    output_fd
        Where the job's output can be read; None: it writes where the command that started it did.
    """

    link: KeeperLink
    errand: Errand
    job_pid: int
    started_at: float
    output_fd: int | None

    def close(self) -> None:
        """Let go of the job."""
        self.link.close()
        if self.output_fd is not None:
            os.close(self.output_fd)


class _Adopted:
    """A keeper that another process has started. Its last word comes when all is cleared up: there is no more to wait for."""

    pid = 0  # until it has said so

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Its end is the business of its parent."""


def door_of(folder: Path, job: JobId) -> Path:
    """Where the keeper of `job` can be talked to."""
    return folder / f"{file_name(job)}.keeper"


def open_door(door: Path) -> socket.socket:
    """A socket that listens at `door`, for a keeper; raises `OSError`."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.unlink(missing_ok=True)
        with _short(door) as address:
            listening.bind(address)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def take_over(door: Path) -> Kept | None:
    """The job whose keeper is at `door`; None: it has ended, or somebody steers it."""
    leash = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    leash.settimeout(_ANSWER_S_MAX)
    try:
        with _short(door) as address:
            leash.connect(address)
        kept = _introduced(leash)
    except OSError:
        kept = None
    if kept is None:
        leash.close()
    return kept


def _introduced(leash: socket.socket) -> Kept | None:
    """What the keeper says of itself and its job; None: it does not want to be led."""
    hello, fds, _, _ = socket.recv_fds(leash, 1, 1, socket.MSG_CMSG_CLOEXEC)
    leash.settimeout(None)
    process = _Adopted()
    link = KeeperLink(leash, process)
    words = link.read() if hello else None
    if words is None:
        return None
    process.pid = words["keeper"]
    return Kept(
        link=link,
        errand=Errand(**words["errand"]),
        job_pid=words["started"],
        started_at=words["at_ns"] / 1e9,
        output_fd=fds[0] if fds else None,
    )


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """An address of `path` that the kernel takes however long the path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
