"""Retention of past runs."""

import logging
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Literal

from punctual.daemon.paths import remove_tree, state_root
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import jobs_of, known_runs

_LOG = logging.getLogger(__name__)

_REMOVED = ".removed-"

#: *in use*: a process steers its jobs, a job runs on unsteered, or another machine has it. *interrupted*: a job had not
#: ended when the last process that steered it did. *ended*: it is there to be told about, and nothing else.
RunUse = Literal["in use", "interrupted", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Limits of stored runs: a run is kept while it is within all of them, the newest runs first.

    Attributes
    ----------
    age_s
        Since it was last written to, in seconds.
    n_runs, n_bytes
        Number and size of all runs together.
    """

    age_s: float = 30 * 86_400.0
    n_runs: float = 200
    n_bytes: float = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A run and its files; `written_at` is wall time, in seconds since 1970."""

    run: RunFolder
    written_at: float
    n_bytes: int

    @property
    def name(self) -> str:
        return self.run.state_dir.name


def past_runs() -> list[PastRun]:
    """Return all runs that have a folder, also those in use, the newest first."""
    return sorted(map(_past_run, known_runs()), key=lambda past: (-past.written_at, past.name))


def expired(runs: Iterable[PastRun], limits: RetentionLimits, now: float) -> list[PastRun]:
    """Return the runs of `runs`, the newest first, that exceed one of the limits at wall time `now`."""
    beyond, n_bytes = [], 0
    for i_run, past in enumerate(runs):
        n_bytes += past.n_bytes
        if now - past.written_at > limits.age_s or i_run >= limits.n_runs or n_bytes > limits.n_bytes:
            beyond.append(past)
    return beyond


def use_of(run: RunFolder) -> RunUse:
    """Classify whether `run` can be removed: in use, interrupted, or ended."""
    steerings = {job.steering for job in jobs_of(run)}
    if run.is_live() or steerings & {"steered", "unsteered", "elsewhere"}:
        return "in use"
    return "interrupted" if "interrupted" in steerings else "ended"


def remove(past: PastRun) -> bool:
    """Remove the files of a run; return whether it existed and could be removed."""
    # Under another name first, so that a removal that is interrupted leaves no half of a run.
    removed = past.run.state_dir.with_name(f"{_REMOVED}{secrets.token_hex(8)}")
    try:
        past.run.state_dir.rename(removed)
    except OSError as error:
        _LOG.warning("the run '%s' could not be removed: %s", past.name, error)
        return False
    remove_tree(removed)
    return True


def prune(limits: RetentionLimits | None = None, *, interrupted: bool = False) -> list[PastRun]:
    """Remove the ended runs that exceed the limits; return them.

    Parameters
    ----------
    interrupted
        Also those that could be resumed.
    """
    for left in state_root().glob(f"{_REMOVED}*"):
        remove_tree(left)
    allowed = {"ended", "interrupted"} if interrupted else {"ended"}
    beyond = expired(past_runs(), limits or RetentionLimits(), time.time())
    return [past for past in beyond if use_of(past.run) in allowed and remove(past)]


def _past_run(run: RunFolder) -> PastRun:
    n_bytes, written_at = 0, -inf
    for file in run.state_dir.iterdir() if run.state_dir.is_dir() else ():
        with suppress(OSError):  # it has gone meanwhile
            status = file.stat()
            n_bytes += status.st_size
            # Whoever only reads a journal leaves an empty write-ahead file and its index beside it.
            if status.st_size and not file.name.endswith("-shm"):
                written_at = max(written_at, status.st_mtime)
    return PastRun(run=run, written_at=written_at, n_bytes=n_bytes)
