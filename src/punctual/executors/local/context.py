"""Context of all jobs of a local executor, and the open files that they share."""

import errno
import logging
import os
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from punctual.core.ids import JobId, NodeId
from punctual.executors.local.actuator import Actuator
from punctual.executors.local.devices import DevicePool
from punctual.executors.local.output import StartFacts

_LOG = logging.getLogger(__name__)

#: Returns the seconds until it wants to be called again; None: there is nothing more to look at.
Look = Callable[[], float | None]


class Poller:
    """Calls each function that was given to `watch` until it returns None.

    The thread exists only while there is something to look at.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due_at: dict[Look, float] = {}
        self._thread: threading.Thread | None = None

    def watch(self, look: Look, after_s: float = 0.0) -> None:
        """Call `look` in `after_s` seconds, and then as often as it asks for; a watched one is called then instead.

        Raises `RuntimeError` where no thread can be had; it is called all the same once there is one.
        """
        with self._changed:
            self._due_at[look] = time.monotonic() + after_s
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="punctual-poller", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify()

    def _run(self) -> None:
        while (look := self._next()) is not None:
            try:
                after_s = look()
            except Exception:  # noqa: BLE001 -- what fails for one job must not keep the answers of all others back
                _LOG.exception("a job could not be looked at")
                after_s = None
            if after_s is not None:
                with self._changed:
                    self._due_at.setdefault(look, time.monotonic() + after_s)

    def _next(self) -> Look | None:
        """Wait for the next function that is due and take it out; None: none is left."""
        with self._changed:
            while self._due_at:
                look = min(self._due_at, key=self._due_at.__getitem__)
                wait_s = self._due_at[look] - time.monotonic()
                if wait_s <= 0:
                    del self._due_at[look]
                    return look
                self._changed.wait(wait_s)
            self._thread = None
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorContext:
    """See the parameters of `punctual.executors.local.executor.LocalExecutor`.

    * `poller`: looks at what takes a while.
    * `files_limit`: the limit of open files that jobs get, soft and hard.
    """

    node: NodeId
    actuator: Actuator
    runtime_dir: Path
    stop_grace_s: float
    poller: Poller
    files_limit: tuple[int, int]
    devices: DevicePool
    on_kept: Callable[[JobId, int], None]
    lease_s: float | None
    fence_s: float | None
    end_file_of: Callable[[JobId], Path | None]
    log_of: Callable[[JobId], Path]
    start_facts_of: Callable[[JobId], StartFacts | None]
    input_of: Callable[[JobId], int | None]
    may_steer: Callable[[], bool]


@cache
def raise_files_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; yield both as they were at the start.

    Each job that runs takes five files. Jobs get the former limit: some programs use `select`, or go through all numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the system's own limit was lowered below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def check_files_left() -> None:
    """Raise `OSError` if one more job would use up the files that this process can still open."""
    n_most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- as many names as there are files
    # The start of a job opens 16 files. Jobs leave a quarter to all else: the journal, those who ask, their answers.
    if n_most != resource.RLIM_INFINITY and n_open + 16 > 0.75 * n_most:
        text = f"{n_open} of {n_most} open files are in use, and the rest is for those who ask (see `ulimit -Hn`)"
        raise OSError(errno.EMFILE, text)
