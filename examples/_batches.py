"""Rows of data, and the order in which they are trained on."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of inputs and their targets; the first dimension of both is the row."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def rows(self, which: Tensor | slice) -> "Split":
        return Split(self.inputs[which], self.targets[which])

    def batches(self, n_rows: int) -> list["Split"]:
        """All rows in order; the last batch may be smaller."""
        return [self.rows(slice(first, first + n_rows)) for first in range(0, len(self), n_rows)]


class Batches:
    """Batches in an order that is drawn anew for each epoch, and is the same whenever that epoch is begun.

    A resumed training therefore sees the rows it would have seen. An epoch longer than the data goes through it
    several times.
    """

    def __init__(self, split: Split, options: Namespace, start_step: int) -> None:
        self._split = split
        self._n_rows = options.batch_size
        self._n_steps = options.steps_per_epoch
        self._seed = options.seed
        self._next_step = start_step

    def __len__(self) -> int:
        return int(self._n_steps)

    def __iter__(self) -> Iterator[Split]:
        i_epoch, i_batch = divmod(self._next_step, self._n_steps)
        for which in torch.split(self._order(i_epoch), self._n_rows)[i_batch:]:
            self._next_step += 1
            yield self._split.rows(which)

    def _order(self, i_epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + i_epoch)
        n_wanted = self._n_steps * self._n_rows
        n_passes = -(-n_wanted // len(self._split))
        passes = [torch.randperm(len(self._split), generator=generator) for _ in range(n_passes)]
        return torch.cat(passes)[:n_wanted]
