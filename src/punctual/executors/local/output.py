"""Output of a job: its form, and the following of its logs."""

import errno
import fcntl
import logging
import os
import pty
import select
import stat
import struct
import sys
import termios
import threading
import tty
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from punctual.executors.local.limits import own_limits

_LOG = logging.getLogger(__name__)

#: Stands where files of a log were rotated away before they were read.
MISSING = b"\n[punctual: some output may be missing here: it was written faster than it was read]\n"
#: Gets output as it comes.
Receive = Callable[[bytes], None]


def ignore_output(_: bytes) -> None:
    """Ignore output: whoever wants it follows the job's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of a job's process that the command which submits it sets: form of its output, and inherited limits.

    * `is_split`: its standard error has a log of its own (``.err``).
    * `terminal_size`: rows and columns of the terminal that the job's output seems to be; None: it is a pipe, as is that of its
      errors alone.
    * `umask`, `nice`: mask of file modes, and niceness; None: those of its supervisor.
    * `limits`: limits of resources by their names in `resource`, soft and hard.
    * `cpus`: CPUs that it may use; empty: those of its supervisor.
    """

    is_split: bool = False
    terminal_size: tuple[int, int] | None = None
    umask: int | None = None
    nice: int | None = None
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()

    @classmethod
    def here(cls, receive: Receive | None) -> Self:
        """Return settings like this process's own; with a receiver of the output that goes to one place there is one log."""
        os.umask(umask := os.umask(0o077))
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        inherited: dict[str, Any] = {"umask": umask, "nice": nice, "limits": own_limits()}
        inherited["cpus"] = cpus_here()
        if not os.isatty(1):
            return cls(is_split=receive is None, **inherited)
        rows, columns, *_ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
        return cls(terminal_size=(rows, columns), is_split=not os.isatty(2), **inherited)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Make settings from plain values, as JSON gives them."""
        size, limits = fields.get("terminal_size"), fields.get("limits", {})
        return cls(
            is_split=bool(fields.get("is_split")),
            terminal_size=None if size is None else (size[0], size[1]),
            umask=fields.get("umask"),
            nice=fields.get("nice"),
            limits={str(name): (int(soft), int(hard)) for name, (soft, hard) in limits.items()},
            cpus=tuple(map(int, fields.get("cpus", ()))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """Facts with which a job's process starts, beside those of its program and its declaration.

    * `environment`: variables that it inherits.
    * `argv`: whole command line of a program that has lost secrets on its way into the journal; None: it is not there.
    * `settings`: settings of the process.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    argv: list[str] | None = None
    settings: ProcessSettings = field(default_factory=ProcessSettings)


def cpus_here() -> tuple[int, ...]:
    """Ids of the CPUs that this process may use; empty where the system does not tell."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


class JobInputs:
    """Standard inputs of jobs that have not started yet; for any thread."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def keep(self, job: str, fd: int) -> None:
        """Keep a duplicate of the descriptor for the job's first process."""
        self.forget(job)
        self._fds[job] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)

    def take(self, job: str) -> int | None:
        """Return the job's input, which is the caller's to close; None: it has none, or had it before."""
        return self._fds.pop(job, None)

    def forget(self, job: str) -> None:
        """Close the job's input if it has one."""
        fd = self.take(job)
        if fd is not None:
            os.close(fd)


class LogTail:
    """Passes on additions to a job's log, in a thread of its own, until `finish` or `stop`.

    Nothing here is in the job's way: if `receive` is slow or stops, the log grows meanwhile. `MISSING` stands for what was
    written to a file that was rotated away twice since; see `punctual.executors.local.job_log`.

    * `path`: the log; may still be missing.
    * `receive`: called with the output in pieces, in order. If it raises, it is called again with the next piece.
    * `skip`: begin with what is written from now on, and not with all that is kept.

    Raises `RuntimeError`: no thread is available.
    """

    def __init__(self, path: Path, receive: Receive, *, skip: bool = False) -> None:
        self.path = path
        self._receive = receive
        self._fd = -1
        self._ends, self._stopped = threading.Event(), threading.Event()
        if self._open(path if skip else earlier_log(path)) and skip:
            os.lseek(self._fd, 0, os.SEEK_END)
        self._thread = threading.Thread(target=self._follow, name="punctual-output", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            _close(self._fd)
            raise

    def finish(self, timeout_s: float) -> bool:
        """Pass on the rest of the output, once the job has ended; return whether that is done within so many seconds."""
        self._ends.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop following, though there may be more; returns at once. A second call, or one after `finish`, does nothing."""
        self._stopped.set()
        self._ends.set()

    def _follow(self) -> None:
        # Seconds between two looks: a look takes some 10 µs, and a person sees no delay.
        while not self._ends.wait(0.1):
            self._read()
        self._read()
        _close(self._fd)

    def _read(self) -> None:
        """Pass on all new output, across files that were rotated away."""
        while not self._stopped.is_set() and (self._fd >= 0 or self._open(self.path)):
            # Asked first: what is rotated away does not grow any more.
            is_rotated = _identity(self.path) not in {None, _identity(self._fd)}
            while not self._stopped.is_set() and (output := os.read(self._fd, 65_536)):
                self._pass_on(output)
            if not is_rotated:
                return
            self._open_next()

    def _pass_on(self, output: bytes) -> None:
        try:
            self._receive(output)
        except Exception:  # noqa: BLE001 -- a display that fails must not cost the output that follows
            _LOG.exception("what the job wrote could not be passed on")

    def _open_next(self) -> None:
        """Continue with the file after one that was rotated away, which may have been rotated away as well."""
        done = self._fd
        if not self._open(earlier_log(self.path)) or _identity(self._fd) == _identity(done):
            if self._fd != done:
                _close(self._fd)
            self._fd = -1
            self._open(self.path)
        else:  # there were others between, perhaps
            self._pass_on(MISSING)
        _close(done)

    def _open(self, path: Path) -> bool:
        try:
            fd = open_log(path)
        except OSError:  # no more files may be had: the next look tries again
            return False
        if fd is not None:
            self._fd = fd
        return fd is not None


def open_log(path: Path) -> int | None:
    """Open a job's log to read it; None: there is none, or the job has put there what is no file and may have no end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:  # the latter: a link, a socket
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _identity(file: int | Path) -> tuple[int, int] | None:
    """Return the identity of a file; None: there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 -- of a descriptor as well
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def logs_of(log: Path, settings: ProcessSettings) -> list[Path]:
    """Return the log of a job's standard output and, if it has one of its own, that of its standard error."""
    return [log, log.with_name(f"{log.name}.err")] if settings.is_split else [log]


def earlier_log(log: Path) -> Path:
    """Path to which `log` is renamed when it is full, in place of an earlier one."""
    return log.with_name(f"{log.name}.1")


def write_through(fd: int, output: bytes) -> None:
    """Write output to a stream of this process; after a failure, later output is discarded."""
    try:
        (sys.stdout if fd == 1 else sys.stderr).flush()
        write_all(fd, output)
    except OSError as error:
        discard(fd, error)


def write_all(fd: int, output: bytes) -> None:
    """Write all of it, past the buffer of Python's file; wait where another program has set the stream not to block."""
    rest = memoryview(output)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


def check_reader(fd: int) -> None:
    """Raise `BrokenPipeError` if nobody can read what would be written to a pipe or socket any more."""
    poll = select.poll()
    poll.register(fd, 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def write_or_discard(stream: TextIO, fd: int, text: str) -> None:
    """Write to a stream of this process at once; after a failure later output is dropped."""
    try:
        if os.get_blocking(fd):
            stream.write(text)
            stream.flush()
        else:  # a buffer would lose what does not fit
            write_all(fd, text.encode(stream.encoding, stream.errors or "strict"))
    except OSError as error:
        discard(fd, error)


def discard(fd: int, error: OSError | None = None) -> None:
    """Discard this process's later output to `fd`, and tell that it failed with `error`.

    Jobs go on and are steered on: what they write is in their logs. That whoever read it has gone needs no word.
    """
    null_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null_fd, fd, inheritable=True)
    os.close(null_fd)
    if error is not None and error.errno != errno.EPIPE:
        name = "standard output" if fd == 1 else "standard error"
        _LOG.warning("%s cannot be written to (%s): nothing more is written there", name, error.strerror)


def new_channel(terminal_size: tuple[int, int] | None) -> tuple[int, int]:
    """Open a pipe, or a terminal of so many rows and columns, for a job's output; return the ends to read and to write.

    The terminal passes output on unchanged.
    """
    if terminal_size is None:
        return os.pipe()
    read_fd, write_fd = pty.openpty()
    tty.setraw(write_fd)
    fcntl.ioctl(write_fd, termios.TIOCSWINSZ, struct.pack("4H", *terminal_size, 0, 0))
    return read_fd, write_fd
