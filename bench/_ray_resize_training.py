"""Ten million parameters under AdamW on one node or two, under Punctual and under Ray Train. A program of its own.

``_ray_resize_training.py punctual FOLDER`` trains with the same bits whatever its number of workers, and notes in FOLDER what its
weights are after every so many steps. ``_ray_resize_training.py ray FOLDER ADDRESS INTERVAL`` has Ray Train v2 do it on the cluster
at ADDRESS, with as many workers as there is room for, one or two, and checkpoints in FOLDER. INTERVAL is how often Ray Train
looks whether there is room for another number of workers, in seconds.
"""

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _resize_training import GLOBAL_BATCH_SIZE, N_STEPS, dataset, large, train_plainly
from torch import nn

import punctual

#: Steps between two looks at the weights.
LOOK_STEPS = 10


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def train_under_punctual(context: Any) -> None:
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
    if sys.argv[1] == "ray":
        fit(*sys.argv[2:])
    else:
        punctual.elastic(train_under_punctual)
