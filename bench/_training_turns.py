"""Steps of several trainings in one process, in turns, so that all see the same machine."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of all scores, of whole samples or of their tokens."""
    return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def turns_of(loops: Sequence[Iterator[None]], n_turns: int) -> list[list[tuple[float, float]]]:
    """Take a step of each loop in each turn; return its seconds by wall and processor.

    An elastic loop replaces torch's dropout, which the other loops must not have.
    """
    own, turns = _dropout(), []
    dropouts = [own] * len(loops)
    for _ in range(n_turns):
        turn = []
        for i, loop in enumerate(loops):
            functional.dropout, functional.scaled_dot_product_attention = dropouts[i]
            begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
            next(loop)
            turn.append((time.perf_counter() - begun_s, time.process_time() - begun_cpu_s))
            dropouts[i] = _dropout()
        turns.append(turn)
    functional.dropout, functional.scaled_dot_product_attention = own
    return turns


def _dropout() -> tuple[Any, Any]:
    return functional.dropout, functional.scaled_dot_product_attention
