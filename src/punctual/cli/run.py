"""`punctual run`: a program and its deadline."""

import os
import re
import shutil
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._drive import OpenHost, OutputOptions, drive
from punctual.cli._options import AsJson, Quiet, ReportFile, Strict
from punctual.cli._workers import gpu_frac, worker_range
from punctual.core.errors import InvalidSpec
from punctual.core.loss import LossGoal
from punctual.core.units import parse_cores, parse_cores_range
from punctual.runtime.joined_host import JoinedHost, host_of_new_jobs
from punctual.runtime.local_host import SHARING_POLICY, HostOptions, OutputOf, capacity_here
from punctual.runtime.retention import prune
from punctual.runtime.submission import (
    DEFAULT_CONTROLLER,
    DEFAULT_WORKER_CONTROLLER,
    JobRequest,
    Submission,
    WorkerRange,
    checked_submission,
)
from punctual.runtime.sweeping import sweep
from punctual.runtime.when import Now, deadline_s, process_started_at

#: What follows the program's name is the program's, also without `--` before it.
SETTINGS = {"allow_interspersed_args": False}

#: A job's margin lies below this share of its deadline.
_MARGIN_BOUND = 0.5

ACTUATORS = ("auto", "cgroup-v2", "cgroup-v1", "pacing")

ControllerName = Annotated[
    str | None,
    typer.Option(
        help=f"See `punctual controllers`. [default: {DEFAULT_CONTROLLER}; with workers {DEFAULT_WORKER_CONTROLLER}]",
        show_default=False,
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="Least and most workers of a program that uses `punctual.elastic`, 1..4."),
]
Gpus = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="The same with a GPU for each worker; or the part of one GPU to use, 0.5."),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="'loss<X'", help="End the training at this loss, told by `run.report_loss` or elastic steps."),
]
Servers = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="Parameter servers beside the workers: as many as workers, within A..B."),
]
CheckpointDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where a program that uses `punctual.elastic` keeps checkpoints, and goes on from."
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="How often in a row to start it again, from its checkpoint, after a failure. "
        "[default: 3 with --checkpoint-dir, else 0]",
        show_default=False,
    ),
]
Alone = Annotated[
    bool, typer.Option("--alone", help="Share nothing: count with the whole machine, whatever else runs on it.")
]
Weight = Annotated[float, typer.Option(help="How much the job counts against others that share the machine, above 0.")]
PolicyName = Annotated[
    str, typer.Option(help="How jobs share the machine, see `punctual policies`; for the first of them to choose.")
]


def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARGS]...", help="What to run.")],
    deadline: Annotated[
        str | None,
        typer.Option(help="90s, 1h30m, 1:30:00 from the start of this command; or 18:00, '2026-12-01 18:00'."),
    ] = None,
    cores: Annotated[
        str | None, typer.Option(help="Least and most cores, 0.1..2, or the most alone, 2. [default: all usable]")
    ] = None,
    workers: Workers = None,
    gpus: Gpus = None,
    cores_per_worker: Annotated[
        str | None, typer.Option(help="Cores of one worker. [default: an equal part of all usable]")
    ] = None,
    servers: Servers = None,
    controller: ControllerName = None,
    margin: Annotated[
        str | None,
        typer.Option(help="Share of the deadline to be early by, 0.1%. [default: the controller's own rule]"),
    ] = None,
    actuator: Annotated[str, typer.Option(help=f"How grants are enforced: {', '.join(ACTUATORS)}.")] = "auto",
    progress_regex: Annotated[
        str | None,
        typer.Option(metavar="REGEX|auto", help="Read progress from the program's output: groups step and total."),
    ] = None,
    until: Until = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the whole job, if the program does not say.")] = None,
    checkpoint_dir: CheckpointDir = None,
    retries: Retries = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. [default: the script's, and four characters]")
    ] = None,
    as_json: AsJson = False,
    alone: Alone = False,
    weight: Weight = 1.0,
    policy: PolicyName = SHARING_POLICY,
    strict: Strict = False,
    report: ReportFile = None,
    quiet: Quiet = False,
) -> None:
    """Run a program so that it ends at its deadline, on the fewest cores that do it."""
    started_at = process_started_at()
    # An option may be given as an empty text, from a variable that is not set: that is a slip, and not its default.
    floor_cores, ceiling_cores = parse_cores_range(cores) if cores is not None else (None, None)
    cores_each = parse_cores(cores_per_worker) if cores_per_worker is not None else None
    worker_counts = worker_range(workers, gpus, cores_each, servers)
    _check_fit_together(worker_counts, cores, progress_regex, until)
    request = JobRequest(
        argv=_found(program),
        submitted_at=started_at,
        deadline_s=deadline_s(deadline, started_at=started_at, now=Now.read()) if deadline is not None else None,
        cwd=_here(),
        inherited=dict(os.environ),
        floor_cores=floor_cores,
        ceiling_cores=ceiling_cores,
        gpu_frac=gpu_frac(gpus or ""),
        workers=worker_counts,
        controller=controller,
        margin_frac=_share(margin) if margin is not None else None,
        progress_pattern=progress_regex,
        n_steps=_checked_steps(steps),
        goal=_goal(until) if until is not None else None,
        n_retries=retries,
        checkpoint_dir=checkpoint_dir,
        weight=weight,
        name=name,
    )
    submission = checked_submission(request, capacity_here())
    output = OutputOptions(as_json=as_json, strict=strict, report=report, quiet=quiet)
    options = HostOptions(actuator=actuator, policy=policy, shared=not alone)
    raise typer.Exit(drive(host_of(submission, options), submission.spec.id, output))


def host_of(submission: Submission, options: HostOptions) -> OpenHost:
    """The host of a new job: the one that there is, or a new one of the name of the job."""

    def opened(output_of: OutputOf) -> AbstractContextManager[JoinedHost]:
        facts = {"argv": submission.program.argv, "wall": datetime.now().astimezone().isoformat(timespec="seconds")}
        sweep()
        prune()
        return host_of_new_jobs([submission], options, output_of=output_of, facts=facts)

    return opened


def _here() -> Path | None:
    """The present folder, where there still is one."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _check_fit_together(
    workers: WorkerRange | None, cores: str | None, progress_regex: str | None, until: str | None
) -> None:
    """Raise `InvalidSpec` for options that exclude each other."""
    if until is not None and progress_regex is not None:
        raise InvalidSpec(
            "`--until` must not go with `--progress-regex`", "both", "`punctual run`",
            "Only a program that uses `punctual.track` or `punctual.elastic` tells its loss: leave out one of them.",
        )  # fmt: skip
    if workers is not None and cores is not None:
        raise InvalidSpec(
            f"`--cores` must not go with `{workers.option}`", repr(cores), "`punctual run`",
            "Say what one worker holds: `--cores-per-worker 0.5`.",
        )  # fmt: skip
    if workers is not None and progress_regex is not None:
        raise InvalidSpec(
            f"`--progress-regex` must not go with `{workers.option}`", repr(progress_regex), "`punctual run`",
            "A program that uses `punctual.elastic` reports its progress by itself: leave it out.",
        )  # fmt: skip


def _goal(text: str) -> LossGoal:
    """What `loss<0.1` says."""
    found = re.fullmatch(r"\s*loss\s*<=?\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", text)
    if not found:
        raise InvalidSpec("a goal must be a loss to fall to", repr(text), "`--until`", "Write `--until 'loss<0.1'`.")
    return LossGoal(target=float(found[1]))


def _share(text: str) -> float:
    """`0.1%` and `0.001` are the same share."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    if not found:
        raise InvalidSpec(
            "a margin must be a share of the deadline", repr(text), "`--margin`", "Write `0.1%` or `0.001`."
        )
    share = float(found[1]) / (100 if found[2] else 1)
    if share >= _MARGIN_BOUND:
        raise InvalidSpec(
            "a margin must be less than half of the deadline", repr(text), "`--margin`", "Write `0.1%` or `0.001`."
        )
    return share


def _checked_steps(steps: int | None) -> int | None:
    if steps is not None and steps < 1:
        raise InvalidSpec(
            "the number of steps must be above zero", f"{steps} steps", "`--steps`",
            "Give the steps of the whole job, or leave it out if the program says them.",
        )  # fmt: skip
    return steps


def _found(program: list[str]) -> tuple[str, ...]:
    """`program`, if there is something to run by its name."""
    name = program[0]
    if shutil.which(name) is not None:
        return tuple(program)
    if name.endswith(".py") and Path(name).is_file():
        got, remedy = f"the script '{name}'", f"Name its interpreter too: `-- python {name}`."
    else:
        got, remedy = f"'{name}', which cannot be found or executed", "Check its name, and that it may be executed."
    raise InvalidSpec("the program must be one that can be run", got, "the command line", remedy)
