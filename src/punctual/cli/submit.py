"""`punctual submit`: give the daemon a program with a deadline, or the jobs of a file."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from punctual.api.http_options import notice_without_http
from punctual.cli import run as running
from punctual.cli._help import examples
from punctual.cli._options import taking
from punctual.cli._streams import write_error, write_line
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.units import exact_text
from punctual.daemon.control_client import open_page_of, standings_of
from punctual.daemon.control_socket import ControlFailed
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import Joining, log_notice
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import messages_of
from punctual.daemon.sharing import daemon_run
from punctual.executors.local.output import ProcessSettings, cpus_here
from punctual.history.run import RunSummary, summarize
from punctual.request.json_text import json_text

SETTINGS = running.SETTINGS

#: Options of `punctual run` that only tell of something where the command follows its jobs.
_ONLY_WAITING = ("strict", "report", "quiet", "page")


class QueueOptions(running.StartOptions):
    """Options of `punctual submit`."""

    wait: bool = False
    no_start: bool = False


_TOLD = {name: option for options in running.SECTIONS.values() for name, option in options.items()}
#: Sections of the help: what only tells of something where the command follows its jobs is in one of its own.
_SECTIONS = {
    **{
        title: {name: option for name, option in options.items() if name not in _ONLY_WAITING}
        for title, options in running.SECTIONS.items()
    },
    "Service": {
        "no_start": typer.Option("--no-start", help="Do not start a daemon where none runs: end with an error."),
        "wait": typer.Option("--wait", help="Follow the jobs to their ends, as `punctual run` does."),
    },
    "Only with --wait": {name: _TOLD[name] for name in _ONLY_WAITING},
}
EXAMPLES = examples(
    "punctual submit --deadline 18:00 -- python train.py",
    "punctual submit --guarantee --work 30m --deadline 2h -- python train.py",
    "punctual submit --jobs jobs.toml",
)


@taking(QueueOptions, _SECTIONS)
def submit(given: QueueOptions) -> None:
    """Submit jobs and return immediately. Starts the daemon if none runs."""
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
    daemon = daemon_run()
    submissions, options = given.submissions(daemon), given.host(shared=True)
    if given.no_start and daemon is None:
        raise InvalidSpec(
            "a daemon must run",
            "none",
            "`punctual submit --no-start`",
            "Start one (`punctual up`), or leave `--no-start` out.",
        )
    if daemon is None or HostOptions.of(daemon.facts()).engine == HostOptions().engine:  # else it is on other nodes
        running.warn_beforehand(submissions)
    if given.wait:
        raise typer.Exit(given.follow(submissions, options))
    joining = Joining(
        options, settings=ProcessSettings(cpus=cpus_here()), or_else="end the service first (`punctual down`)", http={}
    )
    run, named = joining.submit(submissions)
    names = [submission.spec.id for submission in named]
    if joining.started is not None:
        started = f"punctual: started the daemon, process {joining.started.pid}; it ends with its last job"
        write_error(started, *notice_without_http(), log_notice())
    guaranteed = [name for submission, name in zip(submissions, names, strict=True) if submission.spec.guarantee]
    refusals = _refusals(run, guaranteed)
    accepted = [
        (submission.spec.id, name) for submission, name in zip(submissions, names, strict=True) if name not in refusals
    ]
    _tell(run, accepted, as_json=given.as_json)
    if refusals:
        first, *others = refusals.values()
        first.others = tuple(others)
        raise first


def _refusals(run: RunFolder, jobs: Sequence[JobId]) -> dict[JobId, InvalidSpec]:
    """Wait for the decisions on the jobs' guarantees; return the refusals of those that were turned away.

    A job that runs after another one is decided on when that has finished; its decision is not awaited.
    """
    try:
        while any(map(_is_undecided, standings := standings_of(run, jobs) if jobs else [])):
            # Between two looks whether a guarantee is decided.
            time.sleep(0.1)
    except ControlFailed as error:
        raise InvalidSpec(
            "the service must answer until the deadline is guaranteed",
            str(error),
            "`punctual submit --guarantee`",
            "The job is there: see `punctual ps --all` for what became of it.",
        ) from error
    turned_away = [JobId(standing["job"]) for standing in standings if standing["state"] == "turned away"]
    messages = messages_of(run, turned_away) if turned_away else []
    return {job: _refusal(summarize(messages, job)) for job in turned_away}


def _is_undecided(standing: Mapping[str, Any]) -> bool:
    return standing["state"] == "queued" and standing["promised_until_wall"] is None and not standing["waits_for"]


def _refusal(summary: RunSummary) -> InvalidSpec:
    earliest_s = summary.earliest_deadline_s
    sooner = "Submit it again when others have finished, or without `--guarantee`."
    return InvalidSpec(
        "the deadline of a job with `--guarantee` must be one that can be promised",
        summary.cause,
        f"job '{summary.job}', which was turned away",
        sooner if earliest_s is None else f"Give it that one (`--deadline {exact_text(earliest_s)}`). {sooner}",
    )


def _tell(run: RunFolder, accepted: Sequence[tuple[JobId, JobId]], *, as_json: bool) -> None:
    """Show the accepted jobs: the wanted name of each, and its name."""
    try:
        for wanted, name in accepted:
            if name != wanted:
                write_error(f"punctual: the name '{wanted}' was taken: this job is {name}")
            write_line(json_text({"job": name, "host": run.name, "output": str(run.log(name))}) if as_json else name)
    finally:  # the jobs are there, also if their names cannot be written
        if accepted and not as_json:
            job = accepted[0][1]
            url = open_page_of(run, job) if sys.stderr.isatty() else None  # others may read a log
            write_error(
                f"punctual: see punctual ps, or {'punctual page --open' if url is None else url}",
                f"punctual: what it writes: punctual logs {job} --follow",
            )
