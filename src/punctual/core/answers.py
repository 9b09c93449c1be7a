"""Build the failure events with which executors answer commands that they cannot perform."""

from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.events import GrantFailed, JobFailed

_UNKNOWN = "the executor does not know the job"
#: Why a job is not started.
VARIABLES_GONE = "what was kept of its variables is gone; submit it again"


def not_started(command: LaunchJob, cause: str, short_of: str = "") -> GrantFailed:
    """Return the answer to `command` if no process could be started; `short_of` as in `GrantFailed`."""
    at, job, request = command.at, command.job, command.request
    return GrantFailed(at=at, job=job, request=request, granted={}, cause=cause, short_of=short_of)


def unknown_job(command: ResizeJob | StopJob) -> JobFailed:
    """Return the answer to `command` about a job of which the executor has no process.

    A resize, or a stop before another start, is answered by the loss of the process, which is no fault of its program: the
    scheduler launches the job again, unless another message has told it of that end meanwhile.
    """
    at, job = command.at, command.job
    if isinstance(command, ResizeJob):
        return JobFailed(at=at, job=job, cause=_UNKNOWN, retryable=True, request=command.request, is_lost=True)
    cause, restarts, is_due = command.cause, command.restarts, command.is_due
    return JobFailed(at=at, job=job, cause=cause, retryable=restarts, is_stopped=True, is_due=is_due)
