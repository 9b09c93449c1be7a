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
    """Return the run that a new job joins: one with a host, with commands that will replace it, or of a service.

    The host may use the same processors and GPUs as this process. None: the new job begins one. Jobs of other runs that
    nobody waits for are left alone until `punctual attach` or `punctual up`.
    """
    attended = (run for run in live_folders() if _is_shared(run) and (run.is_live() or run.is_followed()))
    left = (run for run in known_runs() if run.is_of_service() and run.open_jobs() and _is_shared(run))
    return next(chain(attended, left), None)


def service_run() -> RunFolder | None:
    """Return the run of the service that a new job joins; None: there is none."""
    return next((run for run in live_folders() if _is_shared(run) and run.has_service()), None)


def unsteered_run() -> RunFolder | None:
    """Return a run whose jobs outlived their commands and that a service may take over; None: there is none."""
    return next((run for run in live_folders() if _is_shared(run) and not run.is_live() and run.kept_jobs()), None)


def _is_shared(run: RunFolder) -> bool:
    facts = run.facts()
    # What was started on certain processors or GPUs is to stay there: its host has the same.
    is_shared = bool(facts.get("options", {}).get("shared")) and facts.get("hardware") == usable_hardware()
    return is_shared and run.machine() is None
