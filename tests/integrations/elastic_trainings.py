"""One elastic training, directly and in the words of two libraries; found by name in other processes."""

from collections.abc import Callable
from typing import Any

import torch
from tests.elastic_training.trainings import BATCH, Plan, n_right_and_loss, network, tensors
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer

from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun

PLAN = Plan(has_norm=True, n_epochs=2)
CLIP_NORM = 0.5
OPTIONS: dict[str, Any] = {"deterministic": True, "virtual_ranks": 4}

#: The weights, the sums of the evaluations, and how many workers took part in a step.
Seen = tuple[dict[str, Tensor], list[float], set[int]]


def direct(context: Context) -> Seen:
    """As `punctual.elastic` has it."""
    model, optimizer, scheduler = made()
    with context.elastic(model=model, optimizer=optimizer, extra={"scheduler": scheduler}, **OPTIONS) as run:
        return trained(run, model, run.backward, lambda: run.step(clip_norm=CLIP_NORM), scheduler)


def by_fabric(context: Context) -> Seen:
    from lightning.fabric import Fabric

    from punctual.integrations.fabric import elastic

    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer, scheduler = made()
    prepared, wrapped = fabric.setup(model, optimizer)
    extra = {"scheduler": scheduler}
    with elastic(context, fabric, prepared, wrapped, clip_norm=CLIP_NORM, extra=extra, **OPTIONS) as run:
        return trained(run, prepared, fabric.backward, _stepping(wrapped), scheduler)


def by_accelerate(context: Context) -> Seen:
    from accelerate import Accelerator

    from punctual.integrations.accelerate import elastic

    accelerator = Accelerator(cpu=True)
    model, optimizer, scheduler = made()
    prepared, wrapped = accelerator.prepare(model, optimizer)
    extra = {"scheduler": scheduler}
    with elastic(context, accelerator, prepared, wrapped, clip_norm=CLIP_NORM, extra=extra, **OPTIONS) as run:
        return trained(run, prepared, accelerator.backward, _stepping(wrapped), scheduler)


def made() -> tuple[nn.Module, Optimizer, Any]:
    model = network(PLAN)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)


def trained(
    run: ElasticRun, model: nn.Module, backward: Callable[[Tensor], object], step: Callable[[], bool], scheduler: Any
) -> Seen:
    sums, n_workers = [], set()
    for _ in run.epochs(PLAN.n_epochs):
        for inputs, targets in run.batches(tensors(), global_batch_size=BATCH, seed=5):
            backward(functional.cross_entropy(model(inputs), targets))
            n_workers.add(run.n_workers)
            if step():
                scheduler.step()
        sums += [float(total) for total in run.evaluate(n_right_and_loss, tensors(), batch_size=7)]
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}, sums, n_workers


def _stepping(optimizer: Any) -> Callable[[], bool]:
    """The usual two calls after `backward`."""

    def step() -> bool:
        was_taken = optimizer.step()
        optimizer.zero_grad()
        return bool(was_taken)

    return step
