"""What an executor answers about a job that it does not know."""

from punctual.core.commands import ResizeJob, StopJob
from punctual.core.events import JobFailed

_UNKNOWN = "the executor does not know the job"


def unknown_job(command: ResizeJob | StopJob) -> JobFailed:
    """The answer to `command` about a job that the executor has no process of.

    To a resize it is that the process is gone, through no fault of its program: the scheduler launches the job again,
    unless it was told of that end otherwise meanwhile.
    """
    if isinstance(command, ResizeJob):
        return JobFailed(at=command.at, job=command.job, cause=_UNKNOWN, retryable=True, request=command.request)
    return JobFailed(at=command.at, job=command.job, cause=f"stopped: {command.cause}")
