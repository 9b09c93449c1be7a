"""Several trainings in one script: continued ones, folds, searches, a pre-training and what follows it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import punctual
from punctual.channel import Fault, ProgramState, SharedBlock
from punctual.tracking.session import current

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(float)


def ended(page: SharedBlock) -> tuple[ProgramState, int, int, Fault]:
    declared = page.declaration()
    return declared.state, declared.total_steps, page.progress().n_steps, declared.fault


def landed_with(n_steps: int) -> tuple[ProgramState, int, int, Fault]:
    return ProgramState.LANDED, n_steps, n_steps, Fault.NONE


@pytest.mark.parametrize("is_shared", [True, False])
def test_continued_trainings_of_xgboost(page: SharedBlock, is_shared: bool) -> None:
    """The total given once, or at each."""
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    if is_shared:
        punctual.total_steps(15)
    data, model = xgboost.DMatrix(X, Y), None
    for n_rounds in (5, 10, 15):
        callback = XGBoostCallback(n_rounds, total_steps=None if is_shared else 15)
        model = xgboost.train({"nthread": 1}, data, 5, xgb_model=model, callbacks=[callback])
        assert page.declaration().total_steps == 15
        assert page.declaration().state == (ProgramState.LANDED if n_rounds == 15 else ProgramState.TRAINING)
    assert ended(page) == landed_with(15)


def test_a_search_over_models_of_xgboost(page: SharedBlock) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    selection = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    from punctual.integrations.xgboost import XGBoostCallback

    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1, callbacks=[XGBoostCallback(3, total_steps=15)])
    selection.GridSearchCV(model, {"max_depth": [2, 3]}, cv=2).fit(X, Y)
    assert ended(page) == landed_with(15)  # two models, two folds, and the best once more


def lightly(callback: Any, n_rounds: int = 5, **options: Any) -> Any:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    settings = {"objective": "binary", "num_threads": 1, "verbose": -1}
    data = lightgbm.Dataset(X, Y, free_raw_data=False)
    more = [lightgbm.early_stopping(1, min_delta=100.0, verbose=False)] if options.pop("stops_early", False) else []
    valid = [lightgbm.Dataset(X, Y, reference=data)]
    return lightgbm.train(settings, data, n_rounds, valid_sets=valid, callbacks=[callback, *more], **options)


@pytest.mark.parametrize("is_reused", [True, False])
def test_continued_trainings_of_lightgbm(page: SharedBlock, is_reused: bool) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    punctual.total_steps(15)
    callback, model = LightGBMCallback(), None
    for _ in range(3):
        callback = callback if is_reused else LightGBMCallback()
        model = lightly(callback, init_model=model)
    assert model.current_iteration() == 15
    assert ended(page) == landed_with(15)


def test_a_training_of_lightgbm_that_stops_early_ends_with_the_next_one_or_the_program(page: SharedBlock) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    callback = LightGBMCallback(total_steps=45)
    lightly(callback, 20, stops_early=True)
    n_first = page.progress().n_steps
    assert n_first < 20
    lightly(callback, 5)
    assert page.declaration().total_steps == 45 - (20 - n_first)
    lightly(callback, 20, stops_early=True)
    assert page.declaration().state == ProgramState.TRAINING
    callback.finish()  # as the end of the program does
    assert ended(page) == landed_with(page.progress().n_steps)


def test_a_search_over_models_of_lightgbm(page: SharedBlock) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    selection = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    from punctual.integrations.lightgbm import LightGBMCallback

    model = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)
    search = selection.GridSearchCV(model, {"max_depth": [2, 3]}, cv=2)
    search.fit(X, Y, callbacks=[LightGBMCallback(total_steps=15)])
    assert ended(page) == landed_with(15)


@pytest.mark.parametrize("has_length", [True, False])
def test_calls_of_fit_of_keras(page: SharedBlock, has_length: bool) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="Keras is not installed (extra `adapters`)", exc_type=ImportError)
    from punctual.integrations.keras import KerasCallback

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    x = np.ones((8, 1), "float32")

    def batches() -> Any:
        yield from ((x[i : i + 2], x[i : i + 2]) for i in range(0, 8, 2))

    for _ in range(2):
        data = (x, x) if has_length else (batches(),)
        options = {"batch_size": 2, "epochs": 2} if has_length else {"epochs": 1}
        model.fit(*data, **options, callbacks=[KerasCallback(total_steps=16 if has_length else 8)], verbose=0)
    assert ended(page) == landed_with(16 if has_length else 8)


@pytest.mark.parametrize("where", ["on_train_batch_begin", "on_test_batch_begin"])
@pytest.mark.parametrize("is_reused", [True, False])
def test_a_call_of_fit_that_an_exception_ends_leaves_the_next_one_its_steps(
    page: SharedBlock, where: str, is_reused: bool
) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="Keras is not installed (extra `adapters`)", exc_type=ImportError)
    from punctual.integrations.keras import KerasCallback

    def fail(*_: Any, **__: Any) -> None:
        if page.progress().n_steps >= 3:
            raise LookupError

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    x, callback, failing = np.ones((8, 1), "float32"), KerasCallback(), keras.callbacks.Callback()
    setattr(failing, where, fail)
    options: dict[str, Any] = {"batch_size": 2, "epochs": 2, "verbose": 0}
    with pytest.raises(LookupError):
        model.fit(x, x, validation_data=(x, x), callbacks=[callback, failing], **options)
    n_before = page.progress().n_steps
    model.fit(x, x, callbacks=[callback if is_reused else KerasCallback()], **options)
    assert ended(page) == landed_with(n_before + 8)


def test_trainings_of_the_trainer(page: SharedBlock, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed (extra `adapters`)")
    pytest.importorskip("accelerate", reason="Accelerate is not installed (extra `adapters`)")
    from tests.integrations.test_transformers import Model, examples

    from punctual.integrations.transformers import TransformersCallback

    for _ in range(2):
        options = transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=3, per_device_train_batch_size=2, save_strategy="no", report_to="none",
            disable_tqdm=True, use_cpu=True, logging_strategy="no",
        )  # fmt: skip
        callback = TransformersCallback(total_steps=24)
        transformers.Trainer(Model(), options, train_dataset=examples(8), callbacks=[callback]).train()
    assert ended(page) == landed_with(24)


def test_a_pre_training_and_what_follows_it(page: SharedBlock) -> None:
    """A loop of the script, and a library's."""
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    punctual.total_steps(11)
    for _ in punctual.track("abc", epochs=2):
        pass
    xgboost.train({"nthread": 1}, xgboost.DMatrix(X, Y), 5, callbacks=[XGBoostCallback(5)])
    assert ended(page) == landed_with(11)


def test_a_training_that_ends_early_by_itself_leaves_the_others_their_steps(
    page: SharedBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra `adapters`)")
    from punctual.integrations.xgboost import XGBoostCallback

    monkeypatch.setattr(xgboost.callback.EarlyStopping, "after_iteration", lambda self, model, epoch, log: epoch == 1)
    punctual.total_steps(20)
    for _ in range(2):
        data = xgboost.DMatrix(X, Y)
        xgboost.train(
            {"nthread": 1}, data, 10, evals=[(data, "train")], early_stopping_rounds=1, verbose_eval=False,
            callbacks=[XGBoostCallback(10)],
        )  # fmt: skip
    assert ended(page) == landed_with(4)


def test_without_a_total_they_are_no_fault(page: SharedBlock, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    for _ in range(2):
        lightly(LightGBMCallback())
    current().program_ended()
    assert ended(page) == landed_with(10)
    assert "punctual.total_steps(10)" in capfd.readouterr().err


@pytest.mark.parametrize("declare", [lambda: None, lambda: punctual.total_steps(5)])
def test_without_punctual_nothing_changes(declare: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra `adapters`)")
    from punctual.integrations.lightgbm import LightGBMCallback

    declare()
    assert lightly(LightGBMCallback()).current_iteration() == 5
