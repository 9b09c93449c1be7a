"""Detached processes, which outlive their starter, and their bounded logs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from types import FrameType

from punctual.executors.local.output import earlier_log

#: Bytes after which a log is begun anew: tens of thousands of lines, and nothing on a disk that holds trainings.
LOG_BYTES_MAX = 8 << 20


def start_detached(
    command: Sequence[str], log: Path, environment: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start `command` in a session of its own, with its output appended to `log`, no input, and no other descriptor.

    It runs in no folder that may be removed, or whose files could take the place of a module.
    """
    # Not blocking: a named pipe in its place would wait for a reader.
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(log_fd, 0o600)  # one that was made otherwise
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            cwd="/",
            env=environment,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    finally:
        os.close(log_fd)
    # It may end before this process does, and is no zombie then.
    Thread(target=process.wait, name="punctual-detached", daemon=True).start()
    return process


@contextmanager
def caught(
    handler: Callable[[int, FrameType | None], None], numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Handle these signals by `handler` in the block, and ignore SIGHUP.

    A signal that this process was started to ignore stays ignored: a script has put it into the background, say.
    """
    # A terminal that is closed takes with it what is shown, not what is steered.
    handlers = {**dict.fromkeys(numbers, handler), signal.SIGHUP: lambda *_: None}
    heard = {number: by for number, by in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, by) for number, by in heard.items()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def log_bounded(log: Path, n_bytes_max: int = LOG_BYTES_MAX, poll_s: float = 2.0) -> Iterator[None]:
    """Start `log` anew whenever it is full while this context is open, if this process's standard error goes there.

    The latest `n_bytes_max` bytes before are then in the file with `.1` behind its name.
    """
    if not _is_file(2, log):
        yield
        return
    log_fd = os.dup(2)  # standard error itself goes nowhere once a write has failed
    is_over = Event()
    thread = Thread(target=_bound, args=(log_fd, log, n_bytes_max, poll_s, is_over), name="punctual-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        os.close(log_fd)


def _is_file(fd: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def _bound(log_fd: int, log: Path, n_bytes_max: int, poll_s: float, is_over: Event) -> None:
    while True:
        n_bytes = os.fstat(log_fd).st_size
        if n_bytes > n_bytes_max:
            with suppress(OSError):  # the disk is full: there is room again once the log is empty
                _keep_end(log_fd, n_bytes - n_bytes_max, earlier_log(log))
            os.ftruncate(log_fd, 0)
        if is_over.wait(poll_s):
            return


def _keep_end(log_fd: int, begin: int, path: Path) -> None:
    """Copy the log from byte `begin` on to `path`. It is not renamed: other processes have it open, too.

    A line that is written between this and the cut is lost.
    """
    path.unlink(missing_ok=True)
    with (
        open(f"/proc/self/fd/{log_fd}", "rb") as written,  # noqa: PTH123 -- also of a log that was removed
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as kept,
    ):
        written.seek(begin)
        shutil.copyfileobj(written, kept)
