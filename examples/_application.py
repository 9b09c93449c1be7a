"""What a training program is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _batches import Split
from torch import nn


@dataclass(frozen=True, slots=True)
class Example:
    """Rows to train on and rows to evaluate on, and how many classes a target may be."""

    train: Split
    held_out: Split
    n_classes: int


@dataclass(frozen=True, slots=True)
class Application:
    """A training program.

    Attributes
    ----------
    load_example
        Makes the data (from a folder, or None: from what is at hand) with a seed.
    build_model
        Makes the network for that data.
    n_steps_per_epoch, n_rows_per_batch, learning_rate
        Defaults of the options.
    """

    name: str
    load_example: Callable[[Path | None, int], Example]
    build_model: Callable[[Example], nn.Module]
    n_steps_per_epoch: int
    n_rows_per_batch: int
    learning_rate: float = 1e-3
