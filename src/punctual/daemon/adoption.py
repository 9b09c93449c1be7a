"""Take over jobs whose scheduling process has ended: adopt those that still run, record the ends of the others."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from punctual.channel import PageError, PageVersionError, SharedBlock
from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.protocols import Sink
from punctual.daemon.polling import poll
from punctual.daemon.run_folder import RunFolder, boot_id
from punctual.executors.local.actuator import Choice
from punctual.executors.local.cgroups import in_force
from punctual.executors.local.ending import failed
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.job_signals import GRACE_S
from punctual.executors.local.orphans import end_left, processes_of
from punctual.executors.local.progress import PageProgress
from punctual.executors.local.supervisor_client import LEASE_S, AdoptableJob, take_over

_LOG = logging.getLogger(__name__)

#: Why an agent, or in its absence a supervisor, ends a job by itself.
FENCED = "its node had not heard from the service for so long that it might have been started elsewhere"


def claimed(run: RunFolder, jobs: Iterable[JobId], claims: ExitStack) -> dict[JobId, AdoptableJob]:
    """Claim the running jobs that no other process steers; they stay as they are when `claims` closes.

    Nothing is left of the others.

    Raises `InvalidSpec`: another process steers one.
    """
    kept: dict[JobId, AdoptableJob] = {}
    for job in jobs:
        claim = _claim(run, job)
        if claim is not None:
            kept[job] = claim
            claims.callback(claim.close)
    return kept


def _claim(run: RunFolder, job: JobId) -> AdoptableJob | None:
    """Claim a job from its supervisor. None: the job has no process and none is about to start."""
    address = run.takeover_socket(job)
    give_up_at = time.monotonic() + LEASE_S + 1.0
    while run.supervisor_pid(job) is not None:  # it may be just ending, or wait for the word of a host that is stopped
        claim = take_over(address)
        if claim is not None:
            return claim
        if time.monotonic() > give_up_at:
            raise InvalidSpec(
                "only a job that nobody steers can be taken over",
                "one that another command has just taken over",
                f"job '{job}'",
                "See `punctual ps` for what runs, and whether it is steered.",
            )
        time.sleep(0.1)
    _end_unkept(run, job)
    return None


def _end_unkept(run: RunFolder, job: JobId) -> None:
    """Clear up behind a job whose supervisor is gone; returns when no process is left."""
    address = run.takeover_socket(job)
    address.unlink(missing_ok=True)
    end_left(partial(processes_of, address), GRACE_S)


def _is_unkept(run: RunFolder, job: JobId) -> bool:
    return run.supervisor_pid(job) is None


def actuator_of(kept: Mapping[JobId, AdoptableJob], otherwise: str) -> str | Choice:
    """Return the actuator in force on the running jobs, or `otherwise` if none runs."""
    return next((in_force(claim.request.actuator) for claim in kept.values()), otherwise)


def adopted(
    run: RunFolder,
    executor: LocalExecutor,
    kept: Mapping[JobId, AdoptableJob],
    launched: Callable[[JobId], tuple[LaunchJob, ProgressReported | None]],
    sink: Sink,
) -> dict[JobId, Allocation]:
    """Have the executor continue the running jobs; return what each job holds.

    A job that cannot be continued, because of what it has written, is ended: it may be started again.

    `launched`: returns a job's launch and its last progress report, in the executor's time.

    Raises `InvalidSpec`: a job's page or control groups are unusable for this user, or for this version of Punctual.
    """
    granted = {}
    for job, claim in kept.items():
        try:
            granted[job] = executor.take_over(claim, *launched(job), sink)
        except InvalidSpec:
            raise
        except Exception as error:
            # Seconds that a supervisor may take to end once it has begun to clear up.
            if poll(partial(_is_unkept, run, job), 5.0):
                continue  # its process has just ended
            if isinstance(error, OSError | PageVersionError):
                raise InvalidSpec(
                    "the job's page and control groups must be there for this user",
                    str(error),
                    f"job '{job}'",
                    "Take it over as the user who started it; it goes on meanwhile.",
                ) from error
            _LOG.warning("job '%s' cannot be gone on with, and is started again: %s", job, error)
            claim.kill()
            _end_unkept(run, job)
    return granted


# What a supervisor has left.


def recorded_end(
    job: JobId, record: Mapping[str, Any], *, shift_s: float = 0.0, at_least: float
) -> tuple[ProgressReported | None, JobFinished | JobFailed]:
    """Read a supervisor's record of a job's end: the last progress report, if any, and the end as an event.

    * `shift_s`: offset in seconds from the returned instants to the monotonic clock.
    * `at_least`: instant of the last message about the job.
    """
    event = _end_of(job, record, shift_s=shift_s, at_least=at_least)
    page = _page_left(record)
    if page is None:
        return None, event
    landed_at = page.landed_at()
    if landed_at is not None and isinstance(event, JobFinished):
        event = replace(event, landed_at=landed_at - shift_s)
    sample = page.latest(0.0)
    assert sample.unit_at is not None
    sample = replace(sample, unit_at=sample.unit_at - shift_s, active_s=0.0)  # another process may have its number now
    return sample.report(event.at, job, event.at, float(record["core_s"])), event


def _end_of(job: JobId, record: Mapping[str, Any], *, shift_s: float, at_least: float) -> JobFinished | JobFailed:
    code = int(record["ended"])
    is_of_now = record.get("boot") == boot_id() and "at_ns" in record
    ended_at = record["at_ns"] / 1e9 - shift_s if is_of_now else at_least
    at = max(at_least, ended_at)
    if code == 0:
        return JobFinished(at=at, job=job, landed_at=ended_at)
    if record.get("fenced"):
        return JobFailed(at=at, job=job, cause=FENCED, retryable=True, is_lost=True)
    return failed(job, at, record)


def _page_left(record: Mapping[str, Any]) -> PageProgress | None:
    """Open the page of a process that has ended. None: it reported nothing, or the machine was restarted since."""
    try:
        page = PageProgress(SharedBlock.of(bytes.fromhex(record.get("page", ""))), record.get("started_ns", 0) / 1e9)
    except (PageError, TypeError, ValueError):
        return None
    return page if record.get("boot") == boot_id() and page.latest(0.0).unit_at is not None else None
