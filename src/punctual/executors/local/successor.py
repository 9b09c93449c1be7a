"""Start another process to steer a job that has lost its own; for its supervisor, standard library only."""

import ctypes
import fcntl
import os
import time
from math import inf

#: Seconds without steering until a successor is started; doubled each time that none has come to stay, up to the most.
_WAIT_S, _WAIT_S_MAX = 1.0, 300.0


class Successor:
    """The process that is to steer a job next, started by one supervisor for all: `log` is locked for that.

    * `command`: starts it; empty: there is none to start.
    * `log`: file for its output.
    """

    def __init__(self, command: list[str], log: str) -> None:
        self._command, self._log = command, log
        self._due_at, self._canceled_at, self._wait_s, self._lock_fd = inf, -inf, _WAIT_S, -1

    def left_s(self) -> float:
        """Return the seconds until it is to be started; infinite while it is not needed."""
        return max(0.0, self._due_at - time.monotonic())

    def schedule(self) -> None:
        """Schedule its start, which `cancel` prevents."""
        # Seconds of steering after which the process that steered had come to stay: its successor is started as soon as the first.
        if time.monotonic() > self._canceled_at + 10.0:
            self._wait_s = _WAIT_S
        if self._command:
            self._due_at = time.monotonic() + self._wait_s

    def cancel(self) -> None:
        """Cancel its start: a process steers the job again."""
        self._due_at, self._canceled_at = inf, time.monotonic()
        self._unlock()

    def start(self) -> None:
        """Start it, unless the supervisor of another job has just done so; schedule the next start, should it not steer the job."""
        self._unlock()
        if not self._command:
            return
        self._wait_s = min(2.0 * self._wait_s, _WAIT_S_MAX)
        self._due_at = time.monotonic() + self._wait_s
        self._lock_fd = locked(self._log)
        if self._lock_fd >= 0:
            self._start()

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _start(self) -> None:
        """Start it as no descendant of this process: it steers other jobs too, and outlives this one's."""
        adopt_orphans(False)
        try:
            between = os.fork()
            if between == 0:
                self._become()
            os.waitpid(between, 0)
        except OSError:  # no more processes may be had now
            pass
        adopt_orphans(True)

    def _become(self) -> None:
        try:
            if os.fork() == 0:
                os.setsid()
                os.chdir("/")
                log_fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
                os.dup2(log_fd, 1)
                os.dup2(log_fd, 2)
                os.execv(self._command[0], self._command)
        finally:
            os._exit(os.EX_OSERR)


def locked(path: str) -> int:
    """Lock a file until the returned descriptor is closed; -1: another process has the lock, or there is no such place."""
    try:
        # Also for writing: a network file system locks no other files.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    return fd


def adopt_orphans(is_adopting: bool) -> None:
    """Let this process adopt descendants whose parent ends, as a *sub-reaper*, or no longer."""
    ctypes.CDLL(None).prctl(36, int(is_adopting), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
