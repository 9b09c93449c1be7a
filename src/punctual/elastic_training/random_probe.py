"""Find out whether virtual ranks may go through a model together."""

import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from punctual.elastic_training.dropout import SEED_MAX, RankDropout
from punctual.elastic_training.random_state import mixed


class RandomProbe:
    """Watches one pass through the model for random numbers drawn other than for dropout.

    Parameters
    ----------
    seeds
        Seeds of the pass, set just before.
    """

    def __init__(self, dropout: RankDropout, *seeds: int) -> None:
        self._dropout = dropout
        self._n_draws = dropout.n_draws
        self._seed = mixed(*seeds)
        self._others = _others()

    def drew(self) -> bool:
        """Whether the pass has changed a random state in another way than dropout does."""
        state = torch.get_rng_state()
        return not any(torch.equal(state, expected) for expected in self._expected()) or self._others != _others()

    def _expected(self) -> Iterator[Tensor]:
        """Yield the random states that dropout alone may have left; draws of a repeated pass are taken back."""
        generator = torch.Generator().manual_seed(self._seed)
        yield generator.get_state()
        for _ in range(self._dropout.n_draws - self._n_draws):
            torch.randint(SEED_MAX, (), generator=generator)
            yield generator.get_state()


def _others() -> list[Any]:
    """Return the random states that dropout does not touch."""
    numpy = sys.modules.get("numpy")
    states: list[Any] = [random.getstate()]
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    if torch.cuda.is_initialized():
        states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return states
