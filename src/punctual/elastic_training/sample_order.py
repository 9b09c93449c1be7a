"""Samples of each step, which follow from seed, epoch and step alone."""

import torch
from torch import Tensor

from punctual.elastic_training.random_state import mixed


class SampleOrder:
    """Order of `n_samples` samples, drawn anew for each epoch, in global batches.

    * `global_batch_size`: samples of a step; the last step of an epoch has the rest.
    * `shuffles`: whether to draw an order at all.
    """

    def __init__(self, n_samples: int, global_batch_size: int, seed: int, *, shuffles: bool = True) -> None:
        self._n_samples = n_samples
        self._global_batch_size = global_batch_size
        self.seed = seed
        self._shuffles = shuffles
        self._epoch = -1
        self._drawn = torch.empty(0, dtype=torch.int64)

    @property
    def n_steps(self) -> int:
        """Steps in an epoch."""
        return -(-self._n_samples // self._global_batch_size)

    def samples(self, epoch: int, i_step: int) -> Tensor:
        """Return the numbers of the samples of step `i_step` of `epoch`, both from 0; shape (n,)."""
        if epoch != self._epoch:
            self._drawn, self._epoch = self._draw(epoch), epoch
        return self._drawn[i_step * self._global_batch_size : (i_step + 1) * self._global_batch_size]

    def _draw(self, epoch: int) -> Tensor:
        if not self._shuffles:
            return torch.arange(self._n_samples)
        generator = torch.Generator().manual_seed(mixed(self.seed, epoch))
        return torch.randperm(self._n_samples, generator=generator)
