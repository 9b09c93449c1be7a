"""`punctual run`, `submit` and `attach`: give programs with deadlines, or the jobs of a file, to the daemon, and follow them."""

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from punctual.cli._allocation import allocation, longest_grace_s, note_end, warn_of_end
from punctual.cli._drive import Begin, drive
from punctual.cli._help import examples
from punctual.cli._options import (
    AsJson,
    JobsAtOnce,
    OpenJob,
    ProgressRegex,
    Quiet,
    ReportFile,
    Steps,
    Strict,
    controller_names,
    open_job_names,
    policy_names,
    taking,
)
from punctual.cli._streams import write_answer, write_error
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.units import exact_text
from punctual.daemon.control_client import capacity_for_jobs, open_page_of, standings_of
from punctual.daemon.control_socket import ControlFailed
from punctual.daemon.disk_space import check_room
from punctual.daemon.earlier_runs import run_like
from punctual.daemon.follower import JobFollower
from punctual.daemon.host_options import ACTUATORS, SHARING_POLICY, HostOptions
from punctual.daemon.joining import Joining, log_notice
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import find_job, known_jobs, messages_of
from punctual.daemon.sharing import daemon_run
from punctual.executors.local.output import ProcessSettings, cpus_here
from punctual.history.run import RunSummary, summarize
from punctual.request.deadlines import process_started_at
from punctual.request.job_options import JobOptions
from punctual.request.jobs_file import read_jobs
from punctual.request.submission import (
    DEFAULT_CONTROLLER,
    DEFAULT_WORKER_CONTROLLER,
    Submission,
    check_checkpoint_dir,
    submission_of,
)

#: Settings by which arguments after the program's name are the program's, even without `--` before it.
SETTINGS = {name: {"allow_interspersed_args": False} for name in ("run", "submit")}

#: Sections of the help -> the options in each, and how each is written; what is said of one of a job is in `JobOptions`.
SECTIONS: dict[str, dict[str, Any]] = {
    "Deadline": {
        "deadline": typer.Option(metavar="WHEN"),
        "margin": typer.Option(metavar="SHARE"),
        "at_deadline": typer.Option(metavar="train-on|stop"),
        "guarantee": typer.Option("--guarantee"),
        "work": typer.Option(metavar="TIME"),
        "like": typer.Option(metavar="JOB"),
        "strict": Strict,
    },
    "What it may have": {
        "cores": typer.Option(metavar="A..B"),
        "memory": typer.Option(metavar="SIZE"),
        "workers": typer.Option(metavar="A..B"),
        "gpus": typer.Option(metavar="A..B"),
        "cores_per_worker": typer.Option(metavar="N"),
        "servers": typer.Option(metavar="A..B"),
        "budget_usd": typer.Option("--budget", metavar="USD"),
        "weight": typer.Option(metavar="NUMBER"),
        "preemptible": typer.Option("--preemptible/--no-preemptible", show_default=False),
        "controller": typer.Option(
            metavar="NAME",
            help=f"The controller of the job, see `punctual plugins controllers`. [default: {DEFAULT_CONTROLLER}; with workers {DEFAULT_WORKER_CONTROLLER}]",
            autocompletion=controller_names,
        ),
        "policy": typer.Option(
            metavar="NAME",
            help="Policy by which jobs share the machine (`punctual plugins policies`); the first command chooses for all.",
            autocompletion=policy_names,
        ),
        "jobs_at_once": JobsAtOnce,
        "actuator": typer.Option(metavar="NAME", help=f"How grants are enforced: {', '.join(ACTUATORS)}."),
        "alone": typer.Option("--alone", help="Plan with the whole machine, whatever else runs on it."),
    },
    "Progress and end": {
        "steps": Steps,
        "progress_regex": ProgressRegex,
        "until": typer.Option(metavar="'loss<X'"),
        "on_stall": typer.Option(metavar="tell|stop|retry"),
        "stop_grace": typer.Option(metavar="TIME"),
    },
    "Start": {
        "after": typer.Option(metavar="NAME", autocompletion=open_job_names),
        "name": typer.Option(metavar="NAME"),
        "jobs": typer.Option(metavar="FILE.toml", help="Run the jobs of a file, a table `[[job]]` for each, at once."),
        "checkpoint_dir": typer.Option(metavar="DIR"),
        "retries": typer.Option(metavar="N", min=0),
        "secret_env": typer.Option(metavar="NAME"),
    },
    "What is shown": {
        "as_json": AsJson,
        "quiet": Quiet,
        "page": typer.Option(
            "--page", help="Show the run in a browser while it lasts; the address is told at the start."
        ),
        "report": ReportFile,
    },
    "Program": {"program": typer.Argument(metavar="-- PROGRAM [ARGS]...", show_default=False)},
}
#: Each option of `SECTIONS`, by the name of its field.
OPTIONS: dict[str, Any] = {name: option for options in SECTIONS.values() for name, option in options.items()}


class StartOptions(JobOptions):
    """Options of `punctual run` and `punctual submit`; fields are named as in the objects that receive them."""

    strict: bool = False
    actuator: str = "auto"
    jobs: Path | None = None
    policy: str = SHARING_POLICY
    jobs_at_once: int | None = None
    page: bool = False
    report: Path | None = None
    as_json: bool = False
    quiet: bool = False

    def submissions(self, run: RunFolder | None) -> list[Submission]:
        """Return the jobs of these options, or of the file that they name; `run`: that of the present service."""
        note_end()
        started_at, (capacity, together) = process_started_at(), capacity_for_jobs(run)
        if self.jobs is None:
            submissions = [submission_of(self, started_at, capacity, together, run_like)]
        elif JobOptions.given({name: getattr(self, name) for name in JobOptions.model_fields}) != JobOptions.given({}):
            raise InvalidSpec(
                "options of a job must be in the file with `--jobs`",
                "a program" if self.program else "an option of a job",
                "the command line",
                "Leave it out, or write it into the job's table `[[job]]`.",
            )
        else:
            submissions = read_jobs(
                self.jobs, started_at, capacity, together, lambda told: write_error(f"punctual: {told}"), run_like
            )
        if self.strict and all(submission.spec.deadline_s is None for submission in submissions):
            raise InvalidSpec(
                "`--strict` needs a deadline that can be missed",
                "none",
                "the command line",
                "Give a deadline (`--deadline 90m`), or leave `--strict` out.",
            )
        return submissions

    def host(self, *, shared: bool) -> HostOptions:
        """Return the options of a host; raises `InvalidSpec` if one is impossible."""
        options = HostOptions(actuator=self.actuator, policy=self.policy, shared=shared, jobs_at_once=self.jobs_at_once)
        options.check()
        return options

    def follow(self, submissions: Sequence[Submission], options: HostOptions) -> int:
        """Run the jobs to their ends, shown as these options say; return the exit status."""
        return drive(
            begin_of(submissions, options),
            [submission.spec.id for submission in submissions],
            as_json=self.as_json,
            strict=self.strict,
            report=self.report,
            quiet=self.quiet,
            page=self.page,
            grace_s=longest_grace_s(submissions),
        )


class RunOptions(StartOptions):
    """Options of `punctual run`."""

    alone: bool = False


EXAMPLES = {
    "run": examples(
        "punctual run --deadline 3m -- python train.py --epochs 10",
        "punctual run --deadline 18:00 --cores 0.5..4 -- python train.py",
        "punctual run --deadline 2h --workers 1..4 -- python train_elastic.py",
    ),
    "submit": examples(
        "punctual submit --deadline 18:00 -- python train.py",
        "punctual submit --guarantee --work 30m --deadline 2h -- python train.py",
        "punctual submit --jobs jobs.toml",
    ),
}


@taking(RunOptions, SECTIONS)
def run(given: RunOptions) -> None:
    """Run a program so that it ends at its deadline. It gets the fewest cores that do that."""
    submissions = given.submissions(None if given.alone else daemon_run())
    warn_beforehand(submissions)
    warn_of_end(submissions, allocation(grace_s=longest_grace_s(submissions)))
    raise typer.Exit(given.follow(submissions, given.host(shared=not given.alone)))


def warn_beforehand(submissions: Sequence[Submission]) -> None:
    """Check the folders for checkpoints, and tell of disks that are likely to be too small, and of a misplaced deadline."""
    for submission in submissions:
        check_checkpoint_dir(submission)
        words = submission.program.argv[1:]
        if submission.spec.deadline_s is None and any(word.partition("=")[0] == "--deadline" for word in words):
            write_error(
                "punctual: warning: `--deadline` stands behind the program, which gets it, and the job has no deadline: "
                "write `punctual run --deadline 1h -- PROGRAM`"
            )
    for told in check_room(submissions):
        write_error(f"punctual: warning: {told}")


def begin_of(submissions: Sequence[Submission], options: HostOptions) -> Begin:
    """Return what makes a follower submit the jobs, to the present daemon or a new one, and follow them."""
    return partial(JobFollower.submit, submissions=submissions, options=options)


def attach(
    job: OpenJob = None,
    as_json: AsJson = False,
    strict: Strict = False,
    report: ReportFile = None,
    quiet: Quiet = False,
) -> None:
    """Follow a job as the command does that started it. A job without a daemon gets one, if it was interrupted too."""
    known = known_jobs()
    named = [each for each in known if each.title == job] or known  # a full name is no beginning of another job's
    is_open = [each for each in named if each.steering not in ("ended", "elsewhere")]
    target = find_job(
        job, is_open if job is None or any(each.title.startswith(job or "") for each in is_open) else named
    )
    if target.steering in ("ended", "elsewhere"):
        machine = target.run.machine()
        raise InvalidSpec(
            "the job must be an open one of this machine",
            "one that has ended" if machine is None else f"one of machine '{machine}'",
            f"job '{target.title}'",
            f"See how it ended: `punctual show {target.title}`.",
        )
    note_end()
    begin = partial(JobFollower.follow, run=target.run, job=target.job)
    raise typer.Exit(drive(begin, [target.job], as_json=as_json, strict=strict, report=report, quiet=quiet))


#: Options of `punctual run` that only tell of something where the command follows its jobs.
_ONLY_WAITING = ("strict", "report", "quiet", "page")


class QueueOptions(StartOptions):
    """Options of `punctual submit`."""

    wait: bool = False
    no_start: bool = False


#: Sections of the help: what only tells of something where the command follows its jobs is in one of its own.
_SECTIONS = {
    **{
        title: {name: option for name, option in options.items() if name not in _ONLY_WAITING}
        for title, options in SECTIONS.items()
    },
    "Service": {
        "no_start": typer.Option("--no-start", help="Do not start a daemon where none runs: end with an error."),
        "wait": typer.Option("--wait", help="Follow the jobs to their ends, as `punctual run` does."),
    },
    "Only with --wait": {name: OPTIONS[name] for name in _ONLY_WAITING},
}


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
        warn_beforehand(submissions)
    if given.wait:
        raise typer.Exit(given.follow(submissions, options))
    joining = Joining(
        options, settings=ProcessSettings(cpus=cpus_here()), or_else="end the service first (`punctual down`)", http={}
    )
    run, named = joining.submit(submissions)
    names = [submission.spec.id for submission in named]
    if joining.started is not None:
        started = f"punctual: started the daemon, process {joining.started.pid}; it ends with its last job"
        from punctual.api.http_options import notice_without_http  # most commands have no use for what it needs

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
            write_answer({"job": name, "host": run.name, "output": str(run.log(name))}, name, as_json=as_json)
    finally:  # the jobs are there, also if their names cannot be written
        if accepted and not as_json:
            job = accepted[0][1]
            url = open_page_of(run, job) if sys.stderr.isatty() else None  # others may read a log
            write_error(
                f"punctual: see punctual ps, or {'punctual page --open' if url is None else url}",
                f"punctual: what it writes: punctual logs {job} --follow",
            )
