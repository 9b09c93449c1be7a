"""The training loop, step by step."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from punctual.tracking import losses, stop
from punctual.tracking.complaint import invalid, whole
from punctual.tracking.declaration import Phase, Phases, by_name
from punctual.tracking.record import StepPlan
from punctual.tracking.session import Session, current

T = TypeVar("T")

_WHERE = "`punctual.track`"


def track(
    iterable: Iterable[T],
    *,
    epochs: int | None = None,
    total_steps: int | None = None,
    start_step: int = 0,
    phases: Phases = (),
) -> "Run[T]":
    """Iterate over a training's batches and let Punctual know how far it is.

    Give `epochs`, and the iterable is gone through that many times; or give `total_steps`, and it is gone through
    once. With neither, what the iterable has is the whole training, as one epoch. In nested loops repeat the call with the same
    `total_steps`: the count goes on.

    A step is done when the loop comes back for the next batch, or when a `phase` begins in its body. A loop left by
    `break` counts the step it was left in, unless all declared steps are done already; steps that are left are missed,
    unless `Run.finish` has said that the training is done. A `break` or a phase at the top of the body, before the step
    itself, ends no step: it comes within a tenth of the time that the shortest step took.

    Parameters
    ----------
    iterable
        Batches; with `epochs` it must have a length and start anew each time, as a data loader does.
    epochs
        Passes over the iterable; None: one, without `total_steps`.
    total_steps
        Steps of the whole job, over all calls; see `total_steps` for loops that are not parts of one count. An iterable
        without a length, which may be endless, is cut when they are done, and that is said. One that has a length is not
        cut: more batches than steps declared are told as a fault.
    start_step
        Steps done before this process started (resuming from a checkpoint): the count starts here. With `epochs`,
        complete epochs are skipped without touching the iterable and the first pass ends early by the steps already
        done in its epoch; which batches it yields is up to the iterable. With `total_steps` nothing is skipped.
    phases
        Names of phases that run once after each epoch, the last included; or names with what is known of each, as a
        `Phase` or a number of occurrences. Phases that are not named are learned from their first occurrence on.

    Raises
    ------
    ValueError
        An argument cannot be used.
    """
    start = whole(start_step, "start_step", _WHERE)
    length = _length(iterable)
    loop = _loop_of_epochs(epochs, length) if total_steps is None else _loop_of_steps(epochs, total_steps, length)
    if start > loop.total_steps:
        raise invalid(
            f"`start_step` must not be above the {loop.total_steps} steps of the whole job", f"step {start}", _WHERE,
            "Give the number of steps already done, and epochs or total_steps of the whole job.",
        )  # fmt: skip
    return Run(current(), iterable, loop, start, by_name(phases))


def total_steps(n_steps: int) -> None:
    """Declare the steps of several trainings in one script together: they share the time up to the deadline.

    Call it once, before the first of them. Each loop, or `fit` of a library with a callback of Punctual, then counts on. A
    `fit` that ends before its last step (early stopping) leaves its missing steps out, and so does a loop that says
    `Run.finish`.

    Parameters
    ----------
    n_steps
        Steps of all of them, counted as each counts its own: batches, rounds, steps of the optimizer.

    Raises
    ------
    ValueError
        `n_steps` is not a whole number of 1 or more, or a training has begun already.
    """
    n_all = whole(n_steps, "n_steps", "`punctual.total_steps`", least=1)
    session = current()
    if session.declared_steps:
        raise invalid(
            "`punctual.total_steps` must come before the first training",
            f"one of {session.declared_steps} steps",
            "this script",
            "Call it at the top of the script.",
        )
    session.begin_job(n_all)


class Run(Generic[T]):
    """A tracked loop. Made by `track`.

    Attributes
    ----------
    step
        Number of the step under way, counted from 0 over the whole job. A checkpoint made in its body resumes with
        ``start_step=run.step + 1``.
    epoch
        Number of the epoch under way, from 0; with `total_steps`, of the pass, if the iterable has a length.
    """

    def __init__(
        self, session: Session, iterable: Iterable[T], loop: "_LoopSpec", start_step: int, phases: dict[str, Phase]
    ) -> None:
        course = StepPlan(start_step, loop.total_steps, loop.length or 0)
        plan = {name: (phase, course.n_occurrences_left(phase)) for name, phase in phases.items()}
        if not loop.is_repeated:  # a pass of the iterable need not be an epoch
            course = replace(course, n_steps_per_epoch=0)
        self.step = session.begin_loop(course, plan, continues=not loop.is_repeated)
        self._first_step = self.step
        goes_on = not loop.is_repeated and loop.total_steps == session.declared_steps
        #: Steps of this loop that are done; with a total that loops share, those of the ones before too.
        self._n_done = self.step if goes_on else start_step
        self._session = session
        self._iterable = iterable
        self._loop = loop
        self.epoch = self._n_done // loop.length if loop.length else 0
        self._last_step = -1
        self._is_in_body = self._is_done = False

    @property
    def epoch_ended(self) -> bool:
        """Whether the present step is the last of its epoch; False if the iterable has no length."""
        return self.step == self._last_step

    def report_loss(self, loss: float) -> None:
        """Report the loss of the present step. With a goal (``punctual run --until "loss<0.1"``) the loop ends there.

        Parameters
        ----------
        loss
            A number, or a tensor of one.
        """
        self._session.report_loss(losses.number(loss))

    def finish(self) -> None:
        """Declare the training done before its last declared step: early stopping, or another criterion of the script.

        The loop ends with the step under way, if it is not left by `break`; loops that follow are empty. The job has
        landed, and no step is missing. What comes after an epoch, as a last evaluation, may still come. Of several trainings
        (`punctual.total_steps`) it is this one that is done: loops that follow count on, and its missing steps are left out.
        """
        if self._is_done:
            return
        if self._session.is_of_parts:
            self._is_done = True
        else:
            self._session.finished = True
        if not self._is_in_body:
            self._end_early(n_phases_more=0)

    @property
    def finished(self) -> bool:
        """Whether the loop has ended, or will with this step, because of `finish` or a loss that was to be reached."""
        return self._is_done or self._session.finished

    @property
    def goal_reached(self) -> bool:
        """Whether the loss has reached the goal."""
        return self._session.goal_reached

    def __len__(self) -> int:
        """Number of steps that this loop takes."""
        if self._loop.is_repeated:
            return self._loop.total_steps - self._n_done
        return len(self._iterable)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        session = self._session
        session.start_training()
        step = self._first_step
        for i_epoch, n_steps, batches in self._passes():
            self.epoch = i_epoch
            self._last_step = step + n_steps - 1 if n_steps else -1
            for batch in batches:
                self.step = step
                self._is_in_body = True
                session.begin_step()
                try:
                    yield batch
                except GeneratorExit:
                    session.leave_step()
                    self._leave_body()
                    raise
                session.end_step()
                step += 1
                self._is_in_body = False
                if session.finished or self._is_done:
                    self._leave_body()
                if session.end_asked:
                    stop.obey(session.end_asked)
                if session.finished or self._is_done:
                    return
        if self._loop.is_repeated:
            session.end_loop()

    def _leave_body(self) -> None:
        """End the step, and the training too if the script has said so."""
        self._is_in_body = False
        if self.finished:
            self._end_early(n_phases_more=0 if self._loop.is_repeated else 1)

    def _end_early(self, n_phases_more: int) -> None:
        if not self._is_done:
            self._session.end_early(n_phases_more)
            return
        # Whether the script has more epochs of this training, in loops of their own, which do not come now, nobody knows.
        n_missing = self._first_step + len(self) - self._session.n_steps if self._loop.is_repeated else 0
        self._session.end_part(n_missing, n_phases_more, is_all=False)

    def _passes(self) -> Iterator[tuple[int, int, Iterable[T]]]:
        """Yield each pass's epoch, its steps (0: unknown) and its batches."""
        length = self._loop.length or 0
        if self.finished:  # with a loop before this one
            return
        if not self._loop.is_repeated:
            n_steps_left = None if length else max(0, self._loop.total_steps - self._n_done)
            yield self.epoch, length, islice(self._iterable, n_steps_left)
            if n_steps_left and self.step + 1 - self._first_step == n_steps_left:
                self._session.tell_cut(n_steps_left)
        elif length:
            i_epoch, n_steps_done = divmod(self._n_done, length)
            if n_steps_done:
                yield i_epoch, length - n_steps_done, islice(self._iterable, length - n_steps_done)
                i_epoch += 1
            for i in range(i_epoch, self._loop.total_steps // length):
                yield i, length, self._iterable


@dataclass(frozen=True, slots=True)
class _LoopSpec:
    """Declaration of a loop. `length` None: the iterable has none."""

    total_steps: int
    length: int | None
    is_repeated: bool


def _loop_of_epochs(epochs: int | None, length: int | None) -> _LoopSpec:
    n_epochs = 1 if epochs is None else whole(epochs, "epochs", _WHERE)
    if length is None:
        raise invalid(
            "without `total_steps` the iterable must have a length", "one without", _WHERE,
            "Give total_steps, the steps of the whole training, and loop over the epochs yourself.",
        )  # fmt: skip
    return _LoopSpec(n_epochs * length, length, is_repeated=True)


def _loop_of_steps(epochs: int | None, total_steps: int, length: int | None) -> _LoopSpec:
    if epochs is not None:
        raise invalid(
            "only one of `epochs` and `total_steps` must be given", f"{epochs=} and {total_steps=}", _WHERE,
            "Leave one of them out.",
        )  # fmt: skip
    return _LoopSpec(whole(total_steps, "total_steps", _WHERE), length, is_repeated=False)


def _length(iterable: object) -> int | None:
    """Return the length, if there is one: a loader over a stream has the method but no answer."""
    try:
        return len(iterable)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None
