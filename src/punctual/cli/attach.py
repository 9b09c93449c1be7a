"""`punctual attach`: steer a job again whose command has died."""

from typing import Annotated

import typer

from punctual.cli._completion import open_job_names
from punctual.cli._drive import OpenHost, OutputOptions, drive
from punctual.cli._options import AsJson, Quiet, ReportFile, Strict
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import is_silent
from punctual.daemon.joined_host import host_of_old_jobs
from punctual.daemon.runs import KnownJob, find_job, known_jobs

_JOB = "Name of the job or its beginning; may be left out if there is only one that nobody steers."


def attach(
    job: Annotated[str | None, typer.Argument(help=_JOB, autocompletion=open_job_names)] = None,
    as_json: AsJson = False,
    strict: Strict = False,
    report: ReportFile = None,
    quiet: Quiet = False,
) -> None:
    """Take over a job whose command has died, or that was interrupted, and bring it to its deadline."""
    target = _unsteered(job)
    output = OutputOptions(as_json=as_json, strict=strict, report=report, quiet=quiet)
    raise typer.Exit(drive(_host_of(target), [target.job], output))


def _host_of(target: KnownJob) -> OpenHost:
    """Return the job's host with all its jobs."""
    take = target.steering == "steered"
    return lambda output_of: host_of_old_jobs(target.run, target.job, output_of=output_of, take=take)


def _unsteered(text: str | None) -> KnownJob:
    """Find the unsteered job that `text` names or begins; None: the only one."""
    known = known_jobs()
    jobs = [job for job in known if job.title == text] or known  # a full name is no beginning of another job's
    unsteered = [job for job in jobs if job.steering in ("unsteered", "interrupted")]
    if any(job.title.startswith(text or "") for job in unsteered):
        return find_job(text, unsteered)
    if text is None:
        raise _refused("none", "the jobs of this user")
    target = find_job(text, jobs)
    if target.steering == "steered" and is_silent(target.run):
        return target
    raise _steered_or_ended(target)


def _steered_or_ended(job: KnownJob) -> InvalidSpec:
    where = f"job '{job.title}'"
    if job.steering == "steered":
        return _refused(f"one that process {job.run.record()['pid']} steers", where)
    machine = job.run.machine()
    return _refused("one that has ended" if machine is None else f"one of machine '{machine}'", where)


def _refused(got: str, where: str) -> InvalidSpec:
    return InvalidSpec(
        "the job must be an open one of this machine that no process steers", got, where,
        "See `punctual ps` for what runs, and whether it is steered.",
    )  # fmt: skip
