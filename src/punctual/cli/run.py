"""`punctual run`: a program and its deadline."""

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._compose import DEFAULT_CONTROLLER, DEFAULT_WORKER_CONTROLLER, NewJob, Wishes
from punctual.cli._drive import Manner, drive
from punctual.cli._workers import WorkerWishes, worker_wishes
from punctual.core.errors import InvalidSpec
from punctual.core.loss import LossGoal
from punctual.core.units import parse_cores, parse_cores_range
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
Until = Annotated[
    str | None,
    typer.Option(metavar="'loss<X'", help="End the training at this loss, told by `run.report_loss` or elastic steps."),
]
CheckpointDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where a program that uses `punctual.elastic` keeps checkpoints, and goes on from."
    ),
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
    workers: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Least and most workers of a program that uses `punctual.elastic`, 1..4."),
    ] = None,
    gpus: Annotated[str | None, typer.Option(metavar="A..B", help="The same with a GPU for each worker.")] = None,
    cores_per_worker: Annotated[
        str | None, typer.Option(help="Cores of one worker. [default: an equal part of all usable]")
    ] = None,
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
    name: Annotated[
        str | None, typer.Option(help="Name of the job. [default: the script's, and four characters]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 75 if the deadline is missed.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")] = False,
) -> None:
    """Run a program so that it ends at its deadline, on the fewest cores that do it."""
    started_at = process_started_at()
    # An option may be given as an empty text, from a variable that is not set: that is a slip, and not its default.
    floor_cores, ceiling_cores = parse_cores_range(cores) if cores is not None else (None, None)
    cores_each = parse_cores(cores_per_worker) if cores_per_worker is not None else None
    workers_wished = worker_wishes(workers, gpus, cores_each)
    if workers_wished is not None:
        _check_fits_workers(workers_wished, cores, progress_regex)
    if until is not None and progress_regex is not None:
        raise InvalidSpec(
            "`--until` must not go with `--progress-regex`", "both", "`punctual run`",
            "Only a program that uses `punctual.track` or `punctual.elastic` tells its loss: leave out one of them.",
        )  # fmt: skip
    wishes = Wishes(
        argv=_found(program),
        started_at=started_at,
        deadline_s=deadline_s(deadline, started_at=started_at, now=Now.read()) if deadline is not None else None,
        floor_cores=floor_cores,
        ceiling_cores=ceiling_cores,
        workers=workers_wished,
        controller=controller,
        margin_frac=_share(margin) if margin is not None else None,
        actuator=actuator,
        progress_pattern=progress_regex,
        n_steps=_checked_steps(steps),
        goal=_goal(until) if until is not None else None,
        checkpoint_dir=checkpoint_dir,
        name=name,
    )
    raise typer.Exit(drive(partial(NewJob, wishes), Manner(as_json=as_json, strict=strict, report=report, quiet=quiet)))


def _check_fits_workers(workers: WorkerWishes, cores: str | None, progress_regex: str | None) -> None:
    """Options for jobs that are not made of workers."""
    if cores is not None:
        raise InvalidSpec(
            f"`--cores` must not go with `{workers.option}`", repr(cores), "`punctual run`",
            "Say what one worker holds: `--cores-per-worker 0.5`.",
        )  # fmt: skip
    if progress_regex is not None:
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
