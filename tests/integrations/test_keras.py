import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from punctual.channel import GOAL_VARIABLE, Directives, ProgramState, SharedBlock

os.environ.setdefault("KERAS_BACKEND", "torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own


def fit(folder: Path | None, at_batch: Callable[[int], None] = lambda n: None, **options: Any) -> int:
    """Three epochs of four batches, with two of an evaluation; the number of batches seen, which `at_batch` is told at each."""
    # Not by each process that collects tests: to load it takes seconds.
    keras = pytest.importorskip("keras", reason="Keras is not installed (extra `adapters`)", exc_type=ImportError)
    from punctual.integrations.keras import KerasCallback

    n_batches = 0

    def begun(batch: int, logs: Any) -> None:
        nonlocal n_batches
        n_batches += 1
        at_batch(n_batches)

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    callback, at = KerasCallback(folder), keras.callbacks.LambdaCallback(on_train_batch_begin=begun)
    n_done_before = options.pop("n_done_before", 0)
    x = np.ones((8, 1), "float32")
    model.fit(
        x, x, batch_size=2, epochs=3, validation_freq=options.pop("validation_freq", 1), initial_epoch=callback.initial_epoch, validation_data=(x[:4], x[:4]),
        validation_batch_size=2, callbacks=[callback, at, *options.pop("callbacks", [])], verbose=0,
    )  # fmt: skip
    assert int(model.optimizer.iterations) == n_done_before + n_batches
    return n_batches


def test_batches_and_evaluations_are_told(page: SharedBlock, tmp_path: Path) -> None:
    could_stop: list[bool] = []
    fit(tmp_path, lambda _: could_stop.append(page.declaration().can_stop))
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        12,
        12,
    )
    assert (page.phases()[0].n_units_done, page.phases()[0].units_planned) == (6, 6)
    assert all(could_stop)
    assert not page.declaration().can_stop, "nobody makes a checkpoint any more"


def test_an_evaluation_after_every_other_epoch_is_not_waited_for(page: SharedBlock) -> None:
    fit(None, validation_freq=2)
    assert page.declaration().state == ProgramState.LANDED
    assert (page.phases()[0].n_units_done, page.phases()[0].units_planned) == (2, 2)


def test_without_a_folder_it_cannot_be_asked(page: SharedBlock) -> None:
    fit(None)
    assert not page.declaration().can_stop


@pytest.mark.parametrize(("n_before", "n_redone"), [(2, 2), (4, 0), (7, 3), (12, 0)])
def test_a_training_that_is_stopped_goes_on_with_its_epoch(
    n_before: int, n_redone: int, page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stopped:
        fit(tmp_path, lambda n: page.send(Directives(stop=True)) if n == n_before else None)
    assert (stopped.value.code, page.progress().n_steps) == (143, n_before)
    restart()
    assert fit(tmp_path, n_done_before=n_before) == 12 - n_before + n_redone
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 12)


def test_a_loss_that_is_reached_ends_the_training(page: SharedBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "1e9")
    assert fit(None) == 3
    assert page.declaration().state == ProgramState.LANDED


def test_early_stopping_is_a_success(page: SharedBlock) -> None:
    keras = pytest.importorskip("keras", reason="Keras is not installed (extra `adapters`)", exc_type=ImportError)
    fit(None, callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=1e9)])
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 8)


def test_without_punctual_nothing_changes(tmp_path: Path) -> None:
    assert fit(tmp_path) == 12
