"""What a job writes, as this process gets to see it."""

import fcntl
import logging
import os
import pty
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path

_LOG = logging.getLogger(__name__)

_PIECE_BYTES = 65_536
#: Between two looks at a file that is written to all the time: a job may write a thousand lines a second.
_PAUSE_S = 0.01
#: The longest time between two looks; the bell may have been heard by another process, which followed before this one.
_LOOK_S = 1.0


class LogFollower:
    """Passes on what is written to a job's log, in a thread of its own; see `punctual.executors.local.job_log`.

    Nothing here is in the job's way: if `receive` is slow or stops, the log grows meanwhile. What was written to a file
    that was rotated away twice since is skipped.

    Parameters
    ----------
    path
        The log; may still be missing.
    bell_fd
        Where a byte comes when there is more, and an end when nothing can come any more; closed here at the end.
    receive
        Gets the output in pieces, in order. If it raises, it is called again with the next piece.
    skip
        Begin with what is written from now on.
    """

    def __init__(self, path: Path, bell_fd: int, receive: Callable[[bytes], None], *, skip: bool = False) -> None:
        self._path = path
        self._earlier_path = path.with_name(f"{path.name}.1")
        self._bell_fd = bell_fd
        self._receive = receive
        self._stopped = threading.Event()
        self._fd = -1
        if skip and self._open(path):
            os.lseek(self._fd, 0, os.SEEK_END)
        self._thread = threading.Thread(target=self._follow, name="punctual-output", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Wait until all has been received, which it has soon after the job and its keeper have ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """Stop reading, though there may be more: somebody else follows the job now."""
        self._stopped.set()

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set() and self._await_bell():
                self._read()
                time.sleep(_PAUSE_S)
            self._read()
        finally:
            _close(self._fd)
            _close(self._bell_fd)

    def _await_bell(self) -> bool:
        """Wait until there may be more; False: nothing can come any more."""
        poll = select.poll()
        poll.register(self._bell_fd, select.POLLIN)
        return not poll.poll(_LOOK_S * 1e3) or bool(os.read(self._bell_fd, _PIECE_BYTES))

    def _read(self) -> None:
        """Pass on all that there is, over the ends of files that were rotated away."""
        while not self._stopped.is_set() and (self._fd >= 0 or self._open(self._path)):
            is_rotated = not self._is_current()  # asked first: what is rotated away does not grow any more
            while not self._stopped.is_set() and (output := os.read(self._fd, _PIECE_BYTES)):
                self._pass_on(output)
            if not is_rotated:
                return
            self._open_next()

    def _pass_on(self, output: bytes) -> None:
        try:
            self._receive(output)
        except Exception:  # noqa: BLE001 -- a display that fails must not cost the output that follows
            _LOG.exception("what the job wrote could not be passed on")

    def _is_current(self) -> bool:
        return _identity(self._path) in {None, _identity(self._fd)}

    def _open_next(self) -> None:
        """Go on with the file after one that was rotated away, which may have been rotated away as well."""
        done = self._fd
        if not self._open(self._earlier_path) or _identity(self._fd) == _identity(done):
            if self._fd != done:
                _close(self._fd)
            self._fd = -1
            self._open(self._path)
        _close(done)

    def _open(self, path: Path) -> bool:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        return True


def _identity(file: int | Path) -> tuple[int, int] | None:
    """What tells a file from all others; None: there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 -- of a descriptor as well
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


class Relay:
    """Passes on what a job writes.

    Attributes
    ----------
    read_fd
        Where the output arrives.
    write_fd
        For the job; to be closed here once the job has it. None: it has it already.
    """

    def __init__(self, receive: Callable[[bytes], None], read_fd: int, write_fd: int | None = None) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self._receive = receive
        self._thread = threading.Thread(target=self._read, name="punctual-output", daemon=True)

    def start(self) -> None:
        """Close the job's end here and begin to read."""
        if self.write_fd is not None:
            os.close(self.write_fd)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Wait until everything written has been received, which it has when all who could write have ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _read(self) -> None:
        while output := _piece(self.read_fd):
            try:
                self._receive(output)
            except Exception:  # noqa: BLE001 -- a display that fails must not stop the job, which it does when the pipe is full
                _LOG.exception("what the job wrote could not be passed on")
        os.close(self.read_fd)


def new_output() -> tuple[int, int]:
    """Where to read and to write: a pipe, or a pseudo-terminal if this process writes to one, so that bars stay bars."""
    return _terminal() if os.isatty(1) else os.pipe()


def write_through(output: bytes) -> None:
    """Pass output on to where this process writes."""
    sys.stdout.flush()
    rest = memoryview(output)
    while rest:
        rest = rest[os.write(1, rest) :]


def _piece(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:  # how a pseudo-terminal says that nobody writes any more
        return b""


def _terminal() -> tuple[int, int]:
    """The two ends of a terminal as large as ours, that passes on what is written as it is."""
    read_fd, write_fd = pty.openpty()
    tty.setraw(write_fd)
    fcntl.ioctl(write_fd, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
    return read_fd, write_fd
