"""Hugging Face Transformers: ``Trainer(callbacks=[TransformersCallback()])``."""

import os
from collections.abc import Mapping
from math import ceil
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from punctual.integrations._loop import GOAL_REACHED, FrameworkLoop, OpenPhase
from punctual.tracking.declaration import Phase


class TransformersCallback(TrainerCallback):
    """Reports the steps of the optimizer, the evaluations and the checkpoints of `Trainer.train`.

    Asked to stop, it has the Trainer save a checkpoint in its own way, and then ends the process.

    Parameters
    ----------
    loss
        Logged number for ``punctual run --until``: "loss" of the training, or "eval_loss".
    total_steps
        Steps of all trainings in this script together, the same at each of them; None: as `punctual.total_steps` declares,
        or this training is the only one.
    """

    def __init__(self, loss: str = "loss", *, total_steps: int | None = None) -> None:
        self._loss = loss
        self._total_steps = total_steps
        self._loop: FrameworkLoop | None = None
        self._phase = OpenPhase()
        #: Batches of the present evaluation that are done, those of its earlier sets, and all of the previous evaluation.
        self._n_batches = self._n_before = self._n_each = 0
        self._exit_code = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._loop = FrameworkLoop(
            state.max_steps,
            total_steps=self._total_steps,
            start_step=state.global_step,
            phases={
                "evaluate": _declared(args.eval_strategy, state, state.eval_steps, args.eval_delay, args.eval_on_start),
                "checkpoint": _declared(args.save_strategy, state, state.save_steps),
            },
            save=_has_been_saved,
            before=self._loop,
        )
        if args.eval_on_start:
            self._begin_evaluation()

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._end_evaluation()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._loop is not None
        self._end_evaluation()
        self._loop.step_began()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._loop is not None
        self._loop.step_ended()
        # What comes after an epoch would be lost with a checkpoint of its last step: it is asked again there.
        if not (state.epoch or 0.0).is_integer():
            self._end_if_asked(control)
        self._begin_what_follows(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._end_evaluation()
        self._end_if_asked(control)
        self._begin_what_follows(control)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **_: Any,
    ) -> None:
        if not self._phase.is_open():  # an evaluation that the script itself has begun
            self._begin_evaluation()
        n_of_set = _length(eval_dataloader)
        self._n_batches += 1
        self._phase.advance(of=None if n_of_set is None else max(self._n_before + n_of_set, self._n_each))

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._n_before = self._n_batches
        if self._loop is None:
            self._phase.end()
        # What follows is not said before it comes: a checkpoint, or another set with its first batch.
        elif control.should_save or args.save_strategy == "best":
            self._phase.begin("checkpoint", inside=True)

    def on_predict(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._phase.end()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._phase.end()
        if self._exit_code and self._loop is not None:
            self._loop.end(self._exit_code)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        loss = (logs or {}).get(self._loss)
        if self._loop is not None and loss is not None:
            self._loop.report_loss(loss)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._end_evaluation()
        if self._loop is not None:
            self._loop.finish()
            self._loop = None

    def _end_if_asked(self, control: TrainerControl) -> None:
        assert self._loop is not None
        asked = self._loop.end_asked()
        if asked == GOAL_REACHED:
            control.should_training_stop = True
        elif asked:
            control.should_save = True
            self._exit_code = asked

    def _begin_evaluation(self) -> None:
        self._n_each, self._n_batches, self._n_before = self._n_batches if self._loop else 0, 0, 0
        self._phase.begin("evaluate")

    def _end_evaluation(self) -> None:
        """End an evaluation, of all sets, that no checkpoint has followed."""
        self._phase.withdraw_inner()
        self._phase.end()

    def _begin_what_follows(self, control: TrainerControl) -> None:
        if control.should_evaluate:
            self._begin_evaluation()
        elif control.should_save:
            self._phase.begin("checkpoint")


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """Newest checkpoint in the Trainer's folder, if any, for ``trainer.train(resume_from_checkpoint=)``."""
    return get_last_checkpoint(str(output_dir)) if os.path.isdir(output_dir) else None  # noqa: PTH112


def _has_been_saved() -> None:
    """Do nothing at the end of the process: the Trainer has just saved its checkpoint."""


def _declared(strategy: str, state: TrainerState, n_steps: float, delay: float = 0, n_before: int = 0) -> Phase:
    """Declare what is done by `strategy`, not before `delay` steps or epochs, and `n_before` times before the first step."""
    n_early = max(0, ceil(delay) - 1)
    if strategy == "steps" and n_steps > 0:
        return Phase(n_before + -(-state.max_steps // int(n_steps)) - n_early // int(n_steps))
    if strategy != "epoch":
        return Phase(n_before)
    # Of a dataset without a length nobody knows the epochs: the number is larger than that of steps.
    is_known = state.num_train_epochs <= max(1, state.max_steps)
    return Phase(n_before + max(0, state.num_train_epochs - n_early) if is_known else None)


def _length(loader: Any) -> int | None:
    try:
        return len(loader) or None
    except TypeError:
        return None
