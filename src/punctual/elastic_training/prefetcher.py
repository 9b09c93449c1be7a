"""Fetch samples ahead of the training, in processes of their own."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
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
    """Fetches the next requests' batches in advance.

    What that is changes with the worker's share of a step; what was fetched for another share is thrown away.
    """

    def __init__(self, fetch: Fetch, n_loaders: int) -> None:
        self.fetch = fetch
        self.n_loaders = n_loaders
        #: Requests that the loader has taken and not answered yet; and where it takes the next ones from.
        self._asked: deque[Request] = deque()
        self._coming: Iterator[Request] = iter(())
        self._answers: Iterator[Any] = iter(())
        # The generator is torch's for its loaders' seeds: drawing from the default one would be seen by the model. Copies
        # have all that the worker has loaded; in a worker, whatever else there is would load it again.
        self._loader = DataLoader(
            _Answers(fetch), batch_sampler=cast("Iterable[Any]", _Coming(self._next)), num_workers=n_loaders, persistent_workers=True,
            collate_fn=_as_it_is, generator=torch.Generator(), multiprocessing_context="fork",
            worker_init_fn=partial(_end_with, os.getpid()),
        )  # fmt: skip

    def take(self, request: Request, coming: Callable[[], Iterator[Request]]) -> Any:
        """Return the batch of `request`.

        `coming`: returns the expected requests, from this one or an earlier one on.
        """
        if not self._asked or self._asked[0] != request:
            self._asked.clear()
            self._coming = dropwhile(lambda other: other != request, coming())
            self._answers = iter(self._loader)
        batch = next(self._answers)
        self._asked.popleft()
        return batch

    def _next(self) -> Iterator[Request]:
        for request in self._coming:
            self._asked.append(request)
            yield request


class _Coming:
    """Sampler of the loader: the expected requests."""

    def __init__(self, requests: Callable[[], Iterator[Request]]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Request]:
        return self._requests()


class _Answers(Dataset[Any]):
    """Dataset of the loader's processes: a batch for each request."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __getitems__(self, request: Request) -> Any:
        torch.set_num_threads(1)
        return self._fetch.batch(request)


def _end_with(parent: int, _: int) -> None:
    """End the loader's process at once with the worker's: a loader that finds it gone would complain."""
    exit_with_parent(parent)


def _as_it_is(batch: Any) -> Any:
    return batch
