"""The host that this user's jobs share on this machine, and the lock for changing it."""

import fcntl
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.daemon.paths import refused_if_unwritable, runtime_root
from punctual.daemon.polling import poll
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import known_runs, live_folders
from punctual.distribution import __version__
from punctual.executors.local.devices import visible_devices
from punctual.executors.local.limits import hard_limits, has_capability, is_lower, lower_limits, own_limits
from punctual.executors.local.process_tree import state_of

#: Name of the run of the daemon, with a number where there are several; other runs are those of jobs that share nothing.
SHARED_NAME = "daemon"
_SHARED_RUN = re.compile(rf"{SHARED_NAME}(-\d+)?")


@contextmanager
def host_lock(most_s: float) -> Iterator[bool]:
    """Lock for beginning, joining, replacing and leaving the shared host; one process has it at a time.

    Yields whether this process has got it within `most_s` seconds. The kernel takes it from a process that ends.
    """
    path = _lock_file()
    with refused_if_unwritable(path.parent):
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # An attempt every 10 ms: jobs may be unsteered until this process has the lock.
        yield poll(partial(_locks, file), most_s, 0.01)
    finally:
        os.close(file)


def lock_holder() -> str:
    """Name the process that has the lock, for the user of a command that waits for it."""
    inode = _lock_file().stat().st_ino
    locks = (line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines())
    pid = next((int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5].endswith(f":{inode}")), None)
    if pid is None:
        return "another command, which starts the daemon or gives it jobs"
    stopped = f"; it is stopped: let it go on (`kill -CONT {pid}`) or end it" if state_of(pid) == "T" else ""
    return f"process {pid}, which starts the daemon or gives it jobs{stopped}"


def _lock_file() -> Path:
    return runtime_root().parent / "host.lock"  # beside the runs


def _locks(file: int) -> bool:
    """Try to lock a file; return whether this process has the lock."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def shared_run() -> RunFolder | None:
    """Return the run that a new job joins: that of the daemon, or else one whose jobs the next daemon goes on with.

    The daemon may use the same GPUs as this process. None: a new daemon begins a run. Jobs that were
    interrupted, and that neither a command waits for nor a service had, are left alone until `punctual attach`.
    """
    if (steered := daemon_run()) is not None:
        return steered
    unsteered = (run for run in live_folders() if _is_shared(run) and (run.is_followed() or run.supervised_jobs()))
    left = (run for run in known_runs() if run.is_of_service() and run.open_jobs() and _is_shared(run))
    return next(chain(unsteered, left), None)


def run_to_continue() -> RunFolder | None:
    """Return the run whose journal a new daemon continues: one without open jobs; None: it begins another one."""
    ended = (run for run in known_runs() if _SHARED_RUN.fullmatch(run.name) and _is_shared(run) and not run.is_live())
    return next((run for run in ended if not run.open_jobs() and not run.supervised_jobs()), None)


def daemon_run() -> RunFolder | None:
    """Return the run of the daemon that a new job joins; None: there is no daemon."""
    return next((run for run in live_folders() if run.is_live() and _is_shared(run)), None)


def is_outdated(run: RunFolder, facts: Mapping[str, Any]) -> bool:
    """Whether a daemon of this process is to take the place of that of `run`: a service stays as it is.

    That one is of another version of Punctual, or may not give jobs the niceness or the limits of this process. `facts`: the run's.
    """
    if run.has_service():
        return False
    if facts.get("version") != __version__ or too_nice(run) is not None:
        return True
    if (pid := run.daemon_pid()) is None or not lower_limits(pid, own := own_limits()):
        return False
    # One with more of one limit and less of another would have to leave its place to the next command again.
    return not any(is_lower(wanted, hard) for hard, wanted in hard_limits(pid, own).values())


def too_nice(run: RunFolder) -> int | None:
    """Return the niceness of the daemon of `run` if it may start no job at that of this process; None: it may."""
    pid, wanted = run.daemon_pid(), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        if pid is None or (niceness := os.getpriority(os.PRIO_PROCESS, pid)) <= wanted:
            return None
        limit = resource.prlimit(pid, resource.RLIMIT_NICE)[0]
        may_choose = has_capability(pid, 23)  # any niceness: CAP_SYS_NICE
    except OSError:  # it has just ended, or this system does not tell
        return None
    # The limit counts from 1 for niceness 19 to 40 for -20.
    return None if may_choose or limit == resource.RLIM_INFINITY or 20 - wanted <= limit else niceness


def check_no_service(run: RunFolder) -> None:
    """Raise `InvalidSpec` if a service steers `run`, since there can be one at a time."""
    if run.has_service():
        raise InvalidSpec(
            "one service at a time must run for a user on these GPUs",
            f"another one, process {run.record()['pid']}",
            "`punctual up`",
            "Give it jobs (`punctual submit`), or end it first (`punctual down`).",
        )


def _is_shared(run: RunFolder) -> bool:
    try:
        facts = run.records.run_facts()
    except InvalidSpec:  # its daemon, or the next one, says what is wrong with the journal
        return bool(run.supervised_jobs()) and run.machine() is None
    # A daemon gives its jobs GPUs of its own: those of a command that is shown others are to be others.
    is_shared = bool(facts.get("options", {}).get("shared")) and facts.get("gpus") == list(visible_devices())
    return is_shared and run.machine(facts) is None
