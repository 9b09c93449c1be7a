"""Keras 3: ``model.fit(..., callbacks=[KerasCallback()])``."""

import os
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from keras.callbacks import Callback

from punctual.integrations._loop import FrameworkLoop, OpenPhase, folder_of_checkpoints, is_used, replace_file, use


class KerasCallback(Callback):
    """Reports the batches and evaluations of `fit`; asked to stop, it saves weights and optimizer first.

    Parameters
    ----------
    checkpoint_dir
        Folder of checkpoints, of this training alone; None: ``punctual run --checkpoint-dir``, else the training cannot be
        asked to stop. Give ``initial_epoch=callback.initial_epoch`` to `fit` to go on from there. Keras begins with the first batch of an
        epoch: batches of an epoch that was left in its middle are seen, and counted, again.
    total_steps
        Batches of all calls of `fit` in this script together, the same at each of them, and for data without a length; None:
        as `punctual.total_steps` declares, or as Keras says of this one.
    loss
        Key of Keras's logs for ``punctual run --until``, as "val_loss", after each epoch; None: the running mean of the
        loss, after each batch.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        total_steps: int | None = None,
        loss: str | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder_of_checkpoints(checkpoint_dir)
        self._total_steps = total_steps
        self._loss = loss
        self._loop: FrameworkLoop | None = None
        self._phase = OpenPhase()
        self._epoch = self._first_epoch = 0

    @property
    def initial_epoch(self) -> int:
        """Epoch to continue with, for ``model.fit(initial_epoch=)``."""
        newest = self._newest()
        return 0 if newest is None else int(newest.name.split(".")[0].removeprefix("epoch-"))

    def on_train_begin(self, logs: Any = None) -> None:
        if self._loop is not None:  # an exception has ended the call of `fit` before
            self.on_train_end()
        newest, self._first_epoch = self._newest(), self.initial_epoch
        if newest is not None:
            use(newest)
            if self.model.optimizer is not None and not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)  # or its state would not be read
            self.model.load_weights(str(newest))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._loop = self._loop or self._begun(epoch)

    def _begun(self, epoch: int) -> FrameworkLoop:
        n_steps = self.params.get("steps") or 0
        return FrameworkLoop(
            self.params["epochs"] * n_steps if n_steps else inf,
            total_steps=self._total_steps,
            start_step=epoch * n_steps,
            n_steps_per_epoch=n_steps,
            save=self._save if self._folder else None,
        )

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._loop is not None:  # none for `train_on_batch` in a loop of the script
            self._loop.step_began()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._loop is None:
            return
        self._loop.step_ended(None if self._loss else (logs or {}).get("loss"))
        # What comes after an epoch would be lost with a checkpoint of its last batch: it is asked again there.
        if batch + 1 != self.params.get("steps"):
            self._end_if_asked(self._loop)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._epoch = epoch + 1
        if self._loop is not None:
            loss = (logs or {}).get(self._loss) if self._loss else None
            if loss is not None:
                self._loop.report_loss(loss)
            self._end_if_asked(self._loop)

    def on_test_begin(self, logs: Any = None) -> None:
        self._phase.begin("evaluate")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._phase.advance()

    def on_test_end(self, logs: Any = None) -> None:
        self._phase.end()

    def on_train_end(self, logs: Any = None) -> None:
        loop, self._loop = self._loop or self._begun(self._first_epoch), None  # none, if all epochs were done before
        loop.finish()

    def _end_if_asked(self, loop: FrameworkLoop) -> None:
        if loop.ends_here():
            self.model.stop_training = True

    def _save(self) -> None:
        assert self._folder is not None
        older = [*self._folder.glob("epoch-*.weights.h5")]
        kept = self._folder / f"epoch-{self._epoch:06}.weights.h5"
        replace_file(kept, lambda name: self.model.save_weights(name, overwrite=True))
        use(kept)
        for path in older:
            if path != kept:
                path.unlink()

    def _newest(self) -> Path | None:
        newest = None if self._folder is None else max(self._folder.glob("epoch-*.weights.h5"), default=None)
        return None if newest is None or is_used(newest) else newest
