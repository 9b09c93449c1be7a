"""Trainings with parameter servers that leave what they have learned in a file of each worker, by its rank."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun

BATCH = 23


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 5), nn.Linear(5, 1))


def make_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    first, *others = model.parameters()
    groups: list[dict[str, object]] = [{"params": [first], "lr": 0.003}, {"params": others}]
    return torch.optim.AdamW(groups, lr=0.01)


def dataset() -> TensorDataset:
    """One sample more than six batches have: in the last batch of an epoch there is none for the second worker."""
    inputs = torch.randn(6 * BATCH + 1, 7, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def hurt(how: str, folder: Path) -> None:
    """What happens to the first worker in the midst of the training, once."""
    if (folder / "hurt").exists():
        return
    (folder / "hurt").touch()
    if how == "killed":
        while not list((folder / "kept").glob("*.safetensors")):  # it is written in the background
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    raise ZeroDivisionError("in the script")


def wait_for_test(run: ElasticRun, folder: Path) -> None:
    """Give the test time to do something in the midst of the training, and tell it who waits; the others wait too."""
    with run.phase("wait"):
        (folder / "waits.new").write_text(str(os.getpid()))
        (folder / "waits.new").rename(folder / "waits")
        while not (folder / "go").exists():
            time.sleep(0.01)


def train(context: Context) -> None:
    torch.set_num_threads(1)
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    model = make_model()
    optimizer = make_optimizer(options["kind"], model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses: list[float] = []
    made = context.elastic(
        model=model, optimizer=optimizer, extra={"rate": scheduler}, virtual_ranks=2,
        synchronous=options.get("synchronous", True), checkpoint_dir=options.get("kept"), checkpoint_every_s=1000.0,
    )  # fmt: skip
    try:
        with made as run:
            for _ in run.epochs(options.get("n_epochs", 2)):
                for inputs, targets in run.batches(dataset(), global_batch_size=BATCH, seed=3):
                    run.backward(loss_of(run.model, inputs, targets))
                    if run.step():
                        scheduler.step()
                        losses.append(run.loss)
                        after_step(run, options, folder)
    finally:
        told = {"losses": losses, "weights": [one.tolist() for one in model.parameters()], "n_steps": made.step_number}
        (folder / f"{made.rank}.json").write_text(json.dumps(told))


def after_step(run: ElasticRun, options: dict[str, Any], folder: Path) -> None:
    time.sleep(options.get("step_s", 0.0))
    if run.step_number == options.get("save_at"):
        run.checkpoint()
    if run.is_first and run.step_number == options.get("wait_at"):
        wait_for_test(run, folder)
    if run.is_first and run.step_number == options.get("hurt_at"):
        hurt(options["how"], folder)
