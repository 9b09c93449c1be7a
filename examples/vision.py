"""Image classification: a convolutional network on handwritten digits, or on CIFAR-10.

``--data DIR``: a folder with CIFAR-10's binary files, data_batch_1.bin to data_batch_5.bin and test_batch.bin.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from _application import Application, Example
from _batches import Split
from _training import main
from torch import Tensor, nn

_N_CLASSES = 10
_IMAGE_PIXELS = 28
_N_HELD_OUT = 540
_CIFAR_ROW_BYTES = 1 + 3 * 32 * 32


def load_example(folder: Path | None, seed: int) -> Example:
    """Images, shape (n, channels, height, width) from 0 to 1, and their classes."""
    return _cifar(folder) if folder else _digits(seed)


def _digits(seed: int) -> Example:
    """The digits that come with scikit-learn, enlarged. Read from its file: importing the package takes seconds."""
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the digits come with scikit-learn: `pip install scikit-learn`, or give --data")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    images = rows[:, :-1].reshape(-1, 1, 8, 8) / 16
    images = nn.functional.interpolate(images, (_IMAGE_PIXELS, _IMAGE_PIXELS), mode="bilinear")
    digits = Split(images, rows[:, -1].long())
    return Example(digits.rows(slice(_N_HELD_OUT, None)), digits.rows(slice(_N_HELD_OUT)), _N_CLASSES)


def _cifar(folder: Path) -> Example:
    train = [_cifar_file(path) for path in sorted(folder.rglob("data_batch_*.bin"))]
    held_out = [_cifar_file(path) for path in sorted(folder.rglob("test_batch.bin"))]
    if not train or not held_out:
        raise FileNotFoundError(f"{folder} must hold CIFAR-10's data_batch_*.bin and test_batch.bin")
    inputs, targets = (torch.cat(parts) for parts in zip(*train, strict=True))
    return Example(Split(inputs, targets), Split(*held_out[0]), _N_CLASSES)


def _cifar_file(path: Path) -> tuple[Tensor, Tensor]:
    rows = torch.from_numpy(np.fromfile(path, dtype=np.uint8).reshape(-1, _CIFAR_ROW_BYTES))
    return rows[:, 1:].reshape(-1, 3, 32, 32).float() / 255, rows[:, 0].long()


def build_model(example: Example) -> nn.Module:
    n_channels = example.train.inputs.shape[1]
    return nn.Sequential(
        nn.Conv2d(n_channels, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(7),
        nn.Flatten(), nn.Linear(48 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, example.n_classes),
    )  # fmt: skip


VISION = Application("vision", load_example, build_model, n_steps_per_epoch=300, n_rows_per_batch=64)

if __name__ == "__main__":
    main(VISION)
