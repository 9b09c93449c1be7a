"""Context of all jobs of a local executor, and the open files that they share."""

import errno
import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import cache
from pathlib import Path

from punctual.channel import process_number
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import STOP_GRACE_S
from punctual.executors.local.actuator import Choice, choose
from punctual.executors.local.cgroups import actuators
from punctual.executors.local.devices import DevicePool, visible_devices
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


@cache
def raise_files_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; yield both as they were at the start.

    Each job that runs takes five files. Jobs get the former limit: some programs use `select`, or go through all numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the system's own limit was lowered below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


@dataclass(kw_only=True)
class ExecutorContext:
    """Options of a local executor, and what its jobs share.

    The limit of open files of this process becomes its hard one: each job takes some. Jobs get the limit of before.

    * `node`: this machine's name in grants.
    * `runtime_dir`: folder for what exists only while a job runs; made if it is missing.
    * `actuator`: ``auto``, ``cgroup-v2``, ``cgroup-v1`` or ``pacing``; or a `Choice`, one that is chosen already.
    * `log_of`: the file for what a job writes, see `punctual.executors.local.job_log`.
    * `stop_grace_s`: seconds that a job which can make a checkpoint gets for it when it is stopped.
    * `on_kept`: called with the process id of a job's supervisor, which outlives this process, before the job starts.
    * `lease_s`: a job is taken for unsteered after so many seconds without `renew`. None: it needs no renewal.
    * `fence_s`: a job is ended after so many seconds without `renew`. None: it is not.
    * `end_file_of`: returns the file in which a job's supervisor records the job's end. None: none.
    * `start_facts_of`: returns the facts with which a job's process starts; the default hands on this process's variables.
      None: they are not there any more, and the job cannot be started.
    * `input_of`: returns the descriptor of a job's standard input, which is closed here; None: the job has none.
    * `may_steer`: whether the jobs are still this process's; for any thread. A process that was stopped asks before it
      acts on a job; if another process has them, nothing is done to them here and nothing answered any more.
    * `successor`: command that a supervisor starts when no process steers its job. Empty: none.
    * `successor_log`: file for what that writes.
    * `devices`: GPUs for jobs; by default all that this process may use.
    * `poller`: looks at what takes a while.
    * `files_limit`: the limit of open files that jobs get, soft and hard.

    Raises `InvalidSpec`: the actuator is unknown, or cannot be used here; or `/proc` has other numbers for processes
    than they have here.
    """

    node: NodeId
    runtime_dir: Path
    actuator: InitVar[str | Choice] = "auto"
    chosen: Choice = field(init=False)
    log_of: Callable[[JobId], Path]
    stop_grace_s: float = STOP_GRACE_S
    on_kept: Callable[[JobId, int], None] = lambda *_: None
    lease_s: float | None = None
    fence_s: float | None = None
    end_file_of: Callable[[JobId], Path | None] = lambda _: None
    start_facts_of: Callable[[JobId], StartFacts | None] = lambda _: StartFacts(environment=os.environ)
    input_of: Callable[[JobId], int | None] = lambda _: None
    may_steer: Callable[[], bool] = lambda: True
    successor: Sequence[str] = ()
    successor_log: Path = Path(os.devnull)
    devices: DevicePool = field(default_factory=lambda: DevicePool(visible_devices()))
    poller: Poller = field(default_factory=Poller)
    files_limit: tuple[int, int] = field(default_factory=raise_files_limit)

    def __post_init__(self, actuator: str | Choice) -> None:
        _check_process_numbers()
        self.chosen = choose(actuator, actuators()) if isinstance(actuator, str) else actuator
        self.runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_process_numbers() -> None:
    """Raise `InvalidSpec` if `/proc` describes another process under a process number."""
    seen = f"process {process_number()}" if os.path.lexists("/proc/self") else "nothing"
    if seen != f"process {os.getpid()}":
        raise InvalidSpec(
            "`/proc` must show the processes of the PID namespace",
            f"{seen} there for process {os.getpid()}",
            "this machine",
            "Mount it in the namespace (`unshare --pid --fork --mount-proc`).",
        )


def check_files_left() -> None:
    """Raise `OSError` if one more job would use up the files that this process can still open."""
    n_most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- as many names as there are files
    # The start of a job opens 16 files. Jobs leave a quarter to all else: the journal, those who ask, their answers.
    if n_most != resource.RLIM_INFINITY and n_open + 16 > 0.75 * n_most:
        text = f"{n_open} of {n_most} open files are in use, and the rest is for those who ask (see `ulimit -Hn`)"
        raise OSError(errno.EMFILE, text)
