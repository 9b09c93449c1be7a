"""An elastic training for the script: an `ElasticRun` goes through epochs, batches and steps."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from punctual.channel import BLOCK_VARIABLE, EXIT_PREEMPTED
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.collectives import GroupFault
from punctual.elastic_training.evaluation import Evaluation, EvaluationProgress, result_of
from punctual.elastic_training.fetching import Collate, Fetch, Request, length_of, moved
from punctual.elastic_training.member import Point, WorkerSession
from punctual.elastic_training.prefetcher import Prefetcher, SampleOrder
from punctual.elastic_training.progress_reporter import ProgressReporter
from punctual.elastic_training.random_state import seed_all
from punctual.elastic_training.step import Step, Stepper
from punctual.elastic_training.virtual_ranks import Part, cut, places_of
from punctual.tracking import losses, span, stop
from punctual.tracking.complaint import invalid, whole
from punctual.tracking.declaration import Phases, by_name
from punctual.tracking.record import StepPlan

_LOOP, _EVALUATION = "`run.batches`", "`run.evaluate`"
_END = "the end of the training"


@dataclass(frozen=True, slots=True)
class _BatchPlan:
    """Arguments of a loop over batches; `n_samples` of a global batch, `n_samples_max` of a part."""

    order: SampleOrder
    n_samples: int
    n_samples_max: int | None
    can_fuse: bool


class ElasticRun:
    """A training in this worker, in step with all others. Made by `punctual.elastic_training.context.Context`."""

    def __init__(self, member: WorkerSession, stepper: Stepper, *, reports_loss: bool) -> None:
        self._member = member
        self._stepper = stepper
        self._reporter = ProgressReporter(member.agent)
        #: The loss at which the training ends; None: with its last step.
        self._goal = losses.goal() if os.environ.get(BLOCK_VARIABLE) else None
        self._reports_loss = reports_loss
        self._opened = ExitStack()
        self._step: Step | None = None
        self._n_epochs = 1
        #: Epoch of which this process has ended the loop; None: of none.
        self._looped_epoch: int | None = None
        #: Steps of the present epoch if the script has left its loop by `break`; None: it has not.
        self._n_steps_of_left_epoch: int | None = None
        #: Whether the script has left a loop amid a step; and whether it has asked for a checkpoint after the present one.
        self._is_amid_step = self._saves_after_body = False
        self._phases: Phases = ()
        #: Batches of the evaluations seen so far, by the name of their phase.
        self._n_units: dict[str, int] = {}
        self._prefetcher: Prefetcher | None = None
        #: Evaluations that the script has asked for, by place, since their results were last forgotten.
        self._n_asked: dict[str, int] = {}

    # Who and where.

    @property
    def model(self) -> nn.Module:
        """The model, as it was given."""
        return self._member.replica.model

    @property
    def loss(self) -> float:
        """Mean loss of the last step, over the whole global batch; NaN before the first."""
        return self._member.position.loss

    @property
    def goal_reached(self) -> bool:
        """Whether the loss has reached the goal of ``punctual run --until "loss<0.1"``; no further step follows."""
        return losses.has_arrived(self._member.position.losses, self._goal)

    @property
    def finished(self) -> bool:
        """Whether this step is the last, because of `finish` or of a loss that was to be reached."""
        return self._member.position.finished or self.goal_reached

    def finish(self) -> None:
        """Declare the training done before its last step: early stopping, or another criterion of the script.

        Every worker must call it, after the same step: let it follow from `loss` or from what `evaluate` returns, which
        are the same for all. The loops end with the step under way, if they are not left by `break`; the job has landed,
        and no step is missing.
        """
        self._check_synchronous("`run.finish`")
        self._member.position.finished = True
        if not self._reporter.session.step_open:
            self._reporter.end_early(self.step_number, n_phases_more=0)

    @property
    def step_number(self) -> int:
        """Steps done since the training began."""
        return self._member.position.n_steps

    @property
    def epoch(self) -> int:
        """Number of the present epoch, from 0."""
        return self._member.position.epoch

    @property
    def rank(self) -> int:
        """Number of this worker, from 0; it may change between two steps."""
        return self._member.group.rank

    @property
    def n_workers(self) -> int:
        """Number of workers. It may change between two steps, and nothing that is learned should depend on it."""
        return self._member.group.n_workers

    @property
    def is_first(self) -> bool:
        """Whether this is the worker that prints and writes for all."""
        return self.rank == 0

    @property
    def staleness(self) -> int:
        """Steps by others between the last gradient's parameters and its use; 0 if steps are synchronous."""
        served = self._stepper.served
        return 0 if served is None else served.staleness

    @property
    def device(self) -> torch.device:
        """Device of the model and of the batches."""
        return self._member.device

    def print(self, *values: object) -> None:
        """Print in one worker only."""
        if self.is_first:
            print(*values, flush=True)  # noqa: T201 -- it is what the script asks for

    @contextmanager
    def phase(self, name: str, *, units: int | None = None) -> Iterator[span.PhaseSpan]:
        """Report work that is not a step, as `punctual.phase`; only the first worker's is reported.

        The others wait for it as long as it takes: a worker inside is not taken to hang.
        """
        with self._member.agent.excused(), span.phase(name, units=units) as progress:
            yield progress

    # Beginning and end.

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self._member.store is not None:
                opened.callback(self._close, self._member.store)
            opened.enter_context(self._stepper)
            self._reform()
            self._member.mark_boundary()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._opened:
            self._end_with_save()  # of a loop that something still holds
            if kind is None:
                self._check_between_steps()
                self._await_others()
                # The loop was left by `break`, not by an exception.
                if self._n_steps_of_left_epoch is not None and not self.finished:
                    self._member.position.i_step = self._n_steps_of_left_epoch
                    self._declare(self._n_steps_of_left_epoch)
                self._reporter.session.end_loop()
            self._prefetcher = None
            self._stepper.disconnect(after_fault=kind is not None)
            self._member.group.drop(after_fault=kind is not None)
            if self.n_workers == 1:  # it keeps nobody waiting, whatever the script does from here on
                self._member.agent.stamp(self.step_number, waiting=True)

    def _close(self, store: CheckpointStore) -> None:
        """Close the store while the other workers, which have nothing to write, wait."""
        with self._member.agent.excused():
            store.close()

    def _await_others(self) -> None:
        """Leave together: a worker that has lost its group at the very end still needs the others' state."""
        self._member.arrive("end", 0)
        while True:
            try:
                if self._member.is_asynchronous:
                    self._member.gather(_END, None)
                else:
                    self._member.compare(_END)
            except GroupFault:
                self._reform(after_fault=True)
            else:
                return

    def _reform(self, *, after_fault: bool = False, evaluates: bool = False) -> None:
        has_state = self._stepper.disconnect(after_fault=after_fault)
        after_fault = after_fault or not has_state
        while True:
            try:
                self._member.reform(after_fault=after_fault, evaluates=evaluates, has_state=has_state)
                self._stepper.connect()
                break
            except GroupFault:
                after_fault = True
        self._reporter.take(is_first=self.is_first, is_beginning=self._member.is_beginning, n_steps=self.step_number)
        self._stamp()

    # Loops.

    def epochs(self, n_epochs: int, *, phases: Phases = ()) -> Iterator[int]:
        """Yield the numbers of the epochs from the present one on; the last is the one that reaches the goal.

        Parameters
        ----------
        n_epochs
            Epochs of the whole training.
        phases
            Names of phases that come after each epoch, as in `punctual.track`; those not named are learned.
        """
        self._n_epochs, self._phases = whole(n_epochs, "n_epochs", "`run.epochs`"), phases
        position = self._member.position
        for epoch in range(position.epoch, self._n_epochs):
            position = self._member.position
            if epoch > position.epoch:
                if self.finished:
                    return self._reporter.end_early(self.step_number, n_phases_more=1)
                position.epoch, position.i_step = epoch, 0
            seed_all(position.seed, epoch, -3)  # also in a worker that begins in this epoch
            yield epoch

    def batches(
        self,
        dataset: Any,
        *,
        global_batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        collate: Collate | None = None,
        micro_batch_size: int | None = None,
        n_loaders: int = 0,
    ) -> Iterator[Any]:
        """Yield the worker's parts of the epoch's steps, one by one, on the model's device.

        The body of the loop computes the mean loss of the part and calls `backward` and `step`. Every sample comes
        once an epoch, in an order that follows from `seed` and the epoch.

        Parameters
        ----------
        dataset
            Dataset with a length, and a sample for each number.
        global_batch_size
            Samples of a step, over all workers; the last step of an epoch takes the rest.
        collate
            Makes a batch of a list of samples; None: torch's default. With one of your own, virtual ranks go through
            the model one by one.
        micro_batch_size
            Samples of one part, at most: for models that have no memory for more.
        n_loaders
            Processes, of each worker, that fetch samples ahead; 0: the worker does it itself.

        Raises
        ------
        ValueError
            An argument cannot be used, the body has not called `backward` and `step`, or the epoch has had its loop.
        """
        self._check_between_steps()
        is_in_loop = self._step is not None and not self._step.is_over
        if is_in_loop or (self._looped_epoch == self.epoch and not self.finished):
            raise invalid(
                "each epoch must have one loop over `run.batches`",
                f"another one in epoch {self.epoch}",
                _LOOP,
                "Go through the epochs with `for epoch in run.epochs(n)`, and put several datasets into one "
                "(torch.utils.data.StackDataset).",
            )
        n_samples = self._checked_batch_size(global_batch_size)
        n_samples_max = (
            None if micro_batch_size is None else whole(micro_batch_size, "micro_batch_size", _LOOP, least=1)
        )
        order = SampleOrder(length_of(dataset, _LOOP), n_samples, seed, shuffles=shuffle)
        self._member.position.go_on_with(n_samples)
        loop = _BatchPlan(order, n_samples, n_samples_max, can_fuse=collate is None)
        prefetcher = self._prefetcher_of(dataset, collate, whole(n_loaders, "n_loaders", _LOOP))
        self._declare(order.n_steps)
        self._member.place = "top"
        self._n_steps_of_left_epoch, epoch = None, self.epoch
        self._member.arrive("loop", epoch)
        seed_all(seed, epoch)
        while self._member.position.i_step < order.n_steps and not self.finished:
            places = self._places(loop, self._member.position.i_step)
            self._member.arrive("step", 0)
            self._step = self._stepper.begin(places, seed, n_samples_max, can_fuse=loop.can_fuse)
            self._reporter.session.step_open = True
            for part in self._step.parts:
                request = self._request(loop, self._member.position.i_step, part)
                batch = moved(prefetcher.take(request, partial(self._requests, loop)), self.device)
                self._stepper.begin_part(part)
                try:
                    yield batch
                except GeneratorExit:
                    self._end_with_save()
                    if self.epoch == epoch:
                        self._leave_epoch(order.n_steps)
                        seed_all(seed, self.step_number, -2)
                    self._end_loop()
                    raise
                self._stepper.check_body(part)
                if self._step.is_over:
                    break
            self._end_body()
        self._looped_epoch = epoch
        seed_all(seed, self.step_number, -2)  # also in a worker that starts from here
        self._end_loop()

    def _leave_epoch(self, n_steps: int) -> None:
        """Note that the script has left an epoch of `n_steps`: a worker that starts from a step of it skips the rest."""
        self._n_steps_of_left_epoch = n_steps
        if self._step is not None and self._step.is_over:
            self._looped_epoch = self.epoch
            self._member.position.i_step = n_steps

    def _end_loop(self) -> None:
        """End a loop that the script has finished, or has left by `break` or an exception."""
        step, self._step = self._step, None
        session = self._reporter.session
        if step is not None and not step.is_over:
            session.step_open = False  # it is not done, and will not be counted
            self._is_amid_step = step.has_begun
        session.end_step()
        if self.finished:
            self._reporter.end_early(self.step_number, n_phases_more=1)
        self._member.place = "after"
        self._member.mark_boundary()

    def _check_between_steps(self) -> None:
        """Raise `ValueError` if the script has left a loop amid a step."""
        if self._is_amid_step:
            raise invalid(
                "a loop over `run.batches` must be left between two steps",
                f"a step that was left after {self.step_number} others, with gradients of a part of it",
                "this training",
                "Write `break` under `if run.step():`, or above `run.backward` where it follows from `run.step_number`: a "
                "worker's share of a step may come in several batches.",
            )

    def _places(self, loop: _BatchPlan, i_step: int) -> list[range]:
        n_samples = len(loop.order.samples(self.epoch, i_step))
        return places_of(n_samples, loop.n_samples, self._member.n_virtual_ranks)

    def _request(self, loop: _BatchPlan, i_step: int, part: Part) -> Request:
        """Return the sample numbers and seeds to fetch for a part of the step."""
        numbers = loop.order.samples(self.epoch, i_step)
        n_steps = self.step_number + i_step - self._member.position.i_step
        return tuple(
            (
                (loop.order.seed, n_steps, piece.virtual_rank, piece.i_piece),
                tuple(numbers[piece.places.start : piece.places.stop].tolist()),
            )
            for piece in part.pieces
        )

    def _requests(self, loop: _BatchPlan) -> Iterator[Request]:
        """Yield the epoch's expected requests, which hold if nothing changes."""
        for i_step in range(self._member.position.i_step, loop.order.n_steps):
            places = self._places(loop, i_step)
            for part in self._stepper.parts(places, loop.n_samples_max, can_fuse=loop.can_fuse):
                yield self._request(loop, i_step, part)

    def _prefetcher_of(self, dataset: Any, collate: Collate | None, n_loaders: int) -> Prefetcher:
        """Return what fetches batches; loaders stay from epoch to epoch."""
        kept = self._prefetcher
        if not n_loaders or kept is None or kept.n_loaders != n_loaders or not kept.fetch.is_of(dataset, collate):
            kept = self._prefetcher = Prefetcher(Fetch(dataset, collate), n_loaders)
        return kept

    def _checked_batch_size(self, global_batch_size: int) -> int:
        n_samples, n_ranks = whole(global_batch_size, "global_batch_size", _LOOP, least=1), self._member.n_virtual_ranks
        if n_samples < n_ranks:
            raise invalid(
                "`global_batch_size` must be at least the number of virtual ranks", f"{n_samples} samples",
                f"{n_ranks} virtual ranks", "Give a larger batch, or fewer to context.elastic(virtual_ranks=...).",
            )  # fmt: skip
        return n_samples

    def _declare(self, n_steps: int) -> None:
        phases = {
            name: replace(phase, units=phase.units or self._n_units.get(name))
            for name, phase in by_name(self._phases).items()
        }
        position, can_stop = self._member.position, self._member.store is not None
        n_left = max(0, (self._n_epochs - position.epoch) * n_steps - position.i_step)
        course = StepPlan(position.n_steps, position.n_steps + n_left, n_steps)
        self._reporter.declare(course, self._n_epochs, phases, can_stop=can_stop)

    def backward(self, loss: Tensor) -> None:
        """Add the part's gradients to the step's.

        Parameters
        ----------
        loss
            Mean over the samples of the part; one number.
        """
        self._stepper.backward(loss)

    def step(self, *, clip_norm: float | None = None) -> bool:
        """End the part; with the last one of a step, update the model.

        Parameters
        ----------
        clip_norm
            The gradients' norm is cut to this before the optimiser is called.

        Returns
        -------
        bool
            Whether a step was taken. What belongs to a step, such as a scheduler's, goes into ``if run.step():``.
        """
        try:
            if not self._stepper.end_part(clip_norm=clip_norm, exit_code=self._reporter.session.end_asked):
                return False
        except GroupFault:
            self._stepper.give_up()
            self._reform(after_fault=True)
            self._reporter.session.step_open = False
            return False
        self._n_asked = {place: n for place, n in self._n_asked.items() if place == "before"}
        self._member.place = "bottom"
        self._stamp()
        if self._reports_loss:
            self._note_loss(self.loss)
        return True

    def report_loss(self, loss: float | Tensor) -> None:
        """Report a loss of the script's own, as that of a validation, with ``context.elastic(reports_loss=False)``.

        Every worker must call it, and with the same number: one that `evaluate` has led to.

        Raises
        ------
        ValueError
            The losses of steps are reported already.
        """
        if self._reports_loss:
            raise invalid(
                "there must be one kind of loss to train to", "another one beside that of the steps",
                "`run.report_loss`", "Give context.elastic(reports_loss=False), or leave the call out.",
            )  # fmt: skip
        self._note_loss(losses.number(loss))

    def _note_loss(self, loss: float) -> None:
        if self._goal is not None:
            self._check_synchronous("a loss to train to")
            self._member.position.note(loss)
            self._reporter.session.report_loss(loss)

    def _check_synchronous(self, got: str) -> None:
        """Raise `ValueError` if the call requires synchronous steps."""
        if self._member.is_asynchronous:
            raise invalid(
                "workers whose steps are not synchronous must not do anything together",
                got,
                "`context.elastic`",
                "Give synchronous=True, or evaluate by yourself in the first worker.",
            )

    def _end_body(self) -> None:
        """End a step whose body is complete: the loop asks for the next one."""
        self._member.place = "top"
        self._reporter.session.end_step()
        self._end_with_save()
        compares, store = self._stepper.compares, self._member.store
        if compares or self._stepper.exit_code or self._stepper.leaves:
            self._compare()
        if self._stepper.exit_code:
            self._end(self._stepper.exit_code)
        if self._stepper.leaves:
            self._reform()
        if compares and store is not None and self.is_first and store.is_due():
            self._save(store)

    def _compare(self) -> None:
        """Check that all workers have the same state, before a checkpoint or a leave; not if steps are asynchronous."""
        if not self._member.is_asynchronous:
            try:
                self._member.compare("a checkpoint")
            except GroupFault:
                self._reform(after_fault=True)

    def _end(self, exit_code: int) -> None:
        """End as Punctual asked; but a training without a checkpoint does not leave."""
        self._stepper.exit_code = 0
        with self._member.agent.excused():  # the script's hooks may have a lot to save
            self._save(self._member.store)
            if exit_code != EXIT_PREEMPTED or self._all_kept():
                self._reporter.end(exit_code)

    def _all_kept(self) -> bool:
        """Whether the checkpoint is written, agreed among all workers; if not, they do not leave."""
        try:
            is_kept = all(self._member.gather("a request to leave", self._is_kept()))
        except GroupFault:  # it is asked again with the next step
            self._reform(after_fault=True)
            return False
        if not is_kept:
            self._reporter.refuse_to_leave()
        return is_kept

    def _is_kept(self) -> bool:
        """Whether the checkpoint is written, if this worker does it; without a folder the script's hooks do."""
        store = self._member.store
        return not self.is_first or (stop.has_hooks() if store is None else store.flush())

    def checkpoint(self) -> None:
        """Save the training's state, if it has a folder; after a step, at the end of the loop's body.

        Only the first worker saves; all compare a step later.
        """
        self._stepper.wants_comparison = True
        place = self._member.place
        if place == "bottom":  # the script may have yet to do what belongs to the step
            self._saves_after_body = True
            return
        self._save(self._member.store, ("step", 0) if place == "top" else self._arrive(f"checkpoint {place}"))

    def _end_with_save(self) -> None:
        """Save at the end of a loop's body if the script has asked for it there."""
        if self._saves_after_body:
            self._saves_after_body = False
            self._save(self._member.store)

    def _arrive(self, what: str) -> Point:
        """Come to an evaluation, or a checkpoint, of the script; return which one it is since the last step."""
        self._check_between_steps()
        point = what, self._n_asked.get(what, 0)
        self._member.arrive(*point)
        self._n_asked[what] = point[1] + 1
        return point

    def _save(self, store: CheckpointStore | None, point: Point | None = None) -> None:
        if store is None or not self.is_first:
            return
        served = self._stepper.served
        with self.phase("checkpoint"):
            if served is None:
                store.save(self._member.state(point))
            elif served.fetch_state():
                store.save(self._member.state(point))
                served.drop_state()
            else:
                self._reform(after_fault=True)

    # Evaluations.

    def evaluate(
        self,
        function: Callable[[nn.Module, Any], Any],
        dataset: Any,
        *,
        batch_size: int,
        collate: Collate | None = None,
        name: str = "evaluate",
    ) -> Any:
        """Sum up `function` over a dataset, each worker taking a part; the same sum for any number of workers.

        A worker that starts from a point before an evaluation which has been made gets its result.

        Parameters
        ----------
        function
            Given the model and a batch, returns a number or a tensor to be summed, or a tuple of them; counts and sums,
            not means. The model is in evaluation mode, and no gradients are kept.
        batch_size
            Samples of a batch, at most.
        name
            The phase that Punctual is told.

        Returns
        -------
        Tensor | tuple[Tensor, ...]
            The sums, on the CPU: float64, or int64 of whole numbers.
        """
        self._check_synchronous("`run.evaluate`")
        place = self._member.place
        _, i_result = self._arrive(place)
        results = self._member.position.results
        if i_result >= len(results.get(place, ())):
            evaluation = self._evaluation(name, function, Fetch(dataset, collate), batch_size)
            with span.phase(name, units=self._n_units[name]) as progress:
                telling = EvaluationProgress(self._n_units[name], progress.advance, self._stamp)
                self._evaluate(evaluation, telling, place, i_result)
                telling.end()
        return result_of(self._member.position.results[place][i_result])

    def rehearse(
        self,
        function: Callable[[nn.Module, Any], Any],
        dataset: Any,
        *,
        batch_size: int,
        collate: Collate | None = None,
        name: str = "evaluate",
    ) -> None:
        """Evaluate two batches in advance, so that the cost of an evaluation is known before the first step.

        Given the same as `evaluate`, and called before the first loop. A worker that comes later does not make them.
        """
        evaluation = self._evaluation(name, function, Fetch(dataset, collate), batch_size)
        if self._member.is_beginning:
            with span.phase(name, rehearsal=True) as progress:
                telling = EvaluationProgress(self._n_units[name], progress.advance, self._stamp)
                # Batches of an evaluation that a rehearsal makes: the first one may have to warm something up.
                evaluation.over(self._evaluated_ranks(), telling.of, 2)

    def _evaluation(
        self, name: str, function: Callable[[nn.Module, Any], Any], fetch: Fetch, batch_size: int
    ) -> Evaluation:
        n_samples, n_each = length_of(fetch.dataset, _EVALUATION), whole(batch_size, "batch_size", _EVALUATION, least=1)
        n_ranks = self._member.n_virtual_ranks
        evaluation = Evaluation(self.model, function, fetch, n_samples, n_each, self.device, n_ranks)
        self._n_units[name] = max(1, evaluation.n_batches())
        return evaluation

    def _evaluated_ranks(self) -> range:
        """Return the virtual ranks whose part of an evaluation is this worker's."""
        evaluators = self._member.evaluators
        return cut(self._member.n_virtual_ranks, len(evaluators))[evaluators.index(self.rank)]

    def _stamp(self) -> None:
        """Stamp the board: the agent sees that this worker is alive."""
        self._member.agent.stamp(self.step_number, waiting=False)

    def _evaluate(self, evaluation: Evaluation, telling: EvaluationProgress, place: str, i_result: int) -> None:
        """Evaluate until the result is known, with the others, or by them if this worker had lost its group."""
        member = self._member
        while i_result >= len(member.position.results.get(place, ())):
            sums = evaluation.over(self._evaluated_ranks(), telling.but_the_last)
            try:
                member.record(place, member.sum_up(sums, place, is_tuple=evaluation.is_tuple))
            except GroupFault:
                self._reform(after_fault=True, evaluates=True)
