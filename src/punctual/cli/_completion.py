"""What the shell offers for a word that is begun: names of jobs, policies and controllers."""

from punctual import registry
from punctual.daemon.runs import known_jobs, open_jobs


def open_job_names(incomplete: str) -> list[str]:
    """Names of the jobs that have not ended and begin so."""
    return sorted({job.title for job in open_jobs() if job.title.startswith(incomplete)})


def job_names(incomplete: str) -> list[str]:
    """Names of all jobs, also of those that have ended, that begin so."""
    return sorted({job.title for job in known_jobs() if job.title.startswith(incomplete)})


def policy_names(incomplete: str) -> list[str]:
    """Names of the policies that begin so."""
    return _plug_ins("policies", incomplete)


def controller_names(incomplete: str) -> list[str]:
    """Names of the controllers that begin so."""
    return _plug_ins("controllers", incomplete)


def _plug_ins(family: str, incomplete: str) -> list[str]:
    return [name for name in registry.names(family) if name.startswith(incomplete)]
