"""Hugging Face Transformers: ``Trainer(callbacks=[TransformersCallback()])``."""

import os
from collections.abc import Mapping
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
        self._exit_code = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._loop = FrameworkLoop(
            state.max_steps,
            total_steps=self._total_steps,
            start_step=state.global_step,
            phases={
                "evaluate": Phase(_n_occurrences(args.eval_strategy, state, state.eval_steps) + args.eval_on_start),
                "checkpoint": Phase(_n_occurrences(args.save_strategy, state, state.save_steps)),
            },
            save=_has_been_saved,
        )
        if args.eval_on_start:
            self._phase.begin("evaluate")

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._loop is not None
        self._loop.step_began()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self._loop is not None
        self._loop.step_ended()
        # What comes after an epoch would be lost with a checkpoint of its last step: it is asked again there.
        if not (state.epoch or 0.0).is_integer():
            self._end_if_asked(control)
        self._begin_what_follows(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
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
            self._phase.begin("evaluate")
        self._phase.advance(of=_length(eval_dataloader))

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._phase.end()
        if control.should_save:
            self._phase.begin("checkpoint")

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
        self._phase.end()
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

    def _begin_what_follows(self, control: TrainerControl) -> None:
        if control.should_evaluate:
            self._phase.begin("evaluate")
        elif control.should_save:
            self._phase.begin("checkpoint")


def last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """Newest checkpoint in the Trainer's folder, if any, for ``trainer.train(resume_from_checkpoint=)``."""
    return get_last_checkpoint(str(output_dir)) if os.path.isdir(output_dir) else None  # noqa: PTH112


def _has_been_saved() -> None:
    """Do nothing at the end of the process: the Trainer has just saved its checkpoint."""


def _n_occurrences(strategy: str, state: TrainerState, every_n_steps: float) -> int:
    """Number of times that something is done over the whole training by `strategy`."""
    if strategy == "steps" and every_n_steps > 0:
        return -(-state.max_steps // int(every_n_steps))
    return state.num_train_epochs if strategy == "epoch" else 0


def _length(loader: Any) -> int | None:
    try:
        return len(loader) or None
    except TypeError:
        return None
