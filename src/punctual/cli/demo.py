"""`punctual demo`: a real training lands on a deadline that moves while it runs."""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event as Signal
from threading import Thread

import typer

from punctual.cli._compose import LiveRun, Wishes
from punctual.cli._door import move_deadline
from punctual.cli._drive import Outcome, carry_out
from punctual.cli._errors import tell_user
from punctual.cli._report import draw, paragraph
from punctual.cli._screens import PlainScreen, Screen, screen_for
from punctual.cli._when import process_started_at
from punctual.cli._words import short
from punctual.core.errors import InvalidSpec
from punctual.core.events import PhaseReported, ProgressReported
from punctual.core.protocols import Message

FOLDER = Path("demo")

_N_CALIBRATION_STEPS = 60
_N_EPOCHS = 4
_DEADLINE_S = 60.0
#: The deadline is this many times what the job would take with the whole machine.
_SLACK = 2.0
#: Where in the run the deadline is tightened, and by how much of itself.
_TIGHTEN_AT_FRAC = 0.5
_TIGHTEN_BY_FRAC = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What the app takes at full speed: before its first step, for a step, and after each epoch."""

    start_s: float
    step_s: float
    epoch_end_s: float


def demo() -> None:
    """Train a small network on a deadline of a minute, and tighten it half-way."""
    _check_extras()
    FOLDER.mkdir(exist_ok=True)
    typer.echo("Calibrating: the training runs at full speed for a few seconds.")
    speed = calibrate()
    steps_per_epoch = pick_steps(speed)
    typer.echo(
        f"A step takes {short(speed.step_s)} at full speed. {_N_EPOCHS} epochs of {steps_per_epoch} steps are given "
        f"{short(_DEADLINE_S)}, {_SLACK:g} times what they need; half-way the deadline will be tightened."
    )
    outcome = land(steps_per_epoch)
    raise typer.Exit(_conclude(outcome))


def _check_extras() -> None:
    missing = [name for name in ("torch", "numpy", "sklearn", "matplotlib") if find_spec(name) is None]
    if missing:
        raise InvalidSpec(
            "the demo needs the extras torch and report", f"an installation without {', '.join(missing)}",
            "`punctual demo`", "Install them with `pip install 'punctual[torch,report]'`.",
        )  # fmt: skip


def calibrate() -> Speed:
    """Run the app for a few steps without a deadline and see what it takes."""
    with _checkpoints() as folder:
        argv = _argv(folder, n_epochs=1, steps_per_epoch=_N_CALIBRATION_STEPS)
        wishes = Wishes(argv=argv, started_at=process_started_at())
        outcome = carry_out(wishes, PlainScreen(quiet=True))
    if outcome.summary.status != "finished":
        raise InvalidSpec(
            "the demo's training must run", f"its failure ({outcome.summary.cause})", "the calibration",
            "Run `python -m punctual.apps.vision --epochs 1` to see what is wrong.",
        )  # fmt: skip
    return speed_in(outcome.messages, outcome.summary.started_at or 0.0)


def speed_in(messages: list[Message], started_at: float) -> Speed:
    """What the app took, from the messages of a run at full speed."""
    readings = [message for message in messages if isinstance(message, ProgressReported)]
    stepping = [one for one in readings if one.steps_done > 0]
    first, last = stepping[0], next(one for one in stepping if one.steps_done == stepping[-1].steps_done)
    n_steps = max(1.0, last.steps_done - first.steps_done)
    step_s = (last.unit_at - first.unit_at) / n_steps
    phases = next((one.phases for one in reversed(messages) if isinstance(one, PhaseReported)), ())
    epoch_end_s = sum(one.wall_s / max(1, one.units_measured) * one.units_done for one in phases)
    return Speed(
        start_s=first.unit_at - started_at - first.steps_done * step_s, step_s=step_s, epoch_end_s=epoch_end_s
    )
