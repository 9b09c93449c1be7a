"""Trainings in which one worker does something that the others do not; for the stage."""

from collections.abc import Callable
from typing import Any

import torch
from tests.elastic_training.trainings import BATCH, Plan, n_right_and_loss, network, tensors
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun

#: The step after which it happens; there are four steps in an epoch, and four epochs.
AT_STEP, N_STEPS = 6, 16
#: What is changed in one worker.
PARAMETER = "2.bias"


def train(context: Context, way: str, deterministic: bool, folder: str = "") -> int:
    """The steps done; with a folder a checkpoint is made after each of them."""
    context._store = Eager(folder) if folder else None
    model = network(Plan(has_dropout=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    average = AveragedModel(model)
    with context.elastic(
        model=model, optimizer=optimizer, extra={"average": average}, deterministic=deterministic, virtual_ranks=6
    ) as run:
        for epoch in run.epochs(N_STEPS // 4):
            n_samples = 103 - 40 * run.rank if way == "a shorter dataset" else 103
            for inputs, targets in run.batches(tensors(n_samples), global_batch_size=BATCH, seed=5):
                run.backward(functional.cross_entropy(run.model(inputs), targets))
                if not run.step():
                    continue
                if way != "an average" or run.is_first:
                    average.update_parameters(model)
                if run.step_number != AT_STEP or run.rank != 1:
                    continue
                CHANGES.get(way, _nothing)(run, optimizer)
                if way == "break":
                    break
                if way == "return":
                    return -1
            if way == "an evaluation after an epoch" and run.is_first:
                evaluate(run, optimizer)
            if way == "the end of the epochs" and epoch == 1 and run.rank == 1:
                break
        return run.step_number


def _nothing(run: ElasticRun, optimizer: torch.optim.Optimizer) -> None:
    """Nothing."""


def evaluate(run: ElasticRun, optimizer: torch.optim.Optimizer) -> None:
    run.evaluate(n_right_and_loss, tensors(), batch_size=16)


@torch.no_grad()
def change_weights(run: ElasticRun, optimizer: torch.optim.Optimizer) -> None:
    run.model.get_parameter(PARAMETER).add_(1e-6)


def change_state(run: ElasticRun, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[run.model.get_parameter(PARAMETER)]["exp_avg"].mul_(2)


CHANGES: dict[str, Callable[[ElasticRun, torch.optim.Optimizer], Any]] = {
    "run.finish": lambda run, _: run.finish(),
    "an evaluation": evaluate,
    "weights": change_weights,
    "the optimizer's state": change_state,
    "a setting": lambda run, optimizer: optimizer.param_groups[0].update(initial_lr=0.5),
}


class Eager(CheckpointStore):
    """Whose checkpoints are always due."""

    def is_due(self) -> bool:
        return True
