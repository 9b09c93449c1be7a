"""`punctual submit`: give a service a program and its deadline, or the jobs of a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from punctual.cli import run as running
from punctual.cli._options import taking
from punctual.cli._service import log_notice, started_service
from punctual.cli._streams import write_error, write_line
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.runtime.host_options import HostOptions
from punctual.runtime.json_text import json_text
from punctual.runtime.run_folder import RunFolder
from punctual.runtime.service_host import submit_jobs
from punctual.runtime.sharing import service_run
from punctual.runtime.submission import Submission

SETTINGS = running.SETTINGS

Wait = Annotated[bool, typer.Option("--wait", help="Follow the jobs to their ends, as `punctual run` does.")]
NoStart = Annotated[bool, typer.Option("--no-start", help="Do not start a service where none runs: end with an error.")]

#: Options of `punctual run` that only tell of something where the command follows its jobs.
_ONLY_WAITING = ("strict", "report", "quiet", "page")


@dataclass(frozen=True, kw_only=True)
class QueueOptions(running.StartOptions):
    """What `punctual submit` takes."""

    wait: Wait = False
    no_start: NoStart = False


@taking(QueueOptions)
def submit(given: QueueOptions) -> None:
    """Give the service jobs, and return. A service is started if none runs."""
    told = {name for name in _ONLY_WAITING if getattr(given, name)}
    if told and not given.wait:
        name = min(told)
        raise InvalidSpec(
            f"`--{name}` must go with `--wait`",
            f"`--{name}` alone",
            "`punctual submit`",
            "Add `--wait`; or ask when the job has ended: `punctual report JOB`.",
            option=name,
        )
    submissions, options = given.submissions(service_run()), given.host(shared=True)
    _start_if_missing(options, no_start=given.no_start)
    service = service_run()
    if (
        service is not None and HostOptions.of(service.facts()).engine == HostOptions().engine
    ):  # else it is on other nodes
        running.warn_of_room(submissions)
    if given.wait:
        raise typer.Exit(given.follow(submissions, options))
    run, names = submit_jobs(submissions, options)
    _tell(run, submissions, names, as_json=given.as_json)


def _start_if_missing(options: HostOptions, *, no_start: bool) -> None:
    if service_run() is not None:
        return
    if no_start:
        raise InvalidSpec(
            "a service must run",
            "none",
            "`punctual submit --no-start`",
            "Start one (`punctual up`), or leave `--no-start` out.",
        )
    run = started_service(options)
    pid = run.record()["pid"]
    write_error(f"punctual: no service ran: started one, process {pid}; `punctual down` ends it", log_notice())


def _tell(run: RunFolder, submissions: Sequence[Submission], names: Sequence[JobId], *, as_json: bool) -> None:
    for submission, name in zip(submissions, names, strict=True):
        if name != submission.spec.id:
            write_error(f"punctual: the name '{submission.spec.id}' was taken: this job is {name}")
        write_line(json_text({"job": name, "host": run.name, "output": str(run.log(name))}) if as_json else name)
    if not as_json:
        write_error(f"punctual: see punctual ps; what it writes: punctual logs {names[0]} --follow")
