"""The training of `punctual demo`: a small convolutional network on the digits that come with scikit-learn.

``python -m punctual.cli._demo_training EPOCHS STEPS_PER_EPOCH [CHECKPOINT_DIR]``
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import punctual

_N_HELD_OUT, _N_ROWS, _N_CLASSES = 540, 64, 10


def main(n_epochs: int, n_steps: int, folder: Path | None = None) -> None:
    """Train, evaluate after each epoch, and save to `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, classes = _digits()
    held_out = list(zip(images[:_N_HELD_OUT].split(_N_ROWS), classes[:_N_HELD_OUT].split(_N_ROWS), strict=True))
    model = _network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Batches of an evaluation that are timed before the first step.
    _accuracy(model, held_out[:2], is_rehearsal=True)
    phases = {"evaluate": punctual.Phase(units=len(held_out)), "checkpoint": punctual.Phase()}
    run = punctual.track(range(n_steps), epochs=n_epochs, phases=phases)
    for _ in run:
        rows = torch.randint(_N_HELD_OUT, len(images), (_N_ROWS,))
        loss = nn.functional.cross_entropy(model(images[rows]), classes[rows])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        if run.epoch_ended:
            accuracy = _accuracy(model, held_out)
            with punctual.phase("checkpoint"):
                if folder is not None:
                    torch.save(model.state_dict(), folder / "new.pt")
                    (folder / "new.pt").replace(folder / "checkpoint.pt")
            print(f"epoch {run.epoch + 1}/{n_epochs}  loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)


def _digits() -> tuple[Tensor, Tensor]:
    """Read images, shape (n, 1, 28, 28) from 0 to 1, and classes from the package's file: its import takes seconds."""
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the digits come with scikit-learn: `pip install scikit-learn`")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    rows = rows[torch.randperm(len(rows))]
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / 16
    return nn.functional.interpolate(images, (28, 28), mode="bilinear"), rows[:, -1].long()


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(7),
        nn.Flatten(), nn.Linear(48 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, _N_CLASSES),
    )  # fmt: skip


@torch.no_grad()
def _accuracy(model: nn.Module, batches: list[tuple[Tensor, Tensor]], *, is_rehearsal: bool = False) -> float:
    model.eval()
    n_right = 0
    with punctual.phase("evaluate", units=len(batches), rehearsal=is_rehearsal) as progress:
        for images, classes in batches:
            n_right += int((model(images).argmax(-1) == classes).sum())
            progress.advance()
    model.train()
    return n_right / sum(len(classes) for _, classes in batches)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:]))
    sys.stdout.flush()
    os._exit(0)  # the interpreter with torch in it takes a second and more to take itself apart
