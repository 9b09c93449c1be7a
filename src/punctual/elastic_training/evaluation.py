"""Sums over a held-out set, each worker taking its virtual ranks' part of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from punctual.elastic_training.fetching import Fetch, moved
from punctual.elastic_training.random_state import apart
from punctual.elastic_training.virtual_ranks import cut
from punctual.tracking.complaint import invalid

#: Totals of the values that the user's function returns; None: of no sample.
Totals = list[Tensor] | None


def totals_of(result: Any) -> list[Tensor]:
    """Convert the user's result for a batch to tensors that can be summed without losing digits."""
    parts = result if isinstance(result, tuple) else (result,)
    try:
        return [_wide(torch.as_tensor(part).detach().cpu()) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid(
            "the function of an evaluation must return a number, a tensor, or a tuple of them",
            ", ".join(type(part).__name__ for part in parts),
            "`run.evaluate`",
            "Return sums and counts over the batch's samples, such as (n_right, sum_of_losses).",
        ) from error


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64, copy=True)


def add(left: Totals, right: Totals) -> Totals:
    if left is None or right is None:
        return right if left is None else left
    shapes, before = ([tuple(part.shape) for part in parts] for parts in (right, left))
    if shapes != before:
        raise invalid(
            "the function of an evaluation must return numbers, or tensors of the same shapes, for each batch",
            f"{shapes} after {before}",
            "`run.evaluate`",
            "Return sums and counts over the batch, and not something of each sample.",
        )
    return [part + other for part, other in zip(left, right, strict=True)]


def plain(totals: Totals) -> Any:
    """Encode totals for JSON."""
    if totals is None:
        return None
    return [(str(total.dtype).removeprefix("torch."), total.tolist()) for total in totals]


def unplain(value: Any) -> Totals:
    """Decode totals that `plain` encoded."""
    if value is None:
        return None
    return [torch.tensor(numbers, dtype=getattr(torch, kind)) for kind, numbers in value]


def result_of(value: Any) -> Any:
    """Return the result for the user: a tensor, or a tuple of tensors."""
    totals = unplain(value["totals"]) or []
    return tuple(totals) if value["is_tuple"] else totals[0]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation inside the block, and restore each module's mode afterwards."""
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in was_training:
            module.training = mode


#: Is told how many batches this worker has made, and of how many.
Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Evaluation:
    """Sum of a function over a dataset, which is cut into as many shards as there are virtual ranks.

    `is_tuple`: whether the function returns several values; known after it was called.
    """

    model: nn.Module
    function: Callable[[nn.Module, Any], Any]
    fetch: Fetch
    n_samples: int
    batch_size: int
    device: torch.device
    n_virtual_ranks: int
    is_tuple: bool = False

    def n_batches(self, virtual_ranks: range | None = None) -> int:
        """Number of batches of these virtual ranks; None: of all."""
        shards = self._shards(range(self.n_virtual_ranks) if virtual_ranks is None else virtual_ranks)
        return sum(-(-len(shard) // self.batch_size) for shard in shards)

    def over(self, virtual_ranks: range, tell: Tell, n_batches_max: int | None = None) -> list[Totals]:
        """Return the sum over the shard of each of these virtual ranks; `tell` is called after each batch.

        `n_batches_max`: ends after so many batches; None: after all.
        """
        sums: list[Totals] = []
        n_done, n_mine = 0, self.n_batches(virtual_ranks)
        with apart(), evaluating(self.model):
            for i, shard in zip(virtual_ranks, self._shards(virtual_ranks), strict=True):
                self.fetch.seed(i)
                totals: Totals = None
                for numbers in self._batches(shard):
                    if n_done == n_batches_max:
                        return sums
                    totals = add(totals, self._totals(numbers))
                    n_done += 1
                    tell(n_done, n_mine)
                sums.append(totals)
        return sums

    def _shards(self, virtual_ranks: range) -> list[range]:
        return cut(self.n_samples, self.n_virtual_ranks)[virtual_ranks.start : virtual_ranks.stop]

    def _batches(self, shard: range) -> Iterator[Tensor]:
        for first in range(shard.start, shard.stop, self.batch_size):
            yield torch.arange(first, min(first + self.batch_size, shard.stop))

    def _totals(self, numbers: Tensor) -> list[Tensor]:
        result = self.function(self.model, moved(self.fetch.together(numbers), self.device))
        self.is_tuple = isinstance(result, tuple)
        return totals_of(result)


@dataclass(slots=True)
class EvaluationProgress:
    """Progress of an evaluation for Punctual: batches of all workers, estimated from this worker's.

    * `n_batches`: batches of the whole evaluation.
    * `advance`: called with the number of further batches.
    * `stamp`: called with each batch.
    """

    n_batches: int
    advance: Callable[[int], None]
    stamp: Callable[[], None]
    _n_told: int = 0

    def of(self, n_done: int, n_mine: int) -> None:
        """Report progress, `n_done` of a worker's `n_mine` batches; batches that are repeated count once."""
        self.stamp()
        n_now = n_done * self.n_batches // n_mine
        if n_now > self._n_told:
            self.advance(n_now - self._n_told)
            self._n_told = n_now

    def but_the_last(self, n_done: int, n_mine: int) -> None:
        """Report progress but of the last batch: an evaluation ends with its result, which takes the others."""
        self.of(min(n_done, n_mine - 1), n_mine)

    def end(self) -> None:
        """Report that the result is there."""
        if self.n_batches > self._n_told:
            self.advance(self.n_batches - self._n_told)
