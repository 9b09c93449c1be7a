"""The host that this user's jobs share on this machine, and the lock for changing it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from punctual.daemon.capacity import usable_hardware
from punctual.daemon.paths import refused_if_unwritable, runtime_root
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import known_runs, live_folders

#: Seconds between two attempts to get the lock: jobs may be unsteered until then.
_POLL_INTERVAL_S = 0.01


@contextmanager
def host_lock(most_s: float) -> Iterator[bool]:
    """Lock for beginning, joining, replacing and leaving the shared host; one process has it at a time.

    Yields whether this process has got it within `most_s` seconds. The kernel takes it from a process that ends.
    """
    folder = runtime_root().parent  # beside the runs
    with refused_if_unwritable(folder):
        file = os.open(folder / "host.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(file, time.monotonic() + most_s)
    finally:
        os.close(file)


def _locked(file: int, give_up_at: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_POLL_INTERVAL_S)
        else:
            return True


def shared_run() -> RunFolder | None:
    """Return the run that a new job joins: that of the daemon, or else one whose jobs the next daemon goes on with.

    The daemon may use the same processors and GPUs as this process. None: a new daemon begins a run. Jobs that were
    interrupted, and that neither a command waits for nor a service had, are left alone until `punctual attach`.
    """
    shared = [run for run in live_folders() if _is_shared(run)]
    live = (run for run in shared if run.is_live())
    unsteered = (run for run in shared if run.is_followed() or run.kept_jobs())
    left = (run for run in known_runs() if run.is_of_service() and run.open_jobs() and _is_shared(run))
    return next(chain(live, unsteered, left), None)


def daemon_run() -> RunFolder | None:
    """Return the run of the daemon that a new job joins; None: there is no daemon."""
    return next((run for run in live_folders() if _is_shared(run) and run.is_live()), None)


def _is_shared(run: RunFolder) -> bool:
    facts = run.facts()
    # What was started on certain processors or GPUs is to stay there: its host has the same.
    is_shared = bool(facts.get("options", {}).get("shared")) and facts.get("hardware") == usable_hardware()
    return is_shared and run.machine() is None
