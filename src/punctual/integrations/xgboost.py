"""XGBoost: ``xgboost.train(..., callbacks=[XGBoostCallback(n_rounds)])``."""

import os
from collections.abc import Mapping
from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback

from punctual.integrations._loop import FrameworkLoop, check_one_model, folder_of_checkpoints, replace_file


class XGBoostCallback(TrainingCallback):
    """Reports the boosting rounds; asked to stop, it saves the model first.

    A round is a step, with the evaluation of its evaluation sets.

    Parameters
    ----------
    n_rounds
        Rounds of the model, those that it has already included.
    checkpoint_dir
        Folder of the model ``stopped.ubj``; None: ``punctual run --checkpoint-dir``, and without that the training
        cannot be asked to stop.
    total_steps
        Rounds of all trainings in this script together (continued ones, folds, those of a search), the same at each of them;
        None: as `punctual.total_steps` declares, or this training is the only one.
    loss
        Evaluation for ``punctual run --until``, as ("validation", "logloss"); None: none.
    """

    def __init__(
        self,
        n_rounds: int,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        total_steps: int | None = None,
        loss: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._n_rounds = n_rounds
        self._total_steps = total_steps
        folder = folder_of_checkpoints(checkpoint_dir)
        self._path = None if folder is None else folder / "stopped.ubj"
        self._loss = loss
        self._loop: FrameworkLoop | None = None

    @property
    def resume_from(self) -> str | None:
        """Return the model of a stopped training, for ``xgboost.train(xgb_model=)``; None: there is none."""
        return str(self._path) if self._path is not None and self._path.exists() else None

    @property
    def n_rounds_left(self) -> int:
        """Number of rounds left, for ``xgboost.train(num_boost_round=)``, which counts those of one call."""
        path = self.resume_from
        return self._n_rounds - (0 if path is None else Booster(model_file=path).num_boosted_rounds())

    def before_training(self, model: Booster) -> Booster:
        check_one_model(model, Booster, "XGBoostCallback", "xgboost")
        path = self._path
        self._loop = FrameworkLoop(
            self._n_rounds,
            total_steps=self._total_steps,
            start_step=model.num_boosted_rounds(),
            save=None if path is None else lambda: replace_file(path, model.save_model),
            before=self._loop,
        )
        return model

    def before_iteration(self, model: Booster, epoch: int, evals_log: Any) -> bool:
        assert self._loop is not None
        self._loop.step_began()
        return False

    def after_iteration(self, model: Booster, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """Count the round; return True to end the training."""
        assert self._loop is not None
        if self._loss is not None:
            data, metric = self._loss
            self._loop.report_loss(evals_log[data][metric][-1])
        self._loop.step_ended()
        return self._loop.ends_here()

    def after_training(self, model: Booster) -> Booster:
        loop, self._loop = self._loop, None
        assert loop is not None
        loop.finish()
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy: a model keeps its callbacks, and can be saved with them."""
        return {**self.__dict__, "_loop": None}
