"""Output of a job, as this process receives it."""

import errno
import fcntl
import logging
import os
import pty
import resource
import select
import struct
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO

from punctual.core.ids import JobId

_LOG = logging.getLogger(__name__)

#: Stands where files of a log were rotated away before they were read.
MISSING = b"\n[punctual: some output may be missing here: it was written faster than it was read]\n"
#: Gets output as it comes.
Receive = Callable[[bytes], None]
#: Gets what a job writes, as it comes and from another thread. None: the job writes where this process does.
OnOutput = Receive | None
OutputOf = Callable[[JobId], OnOutput]

_PIECE_BYTES = 65_536


def ignore_output(_: bytes) -> None:
    """Ignore output: whoever wants it follows the job's log."""


def receiver_of_none(_: JobId) -> OnOutput:
    """Return a receiver that ignores the output."""
    return ignore_output


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Form of a job's output streams, and what its process inherits of the command that submits it.

    Attributes
    ----------
    is_split
        Its standard error has a log of its own (``.err``).
    terminal_size
        Rows and columns of the terminal that the job sees; None: it sees a pipe.
    umask, nice
        Mask of file modes, and niceness; None: those of its supervisor.
    limits
        Limits of resources by their names in `resource`, soft and hard.
    """

    is_split: bool = False
    terminal_size: tuple[int, int] | None = None
    umask: int | None = None
    nice: int | None = None
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def here(cls, receive: Receive | None) -> Self:
        """Return streams like this process's own; with a receiver of the output there is one log."""
        os.umask(umask := os.umask(0o077))
        names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
        limits = {name: resource.getrlimit(getattr(resource, name)) for name in names}
        inherited: dict[str, Any] = {"umask": umask, "nice": os.getpriority(os.PRIO_PROCESS, 0), "limits": limits}
        if not os.isatty(1):
            return cls(is_split=receive is None, **inherited)
        rows, columns, *_ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
        return cls(terminal_size=(rows, columns), **inherited)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Make streams from plain values, as JSON gives them."""
        size, limits = fields.get("terminal_size"), fields.get("limits", {})
        return cls(
            is_split=bool(fields.get("is_split")),
            terminal_size=None if size is None else (size[0], size[1]),
            umask=fields.get("umask"),
            nice=fields.get("nice"),
            limits={str(name): (int(soft), int(hard)) for name, (soft, hard) in limits.items()},
        )


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


class LogFollower:
    """Passes on additions to a job's log, in a thread of its own; see `punctual.executors.local.job_log`.

    Nothing here is in the job's way: if `receive` is slow or stops, the log grows meanwhile. `MISSING` stands for what was
    written to a file that was rotated away twice since.

    Parameters
    ----------
    path
        The log; may still be missing.
    wakeup_fd
        Pipe that gets a byte for each addition. Its end means: the job and its supervisor have ended, or
        the supervisor has closed it, and `hear` gives another. Closed here at its end.
    receive
        Called with the output in pieces, in order. If it raises, it is called again with the next piece.
    skip
        Whether to begin with new output only.
    with_earlier
        Begin with the file that was last rotated away, if there is one.
    look_s
        The longest time between two looks, in seconds.
    """

    def __init__(
        self,
        path: Path,
        wakeup_fd: int,
        receive: Receive,
        *,
        skip: bool = False,
        with_earlier: bool = False,
        look_s: float = 5.0,
    ) -> None:
        self._path = path
        self._earlier_path = earlier_log(path)
        self._bell_fd = wakeup_fd
        self._receive = receive
        self._look_s = look_s
        self._stopped = threading.Event()
        self._fd = -1
        if skip and self._open(path):
            os.lseek(self._fd, 0, os.SEEK_END)
        elif with_earlier:
            self._open(self._earlier_path)
        self._thread = threading.Thread(target=self._follow, name="punctual-output", daemon=True)

    def start(self) -> None:
        """Begin to read; raises `RuntimeError` and closes all if no thread is available."""
        self._begin(self._thread, self._bell_fd)

    def hear(self, wakeup_fd: int) -> None:
        """Continue with another bell after the end of the one before, while the job runs; raises as `start` does."""
        after = threading.Thread(
            target=self._follow_after, args=(self._thread, wakeup_fd), name="punctual-output", daemon=True
        )
        self._begin(after, wakeup_fd)
        self._thread = after

    def _begin(self, thread: threading.Thread, wakeup_fd: int) -> None:
        try:
            thread.start()
        except RuntimeError:
            _close(wakeup_fd)
            self.stop()
            raise

    def finish(self, timeout_s: float) -> None:
        """Wait until all output has been received, soon after the job and its supervisor have ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._close_log()

    def stop(self) -> None:
        """Stop reading, though there may be more: another process follows the job now."""
        self._stopped.set()
        if not self._thread.is_alive():
            self._close_log()

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set() and self._await_bell():
                self._read()
                # Seconds between two looks at a file that is written to all the time: a job may write a thousand
                # lines a second.
                time.sleep(0.01)
            self._read()
        finally:
            _close(self._bell_fd)
            if self._stopped.is_set():
                self._close_log()

    def _follow_after(self, before: threading.Thread, wakeup_fd: int) -> None:
        before.join()
        self._bell_fd = wakeup_fd
        self._follow()

    def _close_log(self) -> None:
        fd, self._fd = self._fd, -1
        _close(fd)

    def _await_bell(self) -> bool:
        """Wait until there may be more; False: nothing can come any more."""
        poll = select.poll()
        poll.register(self._bell_fd, select.POLLIN)
        return not poll.poll(self._look_s * 1e3) or bool(os.read(self._bell_fd, _PIECE_BYTES))

    def _read(self) -> None:
        """Pass on all new output, across files that were rotated away."""
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
        """Continue with the file after one that was rotated away, which may have been rotated away as well."""
        done = self._fd
        if not self._open(self._earlier_path) or _identity(self._fd) == _identity(done):
            if self._fd != done:
                _close(self._fd)
            self._fd = -1
            self._open(self._path)
        else:  # there were others between, perhaps
            self._pass_on(MISSING)
        _close(done)

    def _open(self, path: Path) -> bool:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it is not there, or no more files may be had: the next look tries again
            return False
        return True


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


class JobOutput:
    """Output of a job: the pipes for its supervisor, and the threads that follow the logs.

    Attributes
    ----------
    stdout_fd, stderr_fd
        Descriptors for a new job to write to.
    """

    def __init__(self, channels: Sequence["_Channel"], followers: Sequence[LogFollower]) -> None:
        self._channels, self._followers = tuple(channels), tuple(followers)
        self.stdout_fd, self.stderr_fd = (self._channels[i].write_fd if channels else -1 for i in (0, -1))

    @classmethod
    def new(
        cls, log: Path, receiver_of: Callable[[int], Receive] | None = None, streams: Streams | None = None
    ) -> Self:
        """Prepare the output of a job that is to be started.

        Parameters
        ----------
        log
            The file for what the job writes.
        receiver_of
            Receivers of the output by stream, 1 or 2, called as it comes and from another thread. None: the output is written
            where this process writes.
        streams
            Form of the streams; None: like this process's own.
        """
        streams = streams or Streams.here(None if receiver_of is None else receiver_of(1))
        size = streams.terminal_size
        receiver_of = receiver_of or _written_through
        pairs = []
        with ExitStack() as undoing:
            for fd, path in enumerate(logs_of(log, streams), start=1):
                ends = _closing(undoing, os.pipe() if size is None else _terminal(*size))
                wakeup_fd, ring_fd = _closing(undoing, os.pipe())
                follower = LogFollower(path, wakeup_fd, receiver_of(fd), skip=True)
                undoing.callback(follower.stop)
                pairs.append((_Channel(path, *ends, ring_fd), follower))
            undoing.pop_all()
        return cls(*zip(*pairs, strict=True))

    @classmethod
    def adopted(
        cls, logs: Sequence[Path], bell_fds: Sequence[int], receiver_of: Callable[[int], Receive] | None
    ) -> Self:
        """Follow the output of a job that another process has started, from now on."""
        receiver_of = receiver_of or _written_through
        followers = [
            LogFollower(log, wakeup_fd, receiver_of(fd), skip=True)
            for fd, (log, wakeup_fd) in enumerate(zip(logs, bell_fds, strict=True), start=1)
        ]
        return cls((), followers)

    @property
    def logs(self) -> list[tuple[str, int, int]]:
        """Return each log's path, the descriptor of its content, and that of its bell, for the supervisor."""
        return [(str(channel.log), channel.source_fd, channel.ring_fd) for channel in self._channels]

    def start(self) -> None:
        """Begin to follow, once the supervisor has its descriptors; raises `RuntimeError` if no thread is available."""
        for channel in self._channels:
            for fd in channel[1:]:
                os.close(fd)
        with ExitStack() as starting:  # each, also after one that cannot be
            for follower in self._followers:
                starting.callback(follower.start)

    def hear(self, bell_fds: Sequence[int]) -> None:
        """Continue with other bells, one for each log, because the supervisor has closed those before."""
        with ExitStack() as hearing:
            for follower, wakeup_fd in zip(self._followers, bell_fds, strict=True):
                hearing.callback(follower.hear, wakeup_fd)

    def finish(self, timeout_s: float) -> None:
        """Wait until all output has been received, soon after the job and its supervisor have ended."""
        for follower in self._followers:
            follower.finish(timeout_s)

    def stop(self) -> None:
        """Stop reading, though there may be more: another process follows the job now."""
        for follower in self._followers:
            follower.stop()


class _Channel(NamedTuple):
    """A log, and the ends of pipes that are not for this process."""

    log: Path
    source_fd: int
    write_fd: int
    ring_fd: int


def _closing(undoing: ExitStack, fds: tuple[int, int]) -> tuple[int, int]:
    """Return `fds`, which `undoing` closes."""
    for fd in fds:
        undoing.callback(os.close, fd)
    return fds


def logs_of(log: Path, streams: Streams) -> list[Path]:
    """Return the log of a job's standard output and, if it has one of its own, that of its standard error."""
    return [log, log.with_name(f"{log.name}.err")] if streams.is_split else [log]


def earlier_log(log: Path) -> Path:
    """Path to which `log` is renamed when it is full, in place of an earlier one."""
    return log.with_name(f"{log.name}.1")


class LogTail:
    """Follows the output of a job that another process steers, until `finish` or `stop`.

    Parameters
    ----------
    logs
        Logs of the job, by `logs_of`; may still be missing.
    receive
        Called with the output as it comes, from another thread. None: it is written where this process writes.
    skip, with_earlier
        Begin with what is written from now on; or with the files that were last rotated away.
    """

    def __init__(
        self, logs: Sequence[Path], receive: Receive | None, *, skip: bool = False, with_earlier: bool = False
    ) -> None:
        # Nobody rings these bells: the followers look by themselves, until the other ends are closed.
        bells = [os.pipe() for _ in logs]
        self._ring_fds = [ring_fd for _, ring_fd in bells]
        self._followers = [
            LogFollower(
                log,
                wakeup_fd,
                receive or partial(write_through, fd),
                skip=skip,
                with_earlier=with_earlier,
                # The same where nobody rings the bell.
                look_s=0.1,
            )
            for fd, (log, (wakeup_fd, _)) in enumerate(zip(logs, bells, strict=True), start=1)
        ]
        for follower in self._followers:
            follower.start()

    def finish(self, timeout_s: float) -> None:
        """Pass on the rest of the output, once the job has ended; a second call does nothing."""
        self._close_rings()
        for follower in self._followers:
            follower.finish(timeout_s)

    def stop(self) -> None:
        """Stop following, though there may be more; returns at once. A second call, or one after `finish`, does nothing."""
        for follower in self._followers:  # first: the thread of one that hears the end closes the log only if it knows
            follower.stop()
        self._close_rings()

    def _close_rings(self) -> None:
        ring_fds, self._ring_fds = self._ring_fds, []
        for ring_fd in ring_fds:
            os.close(ring_fd)


def _written_through(fd: int) -> Receive:
    """Return a receiver that passes output on to a stream of this process."""
    return partial(write_through, fd)


def write_through(fd: int, output: bytes) -> None:
    """Write output to a stream of this process; after a failure, later output is discarded."""
    try:
        (sys.stdout if fd == 1 else sys.stderr).flush()
        write_all(fd, output)
    except OSError as error:
        discard(fd, error)


def write_all(fd: int, output: bytes) -> None:
    """Write all of it, past the buffer of Python's file."""
    rest = memoryview(output)
    while rest:
        rest = rest[os.write(fd, rest) :]


def write_or_discard(stream: TextIO, fd: int, text: str) -> None:
    """Write to a stream of this process at once; after a failure later output is dropped."""
    try:
        stream.write(text)
        stream.flush()
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


def _terminal(rows: int, columns: int) -> tuple[int, int]:
    """Open a terminal that passes output on unchanged; return its two ends."""
    read_fd, write_fd = pty.openpty()
    tty.setraw(write_fd)
    fcntl.ioctl(write_fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    return read_fd, write_fd
