"""An optimizer's state between its whole form, as checkpoints have it, and the slices of it that servers keep."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from punctual.client.elastic._shares import Slice

#: What an optimizer keeps for one slice: numbers, tensors of the slice's length, and tensors of no dimension.
SliceState = dict[str, Any]


def cut_out(optimizer: Optimizer, parameters: Sequence[Tensor], slices: Sequence[Slice]) -> list[SliceState]:
    """What `optimizer` keeps for these slices of its parameters; copies, of which no two are the same tensor."""
    return [
        {name: _cut(value, one) for name, value in optimizer.state[parameters[one.i_parameter]].items()}
        for one in slices
    ]


def put_in(
    optimizer: Optimizer, parameters: Sequence[Tensor], slices: Sequence[Slice], states: Sequence[SliceState]
) -> None:
    """The inverse of `cut_out`; slices of a parameter may come from several servers."""
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


def _cut(value: Any, one: Slice) -> Any:
    if not isinstance(value, Tensor):
        return value
    return (value.reshape(-1)[one.start : one.end] if _is_sliced(value) else value).clone()


def _is_sliced(value: Any) -> bool:
    """Whether it has an element for each one of the parameter."""
    return isinstance(value, Tensor) and value.dim() > 0
