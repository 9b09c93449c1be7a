"""Which host the jobs of this user share on this machine, and who may change that."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from punctual.runtime.capacity import usable_hardware
from punctual.runtime.paths import refused_if_unwritable, runtime_root
from punctual.runtime.run_folder import Run
from punctual.runtime.runs import live_folders

_LOOK_S = 0.05


@contextmanager
def host_lock(most_s: float) -> Iterator[bool]:
    """The right to begin the shared host, to submit to it, to take its place, and to leave it; one process has it.

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
            time.sleep(_LOOK_S)
        else:
            return True


def shared_run() -> Run | None:
    """The run that a new job joins: its host is there, or commands that will take the place of their host.

    The host may use the same processors and GPUs as this process. None: the new job begins one. Jobs that nobody waits for are left alone until `punctual attach`.
    """
    return next((run for run in live_folders() if _is_joinable(run)), None)


def _is_joinable(run: Run) -> bool:
    facts = run.facts()
    # What was started on certain processors or GPUs is to stay there: its host has the same.
    is_shared = bool(facts.get("options", {}).get("shared")) and facts.get("hardware") == usable_hardware()
    return is_shared and run.machine() is None and (run.is_live() or run.is_followed())
