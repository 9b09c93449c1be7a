"""XGBoost, LightGBM and scikit-learn."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from punctual.channel import GOAL_VARIABLE, Directives, ProgramState, SharedBlock

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(float)


def ended(page: SharedBlock) -> tuple[ProgramState, int, int]:
    return page.declaration().state, page.declaration().total_steps, page.progress().n_steps


def stop_at(page: SharedBlock, n: int) -> Callable[[int], None]:
    return lambda i: page.send(Directives(stop=True)) if i == n else None


# XGBoost.


def boosted(folder: Path | None, at_round: Callable[[int], None] = lambda n: None, **options: Any) -> Any:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    class At(xgboost.callback.TrainingCallback):  # type: ignore[name-defined]
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            at_round(epoch + 1)
            return False

    callback = XGBoostCallback(10, folder, loss=options.pop("loss", None))
    data = xgboost.DMatrix(X, Y)
    return xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, data, callback.n_rounds_left, evals=[(data, "train")],
        xgb_model=callback.resume_from, callbacks=[callback, At()], verbose_eval=False, **options,
    )  # fmt: skip


def test_xgboost_rounds_are_told(page: SharedBlock) -> None:
    boosted(None)
    assert ended(page) == (ProgramState.LANDED, 10, 10)
    assert not page.declaration().can_stop


def test_xgboost_goes_on_after_a_stop(page: SharedBlock, restart: Callable[[], None], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        boosted(tmp_path, stop_at(page, 4))
    assert (stopped.value.code, page.progress().n_steps) == (143, 4)
    restart()
    model = boosted(tmp_path)
    assert model.num_boosted_rounds() == 10
    assert ended(page) == (ProgramState.LANDED, 10, 10)


def test_xgboost_ends_at_a_loss_and_at_early_stopping(
    page: SharedBlock, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "0.7")
    boosted(None, loss=("train", "logloss"))
    assert ended(page) == (ProgramState.LANDED, 3, 3)
    restart()
    monkeypatch.delenv(GOAL_VARIABLE)
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost.callback.EarlyStopping, "after_iteration", lambda self, model, epoch, log: epoch == 4)
    boosted(None, early_stopping_rounds=1)
    assert ended(page) == (ProgramState.LANDED, 5, 5)


def test_a_model_of_xgboost_can_be_saved_with_its_callback(page: SharedBlock, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1, callbacks=[XGBoostCallback(3, tmp_path)]).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert list(again.predict(X)) == list(copy.deepcopy(model).predict(X)) == list(model.predict(X))


def test_folds_of_xgboost_are_refused(page: SharedBlock) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    with pytest.raises(ValueError, match="must be of one model"):
        xgboost.cv({"nthread": 1}, xgboost.DMatrix(X, Y), 2, callbacks=[XGBoostCallback(2)])


# LightGBM.


def light(folder: Path | None, at_round: Callable[[int], None] = lambda n: None, **options: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    callback = LightGBMCallback(folder, loss=options.pop("loss", None))
    data = lightgbm.Dataset(X, Y)

    def at(env: Any) -> None:
        at_round(env.iteration + 1)

    at.order, at.before_iteration = 1, False  # type: ignore[attr-defined]
    model = lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1}, data, callback.n_rounds_left(10),
        valid_sets=[lightgbm.Dataset(X, Y, reference=data)],
        init_model=callback.resume_from, callbacks=[callback, at, *options.pop("callbacks", [])], **options,
    )  # fmt: skip
    callback.finish()
    return model


def test_lightgbm_rounds_are_told(page: SharedBlock) -> None:
    light(None)
    assert ended(page) == (ProgramState.LANDED, 10, 10)
    assert not page.declaration().can_stop


def test_lightgbm_goes_on_after_a_stop(page: SharedBlock, restart: Callable[[], None], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        light(tmp_path, stop_at(page, 4))
    assert (stopped.value.code, page.progress().n_steps) == (143, 4)
    restart()
    model = light(tmp_path)
    assert model.current_iteration() == 10
    assert ended(page) == (ProgramState.LANDED, 10, 10)


def test_lightgbm_ends_at_a_loss_and_at_early_stopping(
    page: SharedBlock, restart: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "0.7")
    light(None, loss=("valid_0", "binary_logloss"))
    assert ended(page) == (ProgramState.LANDED, 3, 3)
    restart()
    monkeypatch.delenv(GOAL_VARIABLE)
    lightgbm = pytest.importorskip("lightgbm")
    light(None, callbacks=[lightgbm.early_stopping(1, min_delta=100.0, verbose=False)])
    assert page.declaration().state == ProgramState.LANDED
    assert page.progress().n_steps < 10


def test_folds_of_lightgbm_are_refused(page: SharedBlock) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    options = {"objective": "binary", "num_threads": 1, "verbose": -1}
    with pytest.raises(ValueError, match="must be of one model"):
        lightgbm.cv(options, lightgbm.Dataset(X, Y), 2, nfold=2, callbacks=[LightGBMCallback()])


# scikit-learn.


def partially(folder: Path | None, at_batch: Callable[[int], None] = lambda n: None, **options: Any) -> Any:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed (extra `adapters`)")
    from punctual.integrations.sklearn import partial_fit

    class Batches:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> Any:
            return X[i * 50 : (i + 1) * 50], Y[i * 50 : (i + 1) * 50]

    class Counted(linear.SGDClassifier):  # type: ignore[name-defined]
        def partial_fit(self, *arguments: Any, **more: Any) -> Any:
            at_batch(round(getattr(self, "t_", 1) - 1) // 50 + 1)
            return super().partial_fit(*arguments, **more)

    globals()["Counted"] = Counted  # pickle finds a class by its name
    Counted.__qualname__ = "Counted"
    return partial_fit(
        Counted(random_state=0), Batches(), epochs=3, checkpoint_dir=folder, classes=[0.0, 1.0], **options
    )  # fmt: skip


def test_batches_of_scikit_learn_are_told(page: SharedBlock) -> None:
    scores: list[float] = []
    partially(None, evaluate=lambda estimator: scores.append(estimator.score(X, Y)))
    assert ended(page) == (ProgramState.LANDED, 12, 12)
    assert (page.phases()[0].name, page.phases()[0].n_units_done, len(scores)) == ("evaluate", 3, 3)


@pytest.mark.parametrize("kind", [float, np.float32])
def test_a_score_of_scikit_learn_is_a_loss_whatever_number_it_is(
    kind: Callable[[float], Any], page: SharedBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "0.5")
    partially(None, evaluate=lambda _: kind(0.25))
    assert [loss for _, loss in page.losses()[1]] == [0.25] * 3


@pytest.mark.parametrize("n", [1, 4, 6])
def test_scikit_learn_goes_on_with_the_next_batch(
    n: int, page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    uninterrupted = partially(None)
    restart()
    with pytest.raises(SystemExit) as stopped:
        partially(tmp_path, stop_at(page, n))
    assert (stopped.value.code, page.progress().n_steps) == (143, n)
    restart()
    resumed = partially(tmp_path)
    assert ended(page) == (ProgramState.LANDED, 12, 12)
    assert np.array_equal(resumed.coef_, uninterrupted.coef_)


def test_an_estimator_that_cannot_learn_in_batches_is_refused() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `adapters`)")
    from punctual.integrations.sklearn import partial_fit

    with pytest.raises(ValueError, match="one that learns in batches"):
        partial_fit(object(), [(X, Y)])
