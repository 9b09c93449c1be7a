"""The three programs with a number of workers that may change while they train."""

from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

import torch
from _application import Application
from _batches import Split
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import punctual

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context


def train_elastically(application: Application, options: Namespace) -> None:
    """Train as the options say, with as many workers as Punctual grants."""
    punctual.elastic(partial(_train, application, options))


def _train(application: Application, options: Namespace, context: "Context") -> None:
    """What each worker does; a step is the same as in one process, and so is what comes after an epoch."""
    torch.manual_seed(options.seed)
    example = application.load_example(options.data, options.seed)
    model = application.build_model(example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=application.learning_rate)
    rows = _tensors(_of_length(example.train, options.steps_per_epoch * options.batch_size))
    held_out = _tensors(example.held_out)
    with context.elastic(
        model=model, optimizer=optimizer, deterministic=options.deterministic, checkpoint_dir=options.checkpoint_dir
    ) as run:
        run.rehearse(_n_right, held_out, batch_size=options.batch_size)
        for epoch in run.epochs(options.epochs, phases=("evaluate",)):
            for inputs, targets in run.batches(rows, global_batch_size=options.batch_size, seed=options.seed):
                run.backward(_loss(run.model, inputs, targets))
                run.step()
            n_right, n_targets = run.evaluate(_n_right, held_out, batch_size=options.batch_size)
            accuracy = int(n_right) / int(n_targets)
            run.print(f"epoch {epoch + 1}/{options.epochs}  loss {run.loss:.3f}  accuracy {accuracy:.3f}")


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def _n_right(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    inputs, targets = batch
    return (model(inputs).argmax(-1) == targets).sum(), targets.numel()


def _of_length(split: Split, n_rows: int) -> Split:
    """So many rows of the data, several times the same if it has fewer."""
    return split.rows(torch.arange(n_rows) % len(split))


def _tensors(split: Split) -> TensorDataset:
    return TensorDataset(split.inputs, split.targets)
