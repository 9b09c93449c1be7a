"""Trainings that change more than weights: what is frozen, modes, buffers, the length of an epoch."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.elastic_training.trainings import N_CLASSES, N_FEATURES, tensors
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Subset

from punctual.elastic_training.agent_client import NoAgent
from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun

BATCH = 24


class Assigned(nn.Module):
    """A moving mean that each pass puts in place of the one before."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_FEATURES, N_CLASSES)
        self.register_buffer("mean", torch.zeros(N_FEATURES))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
        return self.linear(inputs - self.mean)


class Caching(nn.Module):
    """Buffers that the first pass makes, or makes larger."""

    angles: Tensor
    grown: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_FEATURES, N_CLASSES)
        self.register_buffer("grown", torch.zeros(1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if not hasattr(self, "angles"):
            self.register_buffer("angles", torch.arange(float(N_FEATURES)).cos(), persistent=False)
            self.register_buffer("grown", torch.ones(N_FEATURES), persistent=False)
        return self.linear(inputs * self.angles * self.grown)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(N_FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, N_CLASSES))


def frozen() -> nn.Sequential:
    model = network()
    model[0].requires_grad_(False)
    return model


class Notes:
    """A part of `extra` whose keys are no texts."""

    def __init__(self) -> None:
        self.n: dict[Any, Any] = {}

    def state_dict(self) -> dict[Any, Any]:
        return self.n

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.n = state


def thaws(run: ElasticRun) -> None:
    run.model.requires_grad_(True)


def freezes(run: ElasticRun) -> None:
    run.model[0].requires_grad_(False)  # type: ignore[index]
    run.model[1].eval()  # type: ignore[index]


@dataclass(frozen=True)
class Odd:
    """A model, and what the script does with it after the first epoch."""

    model: Callable[[], nn.Module] = network
    after: Callable[[ElasticRun], None] = field(default=lambda run: None)
    deterministic: bool = True


ODD = {
    "frozen": Odd(frozen, deterministic=False),
    "thaws": Odd(frozen, thaws),
    "thaws, in the fastest order": Odd(frozen, thaws, deterministic=False),
    "freezes": Odd(network, freezes),
    "freezes, in the fastest order": Odd(network, freezes, deterministic=False),
    "a buffer that is assigned": Odd(Assigned),
    "buffers that come and grow": Odd(Caching),
}


def train(context: Context, name: str) -> tuple[dict[str, Tensor], Any]:
    """Weights at the end, and the notes in `extra`."""
    odd, notes = ODD[name], Notes()
    torch.manual_seed(0)
    model = odd.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with context.elastic(
        model=model, optimizer=optimizer, extra={"notes": notes}, deterministic=odd.deterministic
    ) as run:
        for epoch in run.epochs(3):
            for inputs, targets in run.batches(tensors(), global_batch_size=BATCH):
                run.backward(functional.cross_entropy(model(inputs), targets))
                if run.step():
                    notes.n[epoch, run.step_number] = {run.step_number: (1, 2)}
            if epoch == 0:
                odd.after(run)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}, notes.n


def right(dies: bool) -> Callable[[nn.Module, Any], Tensor]:
    def count(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return (model(batch[0]).argmax(1) == batch[1]).sum()

    return count


def leave_epochs(
    context: Context, checkpoint_dir: str | None = None, dies: bool = False, *, ends_at: int = 4
) -> tuple[list[Tensor], int, dict[int, float]]:
    """Leave each epoch by `break` after three steps, evaluate and draw a number; one worker may die in the evaluation."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    drawn: dict[int, float] = {}
    kills = dies and getattr(context, "number", 0) == 0
    with context.elastic(model=model, optimizer=optimizer, deterministic=True, checkpoint_dir=checkpoint_dir) as run:
        for epoch in run.epochs(4):
            if epoch == ends_at:
                break
            for inputs, targets in run.batches(tensors(), global_batch_size=BATCH):
                run.backward(functional.cross_entropy(model(inputs), targets))
                if run.step() and run.step_number % 3 == 0:
                    break
            run.evaluate(right(kills and epoch == 0), tensors(), batch_size=16)
            drawn[epoch] = float(torch.rand(()))
            run.checkpoint()
    return [param.detach().clone() for param in model.parameters()], run.step_number, drawn


def change_lengths(context: Context) -> int:
    """A short first epoch, and one of small batches."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with context.elastic(model=model, optimizer=optimizer, virtual_ranks=2) as run:
        for epoch in run.epochs(3, phases=("evaluate",)):
            dataset = Subset(tensors(), range(50 if epoch == 0 else 100))
            for inputs, targets in run.batches(dataset, global_batch_size=10 if epoch == 1 else 25):
                run.backward(functional.cross_entropy(model(inputs), targets))
                run.step()
            run.evaluate(right(False), tensors(), batch_size=16)
    return run.step_number


def stop_and_go_on(checkpoint_dir: str, global_batch_size: int, ends_at: int | None = None) -> list[int]:
    """Numbers of the samples that are trained on, up to the end of step `ends_at`."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[int] = []
    with (
        suppress(InterruptedError),
        Context(NoAgent()).elastic(model=model, optimizer=optimizer, checkpoint_dir=checkpoint_dir) as run,
    ):
        for _ in run.epochs(1):
            for numbers in run.batches(torch.arange(96), global_batch_size=global_batch_size):
                seen += numbers.tolist()
                run.backward(model(numbers.float().view(-1, 1)).mean() * 0.0)
                if run.step() and run.step_number == ends_at:
                    run.checkpoint()
                    raise InterruptedError
    return seen


class Noisy:
    """Samples that are drawn anew each time."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> Tensor:
        return torch.rand(1, dtype=torch.float64) + random.random()


def evaluate_noise(context: Context) -> tuple[list[float], list[float]]:
    """Sums of drawn samples, and numbers that the script draws after each."""
    model = nn.Linear(N_FEATURES, N_CLASSES)
    sums, drawn = [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with context.elastic(model=model, optimizer=optimizer, deterministic=True) as run:
        for _ in run.epochs(2):
            for inputs, targets in run.batches(tensors(), global_batch_size=BATCH):
                run.backward(functional.cross_entropy(model(inputs), targets))
                run.step()
            sums.append(float(run.evaluate(lambda _, batch: batch.sum(), Noisy(), batch_size=4)))
            drawn += [float(torch.rand(())), random.random()]
    return sums, drawn
