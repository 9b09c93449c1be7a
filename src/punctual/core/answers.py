"""What an executor answers about a job that it does not know."""

from punctual.core.commands import ResizeJob, StopJob
from punctual.core.events import GrantFailed, JobFailed

_UNKNOWN = "the executor does not know the job"


def unknown_job(command: ResizeJob | StopJob) -> GrantFailed | JobFailed:
    """The answer to `command` about a job that the executor has no process of."""
    if isinstance(command, ResizeJob):
        return GrantFailed(at=command.at, job=command.job, request=command.request, granted={}, cause=_UNKNOWN)
    return JobFailed(at=command.at, job=command.job, cause=f"stopped: {command.cause}")
