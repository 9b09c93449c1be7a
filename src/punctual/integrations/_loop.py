"""Training loop of a library, reported step by step from the library's hooks."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from punctual.channel import BLOCK_VARIABLE, CHECKPOINT_VARIABLE
from punctual.tracking import losses, stop
from punctual.tracking.complaint import invalid, whole
from punctual.tracking.declaration import Phase
from punctual.tracking.record import StepPlan
from punctual.tracking.session import current
from punctual.tracking.span import PhaseSpan, phase

#: Result of `FrameworkLoop.end_asked` if the loss has reached the goal: the training ends as a success.
GOAL_REACHED = 1


class FrameworkLoop:
    """The steps of one training, for hooks that are called when a step has ended.

    Parameters
    ----------
    n_steps
        Steps of this training; infinite: not known.
    total_steps
        Steps of all trainings in this script together, as `punctual.total_steps` declares them; None: they are declared
        there, or this training is the only one.
    start_step
        Steps of it done before this process: those of the checkpoint that it goes on from.
    n_steps_per_epoch
        0: there are no epochs, or they are of no use.
    phases
        Declaration of each kind of phase; without a count it comes once after each epoch.
    after
        Names of those that come once this training has ended.
    save
        Makes a checkpoint when Punctual asks the training to stop or to leave, before the process ends; called in every
        process of the training. None: the training is not to be asked.
    before
        The same hooks' loop before this one, which an exception may have ended; it is over.

    Raises
    ------
    ValueError
        The number of steps is not known, or one of the numbers cannot be used.
    """

    def __init__(
        self,
        n_steps: float,
        *,
        total_steps: int | None = None,
        start_step: int = 0,
        n_steps_per_epoch: int = 0,
        phases: Mapping[str, Phase] | None = None,
        after: Collection[str] = (),
        save: Callable[[], object] | None = None,
        before: "FrameworkLoop | None" = None,
    ) -> None:
        OpenPhase().end(InterruptedError())  # one that an exception has left open
        if before is not None:
            before.finish()
        session = self._session = current()
        if total_steps is not None and not session.declared_steps:
            session.begin_job(whole(total_steps, "total_steps", "this training", least=1))
        is_open = session.is_of_parts and not isfinite(n_steps)
        end_step = session.declared_steps if is_open else _known(n_steps)
        course = StepPlan(start_step, max(start_step, end_step), n_steps_per_epoch)
        plan = {name: (known, course.n_occurrences_left(known)) for name, known in (phases or {}).items()}
        session.begin_loop(course, plan, may_follow=True)
        #: The count with which this training is done; None: not known.
        self._last_step = None if is_open else session.n_steps + course.total_steps - start_step
        self._after = after
        self._save = save
        if save is not None:
            stop.on_stop(save)
        #: Whether anybody looks at the losses of single steps; on a GPU it costs time to ask for one.
        self._needs_losses = losses.goal() is not None
        self._session.start_training()

    @property
    def is_in_step(self) -> bool:
        """Whether a step is in progress."""
        return self._session.step_open

    def step_began(self) -> None:
        """Begin a step; it is done when it ends, or when a phase begins in it."""
        self._session.begin_step()

    def step_ended(self, loss: Any = None) -> None:
        """Count the present step, unless it is counted already; waits if the pacing line requires it.

        Parameters
        ----------
        loss
            Its loss: a number or a tensor of one; None: not known.
        """
        if loss is not None and self._needs_losses:
            self.report_loss(loss)
        self._session.end_step()

    def expect(self, n_steps_left: float) -> None:
        """Declare the steps left after those done and the present one; infinite: unknown."""
        if self._last_step is None or not isfinite(n_steps_left):
            return
        before, self._last_step = self._last_step, self._session.n_steps + self._session.step_open + int(n_steps_left)
        self._session.expect_more(self._last_step - before)

    def report_loss(self, loss: Any) -> None:
        """Report the loss of the present step, or of the last one."""
        self._session.report_loss(losses.number(loss))

    def end_asked(self) -> int:
        """Return whether the loop is to end here: `GOAL_REACHED`, the code to exit with after a checkpoint, or 0.

        All processes of a distributed training get the same answer, if all of them ask after the same step.
        """
        return _largest_of_all(self._session.end_asked or (GOAL_REACHED if self._session.goal_reached else 0))

    def end(self, exit_code: int) -> None:
        """Make the checkpoint, and end the process as Punctual asked; `exit_code` as `end_asked` gave it."""
        stop.obey(exit_code)

    def ends_here(self) -> bool:
        """Whether the loop is to end here as a success; if Punctual asked for another end, the process ends."""
        asked = self.end_asked()
        if asked > GOAL_REACHED:
            self.end(asked)  # returns if nobody can make a checkpoint: then it is not for the script to end
        return asked == GOAL_REACHED

    def finish(self) -> None:
        """Note the end of the library's loop: its remaining steps and phases need not be done."""
        if not self._session.is_of_parts:
            self._session.end_early(n_phases_more=0, but=self._after)
        else:
            n_missing = 0 if self._last_step is None else self._last_step - self._session.n_steps
            self._session.end_part(n_missing, but=self._after, is_all=self._last_step is not None)
        if self._save is not None:
            stop.forget(self._save)


class OpenPhase:
    """Phase in progress, for hooks that are called at its beginning and its end; a process has one at a time."""

    _spans: ClassVar[list[PhaseSpan]] = []

    def begin(self, name: str, units: int | None = None, *, rehearsal: bool = False, inside: bool = False) -> None:
        """Begin a phase of `units` units, if known; the one before it ends, unless this is `inside` of it."""
        if not inside:
            self.end()
        span = phase(name, units=units or None, rehearsal=rehearsal)
        span.__enter__()
        self._spans.append(span)

    def is_open(self) -> bool:
        return bool(self._spans)

    def advance(self, of: int | None = None) -> None:
        """Count a unit that is done, of `of` in all; a phase inside has not come."""
        self.withdraw_inner()
        for span in self._spans:
            span.advance(1, of=of)

    def withdraw_inner(self) -> None:
        """Take the begin of a phase inside back: it does not come."""
        while len(self._spans) > 1:
            self._spans.pop().withdraw()

    def end(self, error: BaseException | None = None) -> None:
        """End the phase, if there is one, and the one inside; after `error`, with the units that they had by then."""
        while self._spans:
            self._spans.pop().__exit__(None if error is None else type(error))


def folder_of_checkpoints(given: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder `given`, or that of ``punctual run --checkpoint-dir``; None: there is neither."""
    named = given or os.environ.get(CHECKPOINT_VARIABLE)
    return Path(named) if named else None


def is_used(checkpoint: Path) -> bool:
    """Whether a training of this process has gone on from a checkpoint, or made it: another training does not."""
    return str(checkpoint.resolve()) in current().checkpoints_used


def use(checkpoint: Path) -> None:
    """Record that this process uses a checkpoint: it went on from it, or wrote it."""
    current().checkpoints_used.add(str(checkpoint.resolve()))


def replace_file(path: Path, write: Callable[[str], object]) -> None:
    """Call `write` for a temporary file, and give it the name once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f"writing-{path.name}")
    write(str(writing))
    writing.replace(path)


def check_one_model(model: object, kind: type, callback: str, library: str) -> None:
    """Raise `ValueError` if a library trains several models at once, to compare them."""
    if not isinstance(model, kind):
        raise invalid(
            "a training must be of one model",
            type(model).__name__,
            f"`{callback}`",
            f"Leave the callback out of `{library}.cv`, and track its folds with `punctual.track`.",
        )


def _known(total_steps: float) -> int:
    if not isfinite(total_steps) or total_steps < 0:
        raise invalid(
            "the number of steps must be known before the first",
            "a loader without a length, and no limit",
            "this training",
            "Limit the training by steps, or give the steps of the whole training as total_steps=.",
        )
    return whole(int(total_steps), "total_steps", "this training")


def _largest_of_all(answer: int) -> int:
    """Return the largest answer of all processes of a training; only the one with the page gets requests."""
    torch = sys.modules.get("torch")  # a training that has not loaded it is one process
    if torch is None or BLOCK_VARIABLE not in os.environ:
        return answer
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return answer
    device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else None
    answers = torch.tensor([answer], device=device)
    distributed.all_reduce(answers, op=distributed.ReduceOp.MAX)
    return int(answers.item())
