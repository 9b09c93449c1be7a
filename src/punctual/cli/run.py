"""`punctual run`: run a program, or the jobs of a file, to their deadlines."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from punctual.cli._allocation import allocation, longest_grace_s, note_end, warn_of_end
from punctual.cli._completion import controller_names, open_job_names, policy_names
from punctual.cli._drive import Begin, OutputOptions, drive
from punctual.cli._help import examples
from punctual.cli._options import AsJson, JobsAtOnce, ProgressRegex, Quiet, ReportFile, Steps, Strict, taking
from punctual.cli._streams import write_error
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import capacity_for_jobs
from punctual.daemon.disk_space import check_room
from punctual.daemon.earlier_runs import run_like
from punctual.daemon.follower import JobFollower
from punctual.daemon.host_options import ACTUATORS, SHARING_POLICY, HostOptions
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.sharing import daemon_run
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
SETTINGS = {"allow_interspersed_args": False}

#: Sections of the help -> the options in each, and how each is told.
SECTIONS: dict[str, dict[str, Any]] = {
    "Deadline": {
        "deadline": typer.Option(
            metavar="WHEN",
            help="90s, 1h30m from the start of this command; or 18:00, '18:00 tomorrow', '2026-12-01 18:00'.",
        ),
        "margin": typer.Option(
            metavar="SHARE", help="Share of the deadline to be early by, 0.1%. [default: the controller's own rule]"
        ),
        "at_deadline": typer.Option(
            metavar="train-on|stop",
            help="Train on after the deadline, or save and end by then. [default: train-on]",
            show_default=False,
        ),
        "guarantee": typer.Option(
            "--guarantee", help="Run only if the deadline is promised; else name one that could be, and exit."
        ),
        "work": typer.Option(
            metavar="TIME", help="Core time of the whole job, 30m, if known: so that it need not be measured first."
        ),
        "like": typer.Option(metavar="JOB", help="Expect the core time and the memory of this finished job."),
        "strict": Strict,
    },
    "What it may have": {
        "cores": typer.Option(
            metavar="A..B", help="Least and most cores, 0.1..2, or the most alone, 2. [default: all usable]"
        ),
        "memory": typer.Option(
            metavar="SIZE",
            help="Memory that it needs, 4GiB, with --workers for each of them: it starts when that much is free, and may use no more. "
            "4G..16G: after running out it is started again with twice as much, up to 16G.",
        ),
        "workers": typer.Option(
            metavar="A..B", help="Least and most workers of a program that uses `punctual.elastic`, 1..4."
        ),
        "gpus": typer.Option(
            metavar="A..B", help="The same with a GPU for each worker; or the part of one GPU to use, 0.5."
        ),
        "cores_per_worker": typer.Option(
            metavar="N", help="Cores of one worker. [default: an equal part of all usable]"
        ),
        "servers": typer.Option(
            metavar="A..B", help="Parameter servers beside the workers: as many as workers, within A..B."
        ),
        "budget_usd": typer.Option(
            "--budget",
            metavar="USD",
            help="Dollars that it may cost on machines of pools. Once they are spent it saves and waits; `punctual set --budget` gives more.",
        ),
        "weight": typer.Option(metavar="NUMBER", help="Weight against other jobs that share the machine, above 0."),
        "preemptible": typer.Option(
            "--preemptible/--no-preemptible",
            help="Whether the job may be paused for others, if the policy pauses jobs. [default: if it uses no GPU]",
            show_default=False,
        ),
        "controller": typer.Option(
            metavar="NAME",
            help=f"The controller of the job, see `punctual plugins controllers`. [default: {DEFAULT_CONTROLLER}; with workers {DEFAULT_WORKER_CONTROLLER}]",
            show_default=False,
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
        "until": typer.Option(
            metavar="'loss<X'", help="End the training at this loss, told by `run.report_loss` or elastic steps."
        ),
        "on_stall": typer.Option(
            metavar="tell|stop|retry", help="Action if no step comes any more. [default: tell]", show_default=False
        ),
        "stop_grace": typer.Option(
            metavar="TIME",
            help="Time to save, once the job was asked to stop, before it is killed. "
            "[default: 60s; in Slurm what is left of the allocation]",
            show_default=False,
        ),
    },
    "Start": {
        "after": typer.Option(
            autocompletion=open_job_names,
            metavar="NAME",
            help="Start it when this job of the same host has finished; once for each.",
        ),
        "name": typer.Option(metavar="NAME", help="Name of the job. [default: the script's, and four characters]"),
        "jobs": typer.Option(metavar="FILE.toml", help="Run the jobs of a file, a table `[[job]]` for each, at once."),
        "checkpoint_dir": typer.Option(
            metavar="DIR",
            help="Folder of checkpoints for a program that uses `punctual.elastic`; it resumes from the newest.",
        ),
        "retries": typer.Option(
            metavar="N",
            min=0,
            help="How often in a row to start it again, from its checkpoint, after a failure. "
            "[default: 3 with --checkpoint-dir, else 0]",
            show_default=False,
        ),
        "secret_env": typer.Option(
            metavar="NAME", help="Leave the value of this variable out of records; the program gets it. Repeatable."
        ),
    },
    "What is shown": {
        "as_json": AsJson,
        "quiet": Quiet,
        "page": typer.Option(
            "--page", help="Show the run in a browser while it lasts; the address is told at the start."
        ),
        "report": ReportFile,
    },
    "Program": {
        "program": typer.Argument(
            metavar="-- PROGRAM [ARGS]...", help="The program and its arguments.", show_default=False
        ),
    },
}


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
            self._check_strict(submissions)
            return submissions
        if JobOptions.given({name: getattr(self, name) for name in JobOptions.model_fields}) != JobOptions.given({}):
            raise InvalidSpec(
                "options of a job must be in the file with `--jobs`",
                "a program" if self.program else "an option of a job",
                "the command line",
                "Leave it out, or write it into the job's table `[[job]]`.",
            )
        submissions = read_jobs(
            self.jobs, started_at, capacity, together, lambda told: write_error(f"punctual: {told}"), run_like
        )
        self._check_strict(submissions)
        return submissions

    def _check_strict(self, submissions: Sequence[Submission]) -> None:
        if self.strict and all(submission.spec.deadline_s is None for submission in submissions):
            raise InvalidSpec(
                "`--strict` needs a deadline that can be missed",
                "none",
                "the command line",
                "Give a deadline (`--deadline 90m`), or leave `--strict` out.",
            )

    def host(self, *, shared: bool) -> HostOptions:
        """Return the options of a host; raises `InvalidSpec` if one is impossible."""
        options = HostOptions(actuator=self.actuator, policy=self.policy, shared=shared, jobs_at_once=self.jobs_at_once)
        options.check()
        return options

    def follow(self, submissions: Sequence[Submission], options: HostOptions) -> int:
        """Run the jobs to their ends, shown as these options say; return the exit status."""
        told = {
            option.name: getattr(self, option.name) for option in fields(OutputOptions) if hasattr(self, option.name)
        }
        output = OutputOptions(**told, grace_s=longest_grace_s(submissions))
        return drive(begin_of(submissions, options), [submission.spec.id for submission in submissions], output)


class RunOptions(StartOptions):
    """Options of `punctual run`."""

    alone: bool = False


EXAMPLES = examples(
    "punctual run --deadline 3m -- python train.py --epochs 10",
    "punctual run --deadline 18:00 --cores 0.5..4 -- python train.py",
    "punctual run --deadline 2h --workers 1..4 -- python train_elastic.py",
)


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

    def begin(follower: JobFollower) -> None:
        follower.submit(submissions, options)

    return begin
