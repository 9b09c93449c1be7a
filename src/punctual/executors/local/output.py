"""What a job writes, on its way through this process."""

import fcntl
import logging
import os
import pty
import sys
import termios
import threading
import tty
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


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
