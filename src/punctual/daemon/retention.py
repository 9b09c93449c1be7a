"""Retention of past jobs: their messages, their output, and the folders of runs that have no other job."""

import logging
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.job import ENDED
from punctual.daemon.machine_providers import fleets
from punctual.daemon.paths import remove_tree, state_root
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import KnownJob, Steering, jobs_of, known_runs, with_own_titles
from punctual.daemon.sharing import host_lock
from punctual.journal.errors import StoreUnreachable

_LOG = logging.getLogger(__name__)

_REMOVED = ".removed-"
#: Seconds that another process may take to begin or join a daemon.
_LOCK_S_MAX = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Limits of stored jobs: one that has ended is kept while it is within all of them, the newest first.

    * `age_s`: since it last wrote anything, in seconds.
    * `n_jobs`, `n_bytes`: number and size of all jobs together, also those that have not ended.
    """

    age_s: float = 30 * 86_400.0
    n_jobs: float = 1000
    n_bytes: float = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job with the size of its output and of its part of the journal.

    `written_at`: wall time of its end, or else of its last output, in seconds since 1970.
    """

    job: KnownJob
    written_at: float
    n_bytes: float


def past_jobs() -> list[PastJob]:
    """Return all jobs, open ones included, the newest first."""
    jobs: list[KnownJob] = []
    for run in known_runs():
        with suppress(StoreUnreachable):  # it is looked at again with the next daemon
            jobs += jobs_of(run)
    past = [
        each for run, of_run in groupby(with_own_titles(jobs), key=lambda job: job.run) for each in _past(run, of_run)
    ]
    return sorted(past, key=lambda each: (-each.written_at, each.job.title))


def expired(jobs: Iterable[PastJob], limits: RetentionLimits, now: float) -> list[PastJob]:
    """Return the jobs of `jobs`, the newest first, that exceed one of the limits at wall time `now`."""
    beyond, n_bytes = [], 0.0
    for i_job, past in enumerate(jobs):
        n_bytes += past.n_bytes
        if now - past.written_at > limits.age_s or i_job >= limits.n_jobs or n_bytes > limits.n_bytes:
            beyond.append(past)
    return beyond


def remove(jobs: Iterable[PastJob]) -> list[PastJob]:
    """Remove jobs that nobody steers; return those of which nothing is left."""
    removed = []
    for run, of_run in groupby(sorted(jobs, key=lambda past: past.job.run.name), key=lambda past: past.job.run):
        chosen = list(of_run)
        try:
            _remove_from(run, chosen)
        except (OSError, InvalidSpec) as error:
            _LOG.warning("jobs of '%s' could not be removed: %s", run.name, error)
        else:
            removed += chosen
    return removed


def prune(limits: RetentionLimits | None = None, *, interrupted: bool = False) -> list[PastJob]:
    """Remove the ended jobs that exceed the limits; return them. `interrupted`: also those that could be resumed."""
    for left in state_root().glob(f"{_REMOVED}*"):
        remove_tree(left)
    allowed: set[Steering] = {"ended", "interrupted"} if interrupted else {"ended"}
    beyond = expired(past_jobs(), limits or RetentionLimits(), time.time())
    return remove(past for past in beyond if past.job.steering in allowed)


def _remove_from(run: RunFolder, jobs: Iterable[PastJob]) -> None:
    """Remove jobs of a run, and all of the run if it has no other job and no process."""
    chosen = {past.job.job for past in jobs}
    with host_lock(_LOCK_S_MAX) as has_lock:  # no daemon begins to write on in its journal meanwhile
        is_over = not run.is_live() and not run.supervised_jobs() and not fleets(run)
        if has_lock and is_over and chosen.issuperset(run.jobs()):
            # Under another name first, so that a removal that is interrupted leaves no half of a run.
            removed = run.state_dir.with_name(f"{_REMOVED}{secrets.token_hex(8)}")
            run.state_dir.rename(removed)
            remove_tree(removed)
            return
    states = run.jobs()
    for job in chosen:
        if states.get(job, "finished") not in ENDED:  # it was interrupted, and is given up
            run.record_end(job, "failed")
    run.forget(sorted(chosen))


def _past(run: RunFolder, of_run: Iterable[KnownJob]) -> Iterator[PastJob]:
    """Yield the jobs of a run with their sizes; each has an equal part of the journal's size."""
    jobs = list(of_run)
    # Whoever only reads a journal leaves an empty write-ahead file and its index beside it.
    files = (run.journal, run.journal.with_name(f"{run.journal.name}-wal"))
    of_journal = [(n_bytes, at) for n_bytes, at in map(_size_and_time, files) if n_bytes]
    for job in jobs:
        of_output = [_size_and_time(file) for file in _outputs(job)]
        n_bytes = sum(n_bytes for n_bytes, _ in of_output) + sum(n_bytes for n_bytes, _ in of_journal) / len(jobs)
        last_output_at, last_message_at = (max((at for _, at in of), default=0.0) for of in (of_output, of_journal))
        written_at = job.ended_at or last_output_at or last_message_at
        yield PastJob(job=job, written_at=written_at, n_bytes=n_bytes)


def _outputs(job: KnownJob) -> list[Path]:
    """Return the files of a job's output or, for a run with unknown jobs, all files but the journal's."""
    if job.name:
        return job.run.outputs(job.job)
    # Empty if another process has just removed the folder.
    return [file for file in job.run.state_dir.glob("*") if not file.name.startswith(job.run.journal.name)]


def _size_and_time(file: Path) -> tuple[int, float]:
    """Size of a file and wall time of its last change; 0, 0: it is not there."""
    with suppress(OSError):
        status = file.stat()
        return status.st_size, status.st_mtime
    return 0, 0.0
