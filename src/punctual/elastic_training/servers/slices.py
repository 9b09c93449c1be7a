"""Assignment of a model's parameters, and of its optimizer's state, to servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from punctual.elastic_training.virtual_ranks import cut


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements `start` to `end` of parameter `i_parameter`, flattened."""

    i_parameter: int
    start: int
    end: int

    @property
    def n_elements(self) -> int:
        return self.end - self.start


def shared_out(sizes: Sequence[int], n_servers: int) -> list[list[Slice]]:
    """Share parameters among servers: laid end to end, each server has an equally long piece of them.

    * `sizes`: elements of each parameter.
    * `n_servers`: number of servers, at least 1.

    Returns slices of each server, in the order of the parameters.
    """
    bounds = [0, *accumulate(sizes)]
    return [
        [
            Slice(i, max(piece.start, start) - start, min(piece.stop, end) - start)
            for i, (start, end) in enumerate(pairwise(bounds))
            if max(piece.start, start) < min(piece.stop, end)
        ]
        for piece in cut(bounds[-1], n_servers)
    ]


#: State of an optimizer for one slice: numbers, tensors of the slice's length, and tensors of no dimension.
SliceState = dict[str, Any]


def cut_out(optimizer: Optimizer, parameters: Sequence[Tensor], slices: Sequence[Slice]) -> list[SliceState]:
    """Copy the state of `optimizer` for these slices of its parameters; no two copies share a tensor."""
    return [
        {name: _part(value, one) for name, value in optimizer.state[parameters[one.i_parameter]].items()}
        for one in slices
    ]


def put_in(
    optimizer: Optimizer, parameters: Sequence[Tensor], slices: Sequence[Slice], states: Sequence[SliceState]
) -> None:
    """Put slices' states back into the optimizer, the inverse of `cut_out`; slices may come from several servers."""
    for one, state in zip(slices, states, strict=True):
        parameter = parameters[one.i_parameter]
        whole = optimizer.state[parameter]
        for name, value in state.items():
            if not _is_sliced(value):
                whole[name] = value
                continue
            if name not in whole:
                whole[name] = torch.empty(parameter.shape, dtype=value.dtype)
            whole[name].view(-1)[one.start : one.end] = value


def _part(value: Any, one: Slice) -> Any:
    if not isinstance(value, Tensor):
        return value
    return (value.reshape(-1)[one.start : one.end] if _is_sliced(value) else value).clone()


def _is_sliced(value: Any) -> bool:
    """Whether a value has an element for each one of the parameter."""
    return isinstance(value, Tensor) and value.dim() > 0
