from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import punctual
from punctual.channel import GOAL_VARIABLE, Directives, Fault, ProgramState, SharedBlock

if TYPE_CHECKING:
    from tests.integrations.lightning_parts import (
        N_BATCHES,
        N_EPOCHS,
        N_VALIDATION,
        ByHand,
        EarlyStopping,
        GradientAccumulationScheduler,
        LightningCallback,
        Model,
        Trainer,
        adapter,
        fit,
        loader,
        quiet_trainer,
    )

pytestmark = [
    pytest.mark.skipif(find_spec("lightning") is None, reason="Lightning is not installed (extra `adapters`)"),
    pytest.mark.filterwarnings("ignore"),  # Lightning's own, about small models and workers
]


@pytest.fixture(scope="module", autouse=True)
def lightning() -> None:
    """Load Lightning, which takes seconds, once one of these tests runs: each worker of xdist collects all tests."""
    parts = import_module("tests.integrations.lightning_parts")
    globals().update({name: getattr(parts, name) for name in parts.__all__})


def landed_with(page: SharedBlock, n_steps: int) -> bool:
    declared = page.declaration()
    return (declared.state, declared.fault, declared.total_steps, page.progress().n_steps) == (
        ProgramState.LANDED, Fault.NONE, n_steps, n_steps,
    )  # fmt: skip


def test_batches_evaluations_and_checkpoints_are_told(page: SharedBlock, tmp_path: Path) -> None:
    planned: list[dict[str, float]] = []

    def note(n: int) -> None:
        assert page.declaration().can_stop
        planned.append({phase.name: phase.units_planned for phase in page.phases()})

    model = Model(note)
    fit(tmp_path, model)
    declared = page.declaration()
    assert (declared.state, declared.fault, declared.total_steps) == (ProgramState.LANDED, Fault.NONE, 12)
    assert page.progress().n_steps == 12
    assert not declared.can_stop, "nobody makes a checkpoint any more"
    assert planned[0] == {"evaluate": N_EPOCHS * N_VALIDATION}
    evaluate, checkpoint = page.phases()
    assert (evaluate.n_units_done, evaluate.units_planned) == (6, 6)
    assert evaluate.n_units_measured == 6 + 2  # the sanity check is a rehearsal
    assert (checkpoint.name, checkpoint.n_units_done) == ("checkpoint", N_EPOCHS)


@pytest.mark.parametrize("n_before", [1, 3, 4, 6, 8, 11, 12])
def test_a_training_that_is_stopped_goes_on_where_it_was(
    n_before: int, page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    first = Model(lambda n: page.send(Directives(stop=True)) if n == n_before else None)
    with pytest.raises(SystemExit) as stopped:
        fit(tmp_path, first, enable_checkpointing=False)
    assert (stopped.value.code, page.progress().n_steps, first.n_batches) == (143, n_before, n_before)
    restart()
    second = Model()
    trainer = fit(tmp_path, second, enable_checkpointing=False)
    assert first.n_batches + second.n_batches == trainer.global_step == page.progress().n_steps == 12
    assert first.n_evaluations + second.n_evaluations == N_EPOCHS
    assert (page.declaration().state, page.declaration().fault) == (ProgramState.LANDED, Fault.NONE)


def test_a_training_that_makes_room_says_so(page: SharedBlock, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        fit(tmp_path, Model(lambda n: page.send(Directives(leave=True))))
    assert (left.value.code, page.declaration().state) == (79, ProgramState.LEFT)


def test_a_loss_that_is_reached_ends_the_training(
    page: SharedBlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "1.5")
    model = Model()
    fit(tmp_path, model)
    assert (page.declaration().state, page.declaration().total_steps, model.n_batches) == (ProgramState.LANDED, 3, 3)


def test_early_stopping_is_a_success(page: SharedBlock, tmp_path: Path) -> None:
    fit(tmp_path, Model(), EarlyStopping("val_loss", patience=1), max_epochs=50)
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 8)


def test_gradient_accumulation_and_a_limit_of_steps(page: SharedBlock, tmp_path: Path) -> None:
    fit(tmp_path, Model(), max_epochs=-1, max_steps=3, accumulate_grad_batches=2, val_check_interval=2)
    assert (page.declaration().state, page.declaration().total_steps, page.declaration().fault) == (
        ProgramState.LANDED,
        6,
        0,
    )
    assert page.phases()[0].n_units_done == 3 * N_VALIDATION


@pytest.mark.parametrize(("n_batches", "n_each", "n_steps", "n_expected"), [
    (10, 4, 6, 20), (10, 4, 7, 24), (10, 4, 1, 4), (3, 2, 4, 6), (4, 1, 9, 9), (5, 8, 3, 15),
])  # fmt: skip
def test_steps_are_made_at_the_end_of_an_epoch_too(
    n_batches: int, n_each: int, n_steps: int, n_expected: int, page: SharedBlock, tmp_path: Path
) -> None:
    declared: list[int] = []
    model = Model(lambda n: declared.append(page.declaration().total_steps))
    options: dict[str, Any] = {"max_epochs": -1, "max_steps": n_steps, "accumulate_grad_batches": n_each}
    trainer = quiet_trainer(tmp_path, LightningCallback(tmp_path), **options)
    trainer.fit(model, loader(n_batches))
    assert set(declared) == {n_expected}
    assert (trainer.global_step, model.n_batches) == (n_steps, n_expected)
    assert landed_with(page, n_expected)


def test_another_callback_may_change_the_accumulation_at_an_epochs_start(page: SharedBlock, tmp_path: Path) -> None:
    schedule = GradientAccumulationScheduler({0: 1, 1: 4})
    trainer = quiet_trainer(tmp_path, LightningCallback(tmp_path), schedule, max_epochs=-1, max_steps=14)
    trainer.fit(Model(), loader(8))  # 8 steps in the first epoch, then 2 in each
    assert landed_with(page, 32)
    assert page.declaration().fault == 0


@pytest.mark.parametrize(
    ("n_optimizers", "n_between", "n_steps", "n_expected"),
    [(1, 1, 7, 7), (2, 1, 20, 10), (2, 3, 20, 15), (3, 5, 21, 15)],
)
def test_batches_are_counted_where_the_module_steps_its_optimizers(
    n_optimizers: int, n_between: int, n_steps: int, n_expected: int, page: SharedBlock, tmp_path: Path
) -> None:
    model = ByHand(n_optimizers, n_between)
    trainer = quiet_trainer(tmp_path, LightningCallback(tmp_path), max_epochs=-1, max_steps=n_steps)
    trainer.fit(model, loader(N_BATCHES))
    assert model.n_batches == n_expected
    assert landed_with(page, n_expected)


@pytest.mark.parametrize("is_automatic", [True, False])
def test_epochs_may_differ_in_length(is_automatic: bool, page: SharedBlock, tmp_path: Path) -> None:
    class Growing(Model):
        n_made = 0

        def train_dataloader(self) -> DataLoader:
            self.n_made += 1
            return loader(2 * self.n_made)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            if not self.automatic_optimization:
                self.optimizers().step()
            return loss

    declared: list[int] = []
    model = Growing(lambda n: declared.append(page.declaration().total_steps))
    model.automatic_optimization = is_automatic
    options: dict[str, Any] = {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    quiet_trainer(tmp_path, LightningCallback(tmp_path), **options).fit(model)
    assert declared[-1] == 2 + 4 + 6
    assert landed_with(page, 12)


def test_several_calls_of_fit_are_one_count(page: SharedBlock, tmp_path: Path) -> None:
    for _ in range(2):
        trainer = quiet_trainer(tmp_path, LightningCallback(tmp_path, total_steps=16), max_epochs=2)
        trainer.fit(Model(), loader(N_BATCHES), loader(N_VALIDATION))
        assert page.declaration().total_steps == 16
    assert landed_with(page, 16)
    assert page.phases()[0].n_units_done == page.phases()[0].units_planned == 4 * N_VALIDATION


def test_a_test_and_a_prediction_after_fit_are_phases(page: SharedBlock, tmp_path: Path) -> None:
    model = Model()
    trainer = quiet_trainer(tmp_path, LightningCallback(tmp_path), max_epochs=1)
    trainer.fit(model, loader(N_BATCHES))
    trainer.test(model, loader(3), verbose=False)
    trainer.predict(model, loader(5))
    done = {phase.name: phase.n_units_done for phase in page.phases()}
    assert (done["test"], done["predict"]) == (3, 5)
    assert landed_with(page, N_BATCHES)


def test_a_test_that_was_declared_is_part_of_the_plan(page: SharedBlock, tmp_path: Path) -> None:
    planned: list[dict[str, float]] = []
    model = Model(lambda n: planned.append({phase.name: phase.units_planned for phase in page.phases()}))
    callback = LightningCallback(tmp_path, after={"test": punctual.Phase(units=3, cost_steps=0.5)})
    trainer = quiet_trainer(tmp_path, callback, max_epochs=1)
    trainer.fit(model, loader(N_BATCHES))
    assert {plan["test"] for plan in planned} == {3}
    assert page.declaration().state == ProgramState.TRAINING
    trainer.test(model, loader(3), verbose=False)
    assert landed_with(page, N_BATCHES)


def test_evaluations_every_other_epoch_are_planned_before_their_loader_is_made(
    page: SharedBlock, tmp_path: Path
) -> None:
    planned: list[float] = []
    model = Model(lambda n: planned.append(page.phases()[0].units_planned))
    fit(tmp_path, model, max_epochs=4, check_val_every_n_epoch=2, num_sanity_val_steps=0)
    assert planned[0] == 2  # occurrences: how many batches each has is not known yet
    assert page.phases()[0].n_units_done == 2 * N_VALIDATION
    assert page.declaration().state == ProgramState.LANDED


def test_without_punctual_nothing_changes(tmp_path: Path) -> None:
    model = Model()
    assert fit(tmp_path, model).global_step == model.n_batches == 12


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return repeat(torch.ones(1))


def test_a_loader_without_an_end_needs_the_number_of_steps(page: SharedBlock, tmp_path: Path) -> None:
    options: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "default_root_dir": tmp_path}
    with pytest.raises(ValueError, match="must be known before the first"):
        Trainer(**options, max_epochs=1, callbacks=[LightningCallback()]).fit(Model(), DataLoader(Endless()))


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_versions_of_an_attacker_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "version", lambda name: version)
    with pytest.raises(ValueError, match="GHSA-w37p-236h-pfx3"):
        adapter.refuse_malicious()
