"""Fetch samples of a dataset by number and collate them for the model."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from punctual.elastic_training.random_state import generators_of, reseed, seed_all
from punctual.tracking.complaint import invalid

Collate = Callable[[list[Any]], Any]

#: The samples of a part, piece by piece: what random numbers are seeded with, and the samples' numbers.
Request = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def length_of(dataset: Any, where: str) -> int:
    """Number of samples of a dataset; raises `ValueError` if it has none, or no numbers."""
    remedy = "Give the samples of one epoch numbers, or train with `punctual.track`, which takes what has no end."
    if isinstance(dataset, DataLoader):
        remedy = "Give the loader's dataset: the run makes the batches."
    has_numbers = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    if isinstance(dataset, IterableDataset) or not has_numbers or not hasattr(dataset, "__len__"):
        raise invalid(
            "a dataset must have a length, and a sample for each number", f"a {type(dataset).__name__}", where, remedy
        )
    if not len(dataset):
        raise invalid(
            "a dataset must have samples", f"a {type(dataset).__name__} of none", where,
            "Look at the path that it is read from, and at what is left out of it.",
        )  # fmt: skip
    return len(dataset)


class Fetch:
    """Fetches samples of `dataset` and collates them.

    A dataset of tensors is indexed by all numbers at once. Any other is asked sample by sample, or all at once if it
    has torch's `__getitems__`.
    """

    def __init__(self, dataset: Any, collate: Collate | None) -> None:
        self.dataset = dataset
        self._collate = collate or default_collate
        self._is_tensors = collate is None and type(dataset) is TensorDataset
        #: Generators of random numbers that are the dataset's own.
        self._generators = generators_of(dataset)

    def is_of(self, dataset: Any, collate: Collate | None) -> bool:
        """Whether it fetches from `dataset` and collates with `collate`."""
        return self.dataset is dataset and self._collate is (collate or default_collate)

    def seed(self, *numbers: int) -> None:
        """Seed all generators of random numbers, those of the dataset included."""
        seed_all(*numbers)
        for i, generator in enumerate(self._generators):
            reseed(generator, *numbers, i)

    def together(self, numbers: Tensor) -> Any:
        """Fetch the samples with these numbers, in order, with the present random state."""
        if self._is_tensors:
            return tuple(tensor[numbers] for tensor in self.dataset.tensors)
        return self._collate(self._samples(numbers.tolist()))

    def batch(self, request: Request) -> Any:
        """Fetch the samples of a part, each piece's with random numbers of its own."""
        if self._is_tensors:  # nothing is drawn
            return self.together(torch.tensor([i for _, numbers in request for i in numbers]))
        samples = []
        for seeds, numbers in request:
            self.seed(*seeds)
            samples += self._samples(numbers)
        return self._collate(samples)

    __getitems__ = batch  # as a dataset of torch's loaders

    def _samples(self, numbers: Sequence[int]) -> list[Any]:
        if hasattr(self.dataset, "__getitems__"):
            return cast("list[Any]", self.dataset.__getitems__(list(numbers)))
        return [self.dataset[i] for i in numbers]


def moved(batch: Any, device: torch.device) -> Any:
    """Return `batch` with its tensors on `device`, through lists, tuples and dictionaries."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: moved(part, device) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch
