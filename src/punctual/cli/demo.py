"""`punctual demo`: a real training lands on a deadline that moves while it runs."""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from punctual.cli._drive import Outcome, carry_out
from punctual.cli._errors import refused_if_failing, tell_user
from punctual.cli._plot import check_can_plot
from punctual.cli._screens import PlainScreen, Screen, ShownJob, screen_for
from punctual.cli._streams import write_line
from punctual.cli._words import span
from punctual.cli.report import draw, paragraph
from punctual.cli.run import begin_of
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message, PhaseReported, ProgressReported
from punctual.daemon.capacity import capacity_here, usable_cores
from punctual.daemon.control_client import change as change_job
from punctual.daemon.host_options import HostOptions
from punctual.daemon.runs import find_job, messages_of, open_jobs
from punctual.distribution import check_extras
from punctual.history.run import RunSummary
from punctual.request.job_options import JobOptions
from punctual.request.submission import new_name, submission_of

FOLDER = Path("demo")
Market = Annotated[
    bool,
    typer.Option(
        "--market",
        help="Instead, train on spot machines that come and go as a trace tells, in about two minutes; needs Ray.",
    ),
]

#: Some seconds: a job without a deadline is read once a second.
_N_CALIBRATION_STEPS = 300
_N_EPOCHS = 4
_DEADLINE_S = 60.0
#: The deadline is this many times what the job would take with the whole machine.
_SLACK = 2.0
#: Share of the run after which the deadline is tightened, and the share by which it is.
_TIGHTEN_AT_FRAC = 0.5
_TIGHTEN_BY_FRAC = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpeed:
    """Durations of the app at full speed: before its first step, of a step, and after each epoch."""

    start_s: float
    step_s: float
    epoch_end_s: float


def demo(market: Market = False) -> None:
    """Train a small network on a deadline of a minute. The deadline is tightened half-way."""
    if market:
        from punctual.cli._demo_market import market_demo  # it is only for this

        raise typer.Exit(market_demo())
    check_extras("the demo", "torch", "report")
    # Make the folder for the report, before anything is trained.
    must, remedy = "the demo must be able to make its folder", "Run it in a folder of your own."
    with refused_if_failing(must, f"'{FOLDER.absolute()}'", remedy):
        FOLDER.mkdir(exist_ok=True)
    check_can_plot(FOLDER / "report.html", "the demo's report")
    write_line("Calibrating: the training runs at full speed for a few seconds.")
    speed = calibrate()
    steps_per_epoch = pick_steps(speed)
    write_line(
        f"A step takes {span(speed.step_s)} at full speed. {_N_EPOCHS} epochs of {steps_per_epoch} steps are given "
        f"{span(_DEADLINE_S)}, {_SLACK:g} times what they need; half-way the deadline will be tightened."
    )
    outcome = land(steps_per_epoch)
    raise typer.Exit(_conclude(outcome))


def calibrate() -> TrainingSpeed:
    """Run the app for a few steps without a deadline to measure its speed."""
    outcome = _train(
        _Unwatched(quiet=True), n_epochs=1, steps_per_epoch=_N_CALIBRATION_STEPS, name=new_name(["demo-calibration"])
    )
    if outcome.received is not None:
        raise typer.Exit(outcome.exit_code(strict=False))
    if outcome.summary.status != "finished":
        raise InvalidSpec(
            "the demo's training must run", f"its failure ({outcome.summary.cause})", "the calibration",
            "Run `python -m punctual.cli._demo_training 1 50` to see what is wrong.",
        )  # fmt: skip
    return speed_in(messages_of(outcome.run, [outcome.job]), outcome.summary)


def speed_in(messages: Sequence[Message], summary: RunSummary) -> TrainingSpeed:
    """Measure the app's durations in a run of one epoch at full speed: from a reading amid its steps to its landing."""
    started_at = summary.started_at or summary.submitted_at
    landed_at = summary.landed_at or started_at
    readings = [one for one in messages if isinstance(one, ProgressReported)]
    amid = [(one.unit_at, one.steps_done) for one in readings if 0 < one.steps_done < (one.steps_total or 0.0)]
    from_at, from_steps = amid[0] if amid else (started_at, 0.0)
    phases = next((one.phases for one in reversed(messages) if isinstance(one, PhaseReported)), ())
    epoch_end_s = sum(one.wall_s / max(1, one.units_measured) * one.units_done for one in phases)
    step_s = (landed_at - epoch_end_s - from_at) / max(1.0, summary.steps_done - from_steps)
    return TrainingSpeed(start_s=from_at - from_steps * step_s - started_at, step_s=step_s, epoch_end_s=epoch_end_s)


def pick_steps(speed: TrainingSpeed) -> int:
    """Choose steps per epoch so that the whole job at full speed takes the deadline divided by the slack."""
    fastest_s = _DEADLINE_S / _SLACK - speed.start_s - _N_EPOCHS * speed.epoch_end_s
    return max(20, round(fastest_s / _N_EPOCHS / speed.step_s))


def land(steps_per_epoch: int) -> Outcome:
    """Train on the deadline, which another thread tightens half-way."""
    screen, name = screen_for(as_json=False, quiet=False), new_name(["demo"])
    timer = Timer(_TIGHTEN_AT_FRAC * _DEADLINE_S, _tighten, [name, screen.say])
    timer.daemon = True
    timer.start()
    try:
        return _train(screen, n_epochs=_N_EPOCHS, steps_per_epoch=steps_per_epoch, name=name, deadline_s=_DEADLINE_S)
    finally:
        timer.cancel()


def _tighten(job: str, say: Callable[[str], None]) -> None:
    """Change the deadline, as a user at another terminal would."""
    change = f"-{_TIGHTEN_BY_FRAC * _DEADLINE_S:.0f}s"
    say(f"$ punctual deadline {job} {change}")
    try:
        change_job(find_job(job, open_jobs()), when=change)
    except InvalidSpec as error:  # the job landed just now, or is being stopped
        say(str(error))


def _train(
    screen: Screen, *, n_epochs: int, steps_per_epoch: int, name: str, deadline_s: float | None = None
) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="punctual-demo-") as checkpoints:
        argv = (
            sys.executable, "-m", "punctual.cli._demo_training", str(n_epochs), str(steps_per_epoch), checkpoints,
        )  # fmt: skip
        # The app computes in one thread: more than one core would be of no use to it.
        options = JobOptions(
            program=list(argv), name=name, cores=f"{min(1.0, usable_cores())}",
            deadline=None if deadline_s is None else f"{deadline_s}s",
        )  # fmt: skip
        submission = submission_of(options, time.monotonic(), capacity_here())
        return carry_out(begin_of([submission], HostOptions()), [submission.spec.id], screen)[0]


class _Unwatched(PlainScreen):
    """Screen of a calibration, which shows nothing: in one epoch every phase comes too late to be planned for."""

    def open(self, *jobs: ShownJob) -> None:
        """Do nothing: no job is shown."""


def _conclude(outcome: Outcome) -> int:
    """Draw the run and show its report; return 0 only if it landed on time."""
    exit_code = outcome.exit_code(strict=True)
    for fault in outcome.faults:
        tell_user(fault)
    write_line(paragraph(outcome.summary))
    messages = messages_of(outcome.run, [outcome.job], with_others=True)
    for suffix in (".html", ".png"):
        path = FOLDER / f"report{suffix}"
        draw(path, outcome.run, messages, outcome.job)
        write_line(f"report: {path}")
    return exit_code
