"""Hugging Face Accelerate: ``for batch in AcceleratedLoop(accelerator, loader, epochs=10):``, and elastic training."""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator

from punctual.integrations._loop import FrameworkLoop, folder_of_checkpoints, is_used, use
from punctual.tracking.complaint import invalid
from punctual.tracking.declaration import Phases, by_name
from punctual.tracking.span import phase

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context
    from punctual.elastic_training.run import ElasticRun


class AcceleratedLoop:
    """Batches of a prepared loader, epoch after epoch; it begins where the newest checkpoint in its folder ends.

    With a loader that shuffles, it goes on with the same epoch only if the order follows from a seed:
    ``DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)``. Otherwise the rest of that epoch is drawn anew.

    Make it after ``accelerator.prepare``, in all processes. It has the accelerator save its state when Punctual asks the
    training to stop, and at `save`.

    Parameters
    ----------
    accelerator
        Accelerator that has prepared the model, the optimizer and `loader`.
    loader
        A prepared loader that has a length.
    epochs
        Passes over it in the whole training.
    checkpoint_dir
        Folder of checkpoints; None: ``punctual run --checkpoint-dir``, and without that there are none.
    phases
        Names of phases that run once after each epoch, or names with what is known of each, as for `punctual.track`.

    Attributes
    ----------
    epoch, step
        Numbers of the epoch and of the batch under way, from 0 over the whole training.
    epoch_ended
        Whether that batch is the last of its epoch.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        loader: Any,
        *,
        epochs: int,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        phases: Phases = (),
    ) -> None:
        self.epoch = self.step = 0
        self.epoch_ended = self._is_done = False
        self._accelerator = accelerator
        self._loader = loader
        self._epochs = epochs
        self._n_steps = 0
        self._folder = folder_of_checkpoints(checkpoint_dir)
        accelerator.register_for_checkpointing(self)
        newest = max(self._checkpoints(), default=None)
        if newest is not None and not is_used(newest):
            use(newest)
            accelerator.load_state(str(newest))
        self._loop = FrameworkLoop(
            epochs * len(loader),
            start_step=self._n_steps,
            n_steps_per_epoch=len(loader),
            phases=by_name(phases),
            save=self.save if self._folder else None,
        )

    def __iter__(self) -> Iterator[Any]:
        first_epoch, n_skipped = divmod(self._n_steps, max(1, len(self._loader)))
        for epoch in range(first_epoch, self._epochs):
            self.epoch = epoch
            for batch in self._batches(n_skipped):
                try:
                    yield batch
                except GeneratorExit:  # the body has left the loop
                    if self._is_done:
                        self._loop.step_ended()
                        self._loop.finish()
                    raise
                self._n_steps = self.step + 1
                self._loop.step_ended()
                # Amid an accumulation a checkpoint would lose the gradients of its batches so far.
                if self._is_done or (self._accelerator.sync_gradients and self._loop.ends_here()):
                    return self._loop.finish()
            n_skipped = 0
        return self._loop.finish()

    def _batches(self, n_skipped: int) -> Iterator[Any]:
        """Yield the rest of an epoch."""
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self.epoch)
        loader = self._accelerator.skip_first_batches(self._loader, n_skipped) if n_skipped else self._loader
        for i, batch in enumerate(loader, n_skipped):
            self.step = self.epoch * len(self._loader) + i
            self.epoch_ended = i == len(self._loader) - 1
            self._loop.step_began()
            yield batch

    def report_loss(self, loss: Any) -> None:
        """Report the loss of the present step, a number or a tensor of one, for ``punctual run --until``."""
        self._loop.report_loss(loss)

    def save(self) -> None:
        """Make a checkpoint after the present batch, in all processes; older ones are removed when it is complete.

        Raises
        ------
        ValueError
            No folder is given.
        """
        if self._folder is None:
            raise ValueError("AcceleratedLoop needs checkpoint_dir=, or `punctual run --checkpoint-dir`, to save")
        with phase("checkpoint"):
            self._n_steps = self.step + 1
            writing = self._folder / "writing"
            with self._own_names():
                self._accelerator.save_state(str(writing))
            self._accelerator.wait_for_everyone()
            if self._accelerator.is_main_process:
                self._put_in_place(writing, self._folder / f"step-{self._n_steps:012}")
            self._accelerator.wait_for_everyone()

    @contextmanager
    def _own_names(self) -> Iterator[None]:
        """Make the accelerator save to the folder that is given, even if it is set to name checkpoints itself."""
        settings = self._accelerator.project_configuration
        before, settings.automatic_checkpoint_naming = settings.automatic_checkpoint_naming, False
        try:
            yield
        finally:
            settings.automatic_checkpoint_naming = before

    def finish(self) -> None:
        """End the training after the present batch."""
        self._is_done = True

    def _put_in_place(self, written: Path, checkpoint: Path) -> None:
        if checkpoint.exists():  # of the same step
            shutil.rmtree(checkpoint)
        use(written.rename(checkpoint))
        for other in self._checkpoints():
            if other != checkpoint:
                shutil.rmtree(other, ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        return [] if self._folder is None else [*self._folder.glob("step-*")]

    # What the accelerator saves of it.

    def state_dict(self) -> dict[str, int]:
        return {"n_steps": self._n_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._n_steps = state["n_steps"]


def elastic(
    context: "Context",
    accelerator: Accelerator,
    model: Any,
    optimizer: Any,
    *,
    clip_norm: float | None = None,
    **options: Any,
) -> "AbstractContextManager[ElasticRun]":
    """Return an elastic training of ``accelerator.prepare``'s results, with its `backward` and `optimizer.step`.

    Parameters
    ----------
    context
        Context that `punctual.elastic` passes to the training function.
    accelerator
        Accelerator of one process: to it, each worker is a training of its own.
    clip_norm
        The gradients' norm is cut to this at each step.
    options
        Options of `context.elastic`.

    Raises
    ------
    ValueError
        The accelerator has several processes, scales gradients or accumulates them, or an option cannot be used; in the
        block: it was asked for what would concern this worker alone.
    """
    from punctual.integrations._elastic import check_alone, elastic_run

    check_alone("Accelerate", accelerator.num_processes, accelerator.scaler)
    if accelerator.gradient_accumulation_steps != 1:
        raise invalid(
            "an elastic training must not accumulate gradients over batches",
            f"gradient_accumulation_steps={accelerator.gradient_accumulation_steps}",
            "Accelerate",
            "Give run.batches a larger global_batch_size, and micro_batch_size= where memory is short.",
        )
    return elastic_run(
        context,
        accelerator,
        model,
        optimizer,
        clip_norm,
        options,
        backward_of=accelerator,
        alone=("print", "log", "save", "save_model", "save_state"),
        clips=("clip_grad_norm_", "clip_grad_value_"),
        gathers=("gather", "gather_for_metrics", "reduce"),
    )
