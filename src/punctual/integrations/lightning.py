"""PyTorch Lightning: ``Trainer(callbacks=[LightningCallback()])``."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from math import ceil, inf, isfinite, isinf
from typing import Any

from punctual.integrations._loop import FrameworkLoop, OpenPhase, folder_of_checkpoints
from punctual.tracking.complaint import invalid
from punctual.tracking.declaration import Phase, Phases, by_name
from punctual.tracking.span import phase

#: Published by an attacker on 2026-04-30: to import them runs a program that steals credentials (GHSA-w37p-236h-pfx3).
MALICIOUS_VERSIONS = {"2.6.2", "2.6.3"}


def refuse_malicious() -> None:
    """Raise `ValueError` if a version is installed that must not be imported."""
    for package in ("lightning", "pytorch-lightning"):
        with suppress(PackageNotFoundError):
            if (installed := version(package)) in MALICIOUS_VERSIONS:
                raise invalid(
                    f"`{package}` must be neither 2.6.2 nor 2.6.3, which an attacker published to steal credentials "
                    "(GHSA-w37p-236h-pfx3)",
                    installed,
                    "this environment",
                    f"Replace it (pip install '{package}>=2.6.4'). If it was ever imported here, change all keys and tokens.",
                )


refuse_malicious()

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:  # the same library under its other name
    from pytorch_lightning import Callback, LightningModule, Trainer


class LightningCallback(Callback):
    """Reports the batches, evaluations and checkpoints of a `Trainer.fit`; asked to stop, it makes a checkpoint first.

    Parameters
    ----------
    checkpoint_dir
        Folder of that checkpoint, ``stopped.ckpt``; None: ``punctual run --checkpoint-dir``, or else the trainer's
        `default_root_dir`.
    total_steps
        Batches of all calls of `fit` in this script together, the same at each of them, and where the loader has no length;
        None: as `punctual.total_steps` declares, or as the trainer's limits say of this one.
    after
        Phases after `fit`, "test" or "predict", declared as `punctual.Phase(units=79, cost_steps=0.4)`: each is
        part of the plan, and the job lands when it is done.
    loss
        Name of a logged metric, looked at after each evaluation, for ``punctual run --until``; None: the loss of each
        batch that `training_step` returns.

    Raises
    ------
    ValueError
        The number of batches is unknown when the training begins.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        total_steps: int | None = None,
        after: Phases = (),
        loss: str | None = None,
    ) -> None:
        self._after = {name: replace(known, count=known.count or 1) for name, known in by_name(after).items()}
        self._folder = folder_of_checkpoints(checkpoint_dir)
        self._total_steps = total_steps
        self._loss = loss
        self._loop: FrameworkLoop | None = None
        #: Batches, and steps of optimizers, done when the training began.
        self._begun = 0, 0
        #: Batches that epochs so far lack to be as long as the present one: loaders may be made anew, and epochs cut short.
        self._n_shorter = 0
        self._phase = OpenPhase()

    @property
    def resume_from(self) -> str | None:
        """Return the checkpoint of a training that was asked to stop, for ``trainer.fit(ckpt_path=)``.

        None: there is none, or no folder was given.
        """
        path = None if self._folder is None else self._folder / "stopped.ckpt"
        return str(path) if path is not None and path.exists() else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and "save_checkpoint" not in vars(trainer):
            trainer.save_checkpoint = _as_phase(trainer.save_checkpoint)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        first_batch, n_batches = _n_batches_done(trainer), trainer.num_training_batches
        self._begun, self._n_shorter = (first_batch, trainer.global_step), 0
        n_optimizers = None if pl_module.automatic_optimization else max(1, len(trainer.optimizers))
        n_steps = first_batch + _n_batches_left(trainer, first_batch, n_optimizers)
        n_known = self._total_steps if isinf(n_steps) and self._total_steps is not None else n_steps
        evaluate = Phase(_n_evaluations(trainer, n_known), _n_units(trainer.num_val_batches))
        self._loop = FrameworkLoop(
            n_steps,
            total_steps=self._total_steps,
            start_step=first_batch,
            n_steps_per_epoch=int(n_batches) if isfinite(n_batches) else 0,
            phases={"evaluate": evaluate, **self._after},
            after=self._after,
            save=lambda: self._save(trainer),
            before=self._loop,
        )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert self._loop is not None
        if not batch_idx:  # other callbacks have seen the epoch's start
            self._expect_epoch(self._loop, trainer, pl_module)
        self._loop.step_began()

    def _expect_epoch(self, loop: FrameworkLoop, trainer: Trainer, pl_module: LightningModule) -> None:
        n_done = _n_batches_done(trainer)
        if n_done > self._begun[0] and isfinite(trainer.num_training_batches):
            self._n_shorter = trainer.current_epoch * int(trainer.num_training_batches) - n_done
        if pl_module.automatic_optimization:  # how many batches make a step may change with the epoch
            loop.expect(_n_batches_left(trainer, n_done + self._n_shorter))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert self._loop is not None
        if not pl_module.automatic_optimization:
            first_batch, first_step = self._begun
            n_done, n_steps = _n_batches_done(trainer), trainer.global_step - first_step
            self._loop.expect(_n_batches_left(trainer, n_done + self._n_shorter, n_steps / (n_done - first_batch)))
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._loop.step_ended(None if self._loss else loss)
        # What comes after an epoch would be lost with a checkpoint of its last batch: it is asked again there. And amid an
        # accumulation the gradients of its batches so far would.
        if not trainer.is_last_batch and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._end_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end_if_asked(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._loop is None:  # its checkpoint was the last one: Lightning has not begun to train
            n_done = trainer.fit_loop.epoch_loop.batch_progress.total.processed
            self._loop = FrameworkLoop(n_done, start_step=n_done)
        self._loop.finish()
        self._loop = None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        n_batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        self._phase.begin("evaluate", _n_units(n_batches), rehearsal=trainer.sanity_checking)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self._phase.advance()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase.end()
        loss = trainer.callback_metrics.get(self._loss) if self._loss else None
        if loss is not None and self._loop is not None and not trainer.sanity_checking:
            self._loop.report_loss(loss)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase.begin("test", _n_units(trainer.num_test_batches))

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase.end()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._phase.begin("predict", _n_units(trainer.num_predict_batches))

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end
    on_predict_end = on_test_end

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._phase.end(exception)

    def _end_if_asked(self, trainer: Trainer) -> None:
        assert self._loop is not None
        if self._loop.ends_here():
            trainer.should_stop = True

    def _save(self, trainer: Trainer) -> None:
        self._folder = self._folder or folder_of_checkpoints(trainer.default_root_dir)
        assert self._folder is not None
        trainer.save_checkpoint(self._folder / "stopped.ckpt")


def _as_phase(save: Callable[..., None]) -> Callable[..., None]:
    """Report the trainer's `save_checkpoint` as the phase "checkpoint": there is a hook before it, none after it."""

    @wraps(save)
    def saved(*arguments: Any, **options: Any) -> None:
        with phase("checkpoint"):
            save(*arguments, **options)

    return saved


def _n_batches_done(trainer: Trainer) -> int:
    """Number of batches of the whole training that are done, the one that has just ended included."""
    return int(trainer.fit_loop.epoch_loop.batch_progress.total.processed)


def _n_batches_left(trainer: Trainer, n_done: int, steps_per_batch: float | None = None) -> float:
    """Number of batches left to train, at the beginning of an epoch; infinite: they are not limited.

    Parameters
    ----------
    n_done
        Batches done, if all epochs had been as long as the present one.
    steps_per_batch
        Steps of optimizers, all of them counted, that a batch makes where the module steps itself; None: Lightning steps,
        every `accumulate_grad_batches` batches and at the end of each epoch.
    """
    n_epochs = inf if trainer.max_epochs in {None, -1} else trainer.max_epochs
    by_epochs = 0 if n_epochs == 0 else n_epochs * trainer.num_training_batches - n_done
    if trainer.max_steps == -1:
        return by_epochs
    n_steps, n_each = trainer.max_steps - trainer.global_step, trainer.accumulate_grad_batches
    if steps_per_batch is not None:
        return min(by_epochs, ceil(n_steps / steps_per_batch)) if steps_per_batch else by_epochs
    if not isfinite(trainer.num_training_batches):
        return min(by_epochs, n_steps * n_each)
    n_whole_epochs, n_more = divmod(n_steps, -(-trainer.num_training_batches // n_each))
    return min(by_epochs, n_whole_epochs * trainer.num_training_batches + n_more * n_each)


def _n_units(n_batches: Any) -> int | None:
    """Number of batches of one evaluation over all its loaders; None: unknown."""
    total = sum(n_batches)
    return int(total) if total and isfinite(total) else None


def _n_evaluations(trainer: Trainer, total_steps: float) -> int | None:
    """Number of evaluations of the whole training; None: one after each epoch, if it has epochs."""
    n_each = trainer.num_val_batches  # empty: the loader is made with the first evaluation
    if not trainer.enable_validation or (n_each and not sum(n_each)):
        return 0
    n_batches, n_between, n_epochs_between = (
        trainer.num_training_batches,
        trainer.val_check_batch,
        trainer.check_val_every_n_epoch,
    )
    if n_between is None or not isfinite(n_between):
        return None
    if n_epochs_between is None:
        return int(total_steps // n_between)
    if not isfinite(n_batches) or not isfinite(total_steps):
        return None
    return int(total_steps // n_batches) // n_epochs_between * int(n_batches // n_between)
