"""Small trainings for the stage: top-level functions, so that workers find them by their names."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from punctual.elastic_training.context import Context
from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.run import ElasticRun

N_SAMPLES, N_FEATURES, N_CLASSES = 103, 6, 3
BATCH = 32


@dataclass(frozen=True)
class Plan:
    """How to train, and who dies: a worker by its number, before the step, at the scene."""

    deterministic: bool = True
    virtual_ranks: int | None = None
    fuse: bool = True
    has_norm: bool = False
    has_dropout: bool = True
    n_epochs: int = 4
    death: tuple[int, int, str] | None = None
    drifts_at: int | None = None
    declares: int | None = None
    n_loaders: int = 0
    has_muon: bool = False


@dataclass
class Outcome:
    """What a worker has seen."""

    losses: dict[int, float] = field(default_factory=dict)
    sums: list[list[float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    n_workers: dict[int, int] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def tensors(n_samples: int = N_SAMPLES) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(n_samples, N_FEATURES, generator=generator)
    return TensorDataset(inputs, torch.randint(N_CLASSES, (n_samples,), generator=generator))


def network(plan: Plan) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(N_FEATURES, 16, bias=not plan.has_norm)]
    layers += [nn.BatchNorm1d(16)] if plan.has_norm else []
    layers += [nn.ReLU()] + ([nn.Dropout(0.3)] if plan.has_dropout else [])
    return nn.Sequential(*layers, nn.Linear(16, N_CLASSES))


def optimizers_of(model: nn.Module, plan: Plan) -> list[torch.optim.Optimizer]:
    """One; or Muon for matrices, which takes nothing else, and another one for the rest."""
    if not plan.has_muon:
        return [torch.optim.AdamW(model.parameters(), lr=1e-2)]
    matrices = [param for param in model.parameters() if param.dim() == 2]
    others = [param for param in model.parameters() if param.dim() != 2]
    kind = getattr(torch.optim, "Muon", partial(torch.optim.SGD, momentum=0.9))  # older versions of torch have none
    return [kind(matrices, lr=2e-2), torch.optim.AdamW(others, lr=1e-2)]


def n_right_and_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    inputs, targets = batch
    scores = model(inputs)
    return (scores.argmax(1) == targets).sum(), functional.cross_entropy(scores, targets, reduction="sum")


def train(context: Context, plan: Plan) -> Outcome:
    """A classifier with AdamW, a scheduler of steps and one of epochs, evaluated after each epoch."""
    model, dataset = network(plan), tensors()
    optimizers = optimizers_of(model, plan)
    optimizer, last = optimizers[0], optimizers[-1]
    by_step = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9], 0.7)
    by_epoch = torch.optim.lr_scheduler.StepLR(last, 1, 0.9)
    outcome = Outcome()
    with context.elastic(
        model=model, optimizer=optimizers if plan.has_muon else optimizer, extra={"steps": by_step, "epochs": by_epoch},
        virtual_ranks=plan.virtual_ranks, deterministic=plan.deterministic, fuse=plan.fuse,
    ) as run:  # fmt: skip
        for _ in run.epochs(plan.n_epochs):
            for inputs, targets in run.batches(dataset, global_batch_size=BATCH, seed=5, n_loaders=plan.n_loaders):
                _die(context, run, plan, "step")
                run.backward(functional.cross_entropy(run.model(inputs), targets))
                if run.step():
                    by_step.step()
                    outcome.losses[run.step_number] = run.loss
                    outcome.n_workers[run.step_number] = run.n_workers
                    _drift(run, plan)
            by_epoch.step()
            outcome.sums.append(
                [float(total) for total in run.evaluate(_dying(context, run, plan), dataset, batch_size=7)]
            )
            outcome.rates += [given.param_groups[0]["lr"] for given in optimizers]
    outcome.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return outcome


def _die(context: Context, run: ElasticRun, plan: Plan, scene: str) -> None:
    if plan.death == (getattr(context, "number", 0), run.step_number, scene):
        os.kill(os.getpid(), signal.SIGKILL)


def _dying(context: Context, run: ElasticRun, plan: Plan) -> Any:
    def function(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        _die(context, run, plan, "evaluate")
        return n_right_and_loss(model, batch)

    return function


def _drift(run: ElasticRun, plan: Plan) -> None:
    """A script that changes the weights by itself, and not in all workers alike."""
    if plan.drifts_at == run.step_number and run.rank:
        next(run.model.parameters()).data.add_(run.rank)
        if plan.declares is not None:
            gather = WorkerGroup.gather
            WorkerGroup.gather = _declaring(gather, plan.declares)  # type: ignore[method-assign, assignment]


def _declaring(
    gather: Callable[[WorkerGroup, Any], list[Any]], n_steps: int
) -> Callable[[WorkerGroup, Any], list[Any]]:
    """A worker that tells the others of more steps than it has done."""
    return lambda group, value: gather(group, {**value, "n_steps": n_steps} if isinstance(value, dict) else value)


class Falling(nn.Module):
    """Whose loss is its only weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(10.0))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight.expand(len(inputs))


def fall(
    context: Context,
    environment: dict[str, str] | None = None,
    death: tuple[int, int] | None = None,
    *,
    deterministic: bool = True,
    saves: bool = False,
) -> tuple[int, bool, list[int]]:
    """A loss that falls from 10 by 1 a step: the steps done, whether its goal is reached, and the epochs seen."""
    os.environ.update(environment or {})
    model, epochs = Falling(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with context.elastic(model=model, optimizer=optimizer, deterministic=deterministic) as run:
        for epoch in run.epochs(3, phases=("evaluate",)):
            epochs.append(epoch)
            for inputs, _ in run.batches(tensors(), global_batch_size=BATCH):
                if death == (getattr(context, "number", 0), run.step_number):
                    os.kill(os.getpid(), signal.SIGKILL)
                run.backward(run.model(inputs).mean())
                run.step()
            run.evaluate(lambda of, batch: of(batch[0]).sum(), tensors(), batch_size=16)
            if saves:
                run.checkpoint()
        return run.step_number, run.goal_reached, epochs


class Counting(Dataset[int]):
    """Samples that are their own numbers."""

    def __len__(self) -> int:
        return N_SAMPLES

    def __getitem__(self, i: int) -> int:
        return i


def count(context: Context, n_epochs: int) -> list[dict[int, dict[int, int]]]:
    """How often each sample was trained on, by the gradient that it alone leaves: epoch -> step -> sample -> times."""
    model = nn.Embedding(N_SAMPLES, 1)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    seen = []
    with context.elastic(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(n_epochs):
            before = model.weight.detach().clone()
            for numbers in run.batches(Counting(), global_batch_size=BATCH, seed=1):
                run.backward(run.model(numbers).mean())
                run.step()
            seen.append((before - model.weight.detach()).flatten())
    return seen  # type: ignore[return-value]


def fall_by_epochs(
    context: Context, environment: dict[str, str], death: tuple[int, int] | None = None
) -> tuple[int, bool, list[float]]:
    """The same, with losses that the script finds at the end of an epoch: 6, 2, -2 and so on."""
    os.environ.update(environment)
    model, found, n_calls = Falling(), [], Counter[str]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def total(of: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        n_calls["all"] += 1
        if death == (getattr(context, "number", 0), n_calls["all"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return of(batch[0]).sum()

    with context.elastic(model=model, optimizer=optimizer, deterministic=True, reports_loss=False) as run:
        for _ in run.epochs(9, phases=("evaluate",)):
            for inputs, _ in run.batches(tensors(), global_batch_size=BATCH):
                run.backward(run.model(inputs).mean())
                run.step()
            found.append(float(run.evaluate(total, tensors(), batch_size=16)) / N_SAMPLES)
            run.report_loss(found[-1])
        return run.step_number, run.goal_reached, found


def evaluate_within(context: Context, death: tuple[int, int] | None) -> tuple[list[float], dict[str, Tensor]]:
    """Evaluations before the first loop, in its body, and two after each epoch; a worker dies in one of them."""
    plan = Plan()
    model, dataset, made, n_calls = network(plan), tensors(), [], Counter[str]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss_of(of: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        n_calls["all"] += 1
        if death == (getattr(context, "number", 0), n_calls["all"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return n_right_and_loss(of, batch)[1]

    with context.elastic(model=model, optimizer=optimizer, deterministic=True) as run:
        made.append(float(run.evaluate(loss_of, dataset, batch_size=16)))
        for _ in run.epochs(2):
            for inputs, targets in run.batches(dataset, global_batch_size=BATCH, seed=5):
                run.backward(functional.cross_entropy(run.model(inputs), targets))
                if run.step() and run.step_number % 2:
                    made.append(float(run.evaluate(loss_of, dataset, batch_size=16)))
            made += [float(run.evaluate(loss_of, dataset, batch_size=16)) for _ in range(2)]
    return made, {name: tensor.clone() for name, tensor in model.state_dict().items()}
