"""What the tests of Lightning's adapter are made of; loaded once one of them runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler
from torch.utils.data import DataLoader, TensorDataset

from punctual.integrations import lightning as adapter
from punctual.integrations.lightning import LightningCallback

__all__ = [
    "N_BATCHES", "N_EPOCHS", "N_VALIDATION", "ByHand", "EarlyStopping", "GradientAccumulationScheduler", "LightningCallback",
    "Model", "Trainer", "adapter", "fit", "loader", "quiet_trainer",
]  # fmt: skip
N_BATCHES, N_EPOCHS, N_VALIDATION = 4, 3, 2


class Model(LightningModule):
    """Learns nothing; counts what it is shown, and calls `at_batch` before each batch."""

    def __init__(self, at_batch: Callable[[int], None] = lambda n: None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.n_batches = self.n_evaluations = 0
        self.at_batch = at_batch

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.n_batches += 1
        self.at_batch(self.n_batches)
        return (self.weight * batch[0]).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", batch[0].mean())

    def test_step(self, batch: Any, batch_idx: int) -> None: ...

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.ones(1)

    def on_validation_epoch_end(self) -> None:
        self.n_evaluations += not self.trainer.sanity_checking

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def loader(n_batches: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.ones(n_batches)), batch_size=1)


def fit(folder: Path, model: LightningModule, *callbacks: Any, **options: Any) -> Trainer:
    callback = LightningCallback(folder)
    settings: dict[str, Any] = {"max_epochs": N_EPOCHS, **options}
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        callbacks=[callback, *callbacks], **settings,
    )  # fmt: skip
    trainer.fit(model, loader(N_BATCHES), loader(N_VALIDATION), ckpt_path=callback.resume_from)
    return trainer


def quiet_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        enable_checkpointing=False, callbacks=[*callbacks], **options,
    )  # fmt: skip


class ByHand(Model):
    """Steps its optimizers itself, the second one every `n_between` batches only."""

    def __init__(self, n_optimizers: int, n_between: int = 1) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.n_optimizers, self.n_between = n_optimizers, n_between

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        optimizers = self.optimizers()
        for i, optimizer in enumerate(optimizers if isinstance(optimizers, list) else [optimizers]):
            if i == 0 or self.n_batches % self.n_between == 0:
                optimizer.zero_grad()
                self.manual_backward((self.weight * batch[0]).mean())
                optimizer.step()
        self.n_batches += 1

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(self.n_optimizers)]
