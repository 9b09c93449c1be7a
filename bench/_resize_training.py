"""Train ten million parameters under AdamW, for `punctual.elastic`, torchrun and Ray Train. A program of its own.

``_resize_training.py large|small [DEVICE]`` trains under an agent; ``_resize_training.py torchrun LOG CHECKPOINT`` under torchrun's,
as its documentation has it: each change ends all processes, and new ones go on from the last checkpoint. Its first
process writes a line for each step: when it was done, of how many processes, and its number. ``_resize_training.py ray FOLDER
ADDRESS INTERVAL`` has Ray Train v2 do so on the cluster at ADDRESS, with as many workers as there is room for, one or two, and
checkpoints in FOLDER; it looks for room every INTERVAL seconds. ``_resize_training.py exact FOLDER`` trains under an agent with the
same bits whatever its number of workers, and notes in FOLDER what its weights are after every so many steps.
"""

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import punctual

N_STEPS = 1_000_000
GLOBAL_BATCH_SIZE = 24
#: Steps between two checkpoints where processes are started anew.
CHECKPOINT_STEPS = 5
#: Steps between two looks at the weights.
LOOK_STEPS = 10

#: Weights, the optimiser's state and the number of steps.
State = dict[str, Any]


def model_of(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def large() -> nn.Sequential:
    """10.0 million parameters: 40 MB, and 80 MB of AdamW's state."""
    return model_of((512, 2048, 4096, 128, 10))


def small() -> nn.Sequential:
    return model_of((512, 32, 10))


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2400, 512, generator=generator)
    return TensorDataset(inputs, inputs[:, :10].argmax(1))


def train(kind: str, device: str, context: object) -> None:
    """Train a model on a device, which all workers share."""
    model = (large() if kind == "large" else small()).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with context.elastic(model=model, optimizer=optimizer) as run:  # type: ignore[attr-defined]
        for _epoch in run.epochs(N_STEPS):
            for inputs, targets in run.batches(dataset(), global_batch_size=GLOBAL_BATCH_SIZE, seed=0):
                run.backward(nn.functional.cross_entropy(run.model(inputs), targets))
                run.step()


def train_plainly(
    log_path: Path, saved: State | None, prepared: Callable[[nn.Module], nn.Module], rank: int, n_workers: int
) -> Iterator[State]:
    """Go on from what was saved, with the copies of the model kept alike by PyTorch.

    Yields what to save, every `CHECKPOINT_STEPS` steps. The first process writes a line for each
    step: when it was done, of how many processes, and its number.
    """
    model = large()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    n_steps = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        n_steps = saved["n_steps"]
    parallel = prepared(model)
    inputs, targets = dataset().tensors
    share = GLOBAL_BATCH_SIZE // n_workers
    with log_path.open("a", buffering=1) as log:
        while n_steps < N_STEPS:
            begin = (n_steps * GLOBAL_BATCH_SIZE + rank * share) % (len(inputs) - share)
            optimizer.zero_grad()
            output = parallel(inputs[begin : begin + share])
            nn.functional.cross_entropy(output, targets[begin : begin + share]).backward()
            optimizer.step()
            n_steps += 1
            if rank == 0:
                log.write(f"{time.monotonic()} {n_workers} {n_steps}\n")
            if n_steps % CHECKPOINT_STEPS == 0:
                yield {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "n_steps": n_steps}


def train_under_torchrun(log_path: Path, checkpoint_path: Path) -> None:
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    rank, n_workers = distributed.get_rank(), distributed.get_world_size()
    saved = torch.load(checkpoint_path) if checkpoint_path.exists() else None
    for state in train_plainly(log_path, saved, DistributedDataParallel, rank, n_workers):
        if rank == 0:
            unfinished = checkpoint_path.with_suffix(".new")
            torch.save(state, unfinished)
            unfinished.replace(checkpoint_path)


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def train_exactly(context: Any) -> None:
    torch.manual_seed(0)
    model = large()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    looks = Path(sys.argv[2]) / "looks"
    with context.elastic(model=model, optimizer=optimizer, virtual_ranks=2, deterministic=True) as run:
        for _epoch in run.epochs(N_STEPS):
            for inputs, targets in run.batches(dataset(), global_batch_size=GLOBAL_BATCH_SIZE, seed=0):
                run.backward(nn.functional.cross_entropy(run.model(inputs), targets))
                run.step()
                if run.is_first and run.step_number % LOOK_STEPS == 0:
                    with looks.open("a") as file:
                        file.write(f"{run.step_number} {digest(model)}\n")


def train_under_ray(config: dict[str, str]) -> None:
    from ray import train
    from ray.train.torch import prepare_model

    context, start, saved = train.get_context(), train.get_checkpoint(), None
    if start is not None:
        with start.as_directory() as folder:
            saved = torch.load(Path(folder, "state"))
    rank, n_workers = context.get_world_rank(), context.get_world_size()
    for state in train_plainly(Path(config["log"]), saved, prepare_model, rank, n_workers):
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                torch.save(state, Path(folder, "state"))
            train.report({}, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None)


def fit(folder: str, address: str, interval_s: str) -> None:
    import ray
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address=address, log_to_driver=False)
    TorchTrainer(
        train_under_ray,
        train_loop_config={"log": f"{folder}/log"},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=float(interval_s)),
        run_config=RunConfig(
            storage_path=folder,
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    ).fit()


if __name__ == "__main__":
    if sys.argv[1] == "torchrun":
        train_under_torchrun(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1] == "ray":
        fit(*sys.argv[2:])
    else:
        punctual.elastic(
            train_exactly if sys.argv[1] == "exact" else partial(train, sys.argv[1], *(sys.argv[2:] or ["cpu"]))
        )
