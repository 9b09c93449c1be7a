"""Samples of a dataset by their numbers, made into what the model takes."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

Collate = Callable[[list[Any]], Any]


class Fetch:
    """Samples of `dataset`, collated.

    A dataset of tensors is indexed by all numbers at once. Any other is asked sample by sample, or all at once if it
    has torch's `__getitems__`.
    """

    def __init__(self, dataset: Any, collate: Collate | None) -> None:
        self._dataset = dataset
        self._collate = collate or default_collate
        self._is_tensors = collate is None and type(dataset) is TensorDataset

    @property
    def draws(self) -> bool:
        """Whether fetching a sample may draw random numbers."""
        return not self._is_tensors

    def together(self, numbers: Tensor) -> Any:
        """The samples with these numbers."""
        if self._is_tensors:
            return tuple(tensor[numbers] for tensor in self._dataset.tensors)
        return self._collate(self.samples(numbers))

    def samples(self, numbers: Tensor) -> list[Any]:
        """The samples, not collated yet."""
        which: Sequence[int] = numbers.tolist()
        if hasattr(self._dataset, "__getitems__"):
            return cast("list[Any]", self._dataset.__getitems__(which))
        return [self._dataset[i] for i in which]

    def collated(self, samples: list[Any]) -> Any:
        return self._collate(samples)


def moved(batch: Any, device: torch.device) -> Any:
    """`batch` with its tensors on `device`, through lists, tuples and dictionaries."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: moved(part, device) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch
