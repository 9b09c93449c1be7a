"""Sums over a held-out set, each worker taking its virtual ranks' part of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from punctual.client.elastic.fetching import Fetch, moved
from punctual.client.elastic.virtual_ranks import Node, TreeSum, cut

#: Totals of the values that the user's function returns; None: of no sample.
Totals = list[Tensor] | None


def totals_of(result: Any) -> list[Tensor]:
    """What the user's function has returned for a batch, ready to be summed without losing digits."""
    parts = result if isinstance(result, tuple) else (result,)
    return [_wide(torch.as_tensor(part).detach().cpu()) for part in parts]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64, copy=True)


def add(left: Totals, right: Totals) -> Totals:
    if left is None or right is None:
        return right if left is None else left
    return [mine.add_(other) for mine, other in zip(left, right, strict=True)]


def plain_roots(tree: TreeSum[Totals]) -> list[Any]:
    """Roots of a tree as JSON can carry them."""
    return [(root.level, root.index, plain(root.total)) for root in tree.roots]


def put_roots(tree: TreeSum[Totals], roots: Sequence[Any]) -> None:
    for level, index, total in roots:
        tree.put(Node(level, index, unplain(total)))


def plain(totals: Totals) -> Any:
    """Totals as JSON can carry them."""
    if totals is None:
        return None
    return [(str(total.dtype).removeprefix("torch."), total.tolist()) for total in totals]


def unplain(value: Any) -> Totals:
    """The inverse of `plain`."""
    if value is None:
        return None
    return [torch.tensor(numbers, dtype=getattr(torch, kind)) for kind, numbers in value]


def result_of(value: Any) -> Any:
    """What the user gets: a tensor, or a tuple of tensors."""
    totals = unplain(value["totals"]) or []
    return tuple(totals) if value["is_tuple"] else totals[0]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model as it is evaluated, each of its modules left as it was."""
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in was_training:
            module.training = mode


@dataclass(slots=True)
class Evaluation:
    """What is to be summed over a dataset.

    Attributes
    ----------
    is_tuple
        Whether the function returns several values; known after it was called.
    """

    model: nn.Module
    function: Callable[[nn.Module, Any], Any]
    fetch: Fetch
    n_samples: int
    batch_size: int
    device: torch.device
    is_tuple: bool = False

    def over(self, virtual_ranks: range, n_virtual_ranks: int, advance: Callable[[int], None]) -> TreeSum[Totals]:
        """The sums over what belongs to these virtual ranks.

        Parameters
        ----------
        advance
            Told how many more virtual ranks are done, those of the other workers included as far as can be guessed.
        """
        tree: TreeSum[Totals] = TreeSum(n_virtual_ranks, add)
        shards = cut(self.n_samples, n_virtual_ranks)
        n_told = 0
        with evaluating(self.model):
            for n_done, i in enumerate(virtual_ranks, start=1):
                tree.put_leaf(i, self._over_shard(shards[i]))
                n_now = n_done * n_virtual_ranks // len(virtual_ranks)
                advance(n_now - n_told)
                n_told = n_now
        return tree

    def _over_shard(self, samples: range) -> Totals:
        totals: Totals = None
        for first in range(samples.start, samples.stop, self.batch_size):
            numbers = torch.arange(first, min(first + self.batch_size, samples.stop))
            result = self.function(self.model, moved(self.fetch.together(numbers), self.device))
            self.is_tuple = isinstance(result, tuple)
            totals = add(totals, totals_of(result))
        return totals
