"""Fetch samples ahead of the training, in processes of their own."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from punctual.elastic_training.fetching import Fetch, Request
from punctual.elastic_training.forkserver import exit_with_parent
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


class Prefetcher:
    """Fetches the next requests' batches in advance, with `n_loaders` processes; without any, when they are asked for.

    What that is changes with the worker's share of a step; what was fetched for another share is thrown away.
    """

    def __init__(self, fetch: Fetch, n_loaders: int) -> None:
        self.fetch = fetch
        self.n_loaders = n_loaders
        #: Requests that the loader has taken and not answered yet; and where it takes the next ones from.
        self._asked: deque[Request] = deque()
        self._coming: Iterator[Request] = iter(())
        self._answers: Iterator[Any] = iter(())
        self._loader = self._forked() if n_loaders else None

    def _forked(self) -> DataLoader[Any]:
        parent, requests, dataset = os.getpid(), cast("Iterable[Any]", self), cast("Dataset[Any]", self.fetch)
        # The generator is torch's for its loaders' seeds: drawing from the default one would be seen by the model. Copies
        # have all that the worker has loaded; in a worker, whatever else there is would load it again. A loader ends at
        # once with the worker: one that found it gone would complain.
        return DataLoader(
            dataset, batch_sampler=requests, num_workers=self.n_loaders, persistent_workers=True, collate_fn=lambda batch: batch,
            generator=torch.Generator(), multiprocessing_context="fork", worker_init_fn=lambda _: exit_with_parent(parent),
        )  # fmt: skip

    def take(self, request: Request, coming: Callable[[], Iterator[Request]]) -> Any:
        """Return the batch of `request`.

        `coming`: returns the expected requests, from this one or an earlier one on.
        """
        if self._loader is None:
            return self.fetch.batch(request)
        if not self._asked or self._asked[0] != request:
            self._asked.clear()
            self._coming = dropwhile(lambda other: other != request, coming())
            self._answers = iter(self._loader)
        batch = next(self._answers)
        self._asked.popleft()
        return batch

    def __iter__(self) -> Iterator[Request]:
        """Yield the expected requests, as the loader takes them."""
        for request in self._coming:
            self._asked.append(request)
            yield request
