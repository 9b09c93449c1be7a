"""LightGBM: ``lightgbm.train(..., callbacks=[LightGBMCallback()])``."""

import atexit
import os

from lightgbm import Booster
from lightgbm.callback import CallbackEnv, EarlyStopException

from punctual.integrations._loop import (
    GOAL_REACHED,
    FrameworkLoop,
    check_one_model,
    folder_of_checkpoints,
    replace_file,
)


class LightGBMCallback:
    """Reports the boosting rounds; asked to stop, it saves the model first.

    A round is a step, with the evaluation of its validation sets. LightGBM does not say when a training has ended: one that
    ends before its last round is over for Punctual with the next one, or with the program, unless `finish` says so before.

    Parameters
    ----------
    checkpoint_dir
        Folder of the model ``stopped.txt``; None: ``punctual run --checkpoint-dir``, and without that the training
        cannot be asked to stop.
    total_steps
        Rounds of all trainings in this script together (continued ones, folds, those of a search), the same at each of them;
        None: as `punctual.total_steps` declares, or this training is the only one.
    loss
        Evaluation for ``punctual run --until``, as ("valid_0", "binary_logloss"); None: none.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        total_steps: int | None = None,
        loss: tuple[str, str] | None = None,
    ) -> None:
        self._total_steps = total_steps
        folder = folder_of_checkpoints(checkpoint_dir)
        self._path = None if folder is None else folder / "stopped.txt"
        self._loss = loss
        self._loop: FrameworkLoop | None = None
        self._model: Booster | None = None
        # LightGBM asks: after a round, and before its own early stopping (30), which ends the training by an exception.
        self.before_iteration, self.order = False, 25

    @property
    def resume_from(self) -> str | None:
        """Return the model of a stopped training, for ``lightgbm.train(init_model=)``; None: there is none."""
        return str(self._path) if self._path is not None and self._path.exists() else None

    def n_rounds_left(self, n_rounds: int) -> int:
        """Number of rounds left of `n_rounds`, for ``lightgbm.train(num_boost_round=)``, which counts one call's."""
        path = self.resume_from
        return n_rounds - (0 if path is None else Booster(model_file=path).current_iteration())

    def __call__(self, env: CallbackEnv) -> None:
        if env.model is not self._model:  # another training
            self.finish()
        self._model = env.model
        loop = self._loop = self._loop or self._begun(env)  # the first call comes after the first round
        loop.step_began()
        for data, metric, value, *_ in env.evaluation_result_list or ():
            if (data, metric) == self._loss:
                loop.report_loss(value)
        loop.step_ended()
        asked = loop.end_asked()
        if env.iteration + 1 == env.end_iteration:
            self.finish()
            return
        if asked > GOAL_REACHED:
            loop.end(asked)
        if asked == GOAL_REACHED:
            self.finish()
            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])

    def finish(self) -> None:
        """Note that the training has ended, before its last round or with it."""
        loop, self._loop = self._loop, None
        if loop is not None:
            atexit.unregister(self.finish)
            loop.finish()

    def _begun(self, env: CallbackEnv) -> FrameworkLoop:
        model, path = env.model, self._path
        check_one_model(model, Booster, "LightGBMCallback", "lightgbm")
        atexit.register(self.finish)
        return FrameworkLoop(
            env.end_iteration,
            total_steps=self._total_steps,
            start_step=env.begin_iteration,
            save=None if path is None else lambda: replace_file(path, model.save_model),
        )
