"""Completions for the shell: names of jobs, policies and controllers."""

from punctual import registry
from punctual.daemon.runs import known_jobs, open_jobs


def open_job_names(incomplete: str) -> list[str]:
    """List the names of open jobs with this beginning."""
    return sorted({job.title for job in open_jobs() if job.title.startswith(incomplete)})


def job_names(incomplete: str) -> list[str]:
    """List the names of all jobs with this beginning, ended ones too."""
    return sorted({job.title for job in known_jobs() if job.title.startswith(incomplete)})


def policy_names(incomplete: str) -> list[str]:
    """List the names of policies with this beginning."""
    return _plug_ins("policies", incomplete)


def controller_names(incomplete: str) -> list[str]:
    """List the names of controllers with this beginning."""
    return _plug_ins("controllers", incomplete)


def _plug_ins(family: str, incomplete: str) -> list[str]:
    return [name for name in registry.names(family) if name.startswith(incomplete)]
