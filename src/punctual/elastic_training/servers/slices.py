"""Assignment of a model's parameters, and of its optimizer's state, to servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


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
    """Share parameters among servers so that no server has much more data, or many more requests, than others.

    Parameters larger than the mean load are cut into equal slices; then, the largest first, each goes where it leaves
    the least room below the mean, or to the least load if it is too large for all; a tiny one goes to the server with
    the fewest slices [optimus2018].

    * `sizes`: elements of each parameter.
    * `n_servers`: number of servers, at least 1.

    Returns slices of each server, in the order of the parameters.
    """
    mean = sum(sizes) / n_servers
    slices = [one for i, size in enumerate(sizes) for one in _cut(i, size, mean)]
    servers: list[list[Slice]] = [[] for _ in range(n_servers)]
    loads = [0] * n_servers
    for one in sorted(slices, key=lambda one: (-one.n_elements, one.i_parameter, one.start)):
        i = _chosen(one.n_elements, mean, loads, servers)
        servers[i].append(one)
        loads[i] += one.n_elements
    return [sorted(kept, key=lambda one: (one.i_parameter, one.start)) for kept in servers]


def _cut(i_parameter: int, size: int, mean: float) -> list[Slice]:
    n = ceil(size / mean - 1e-9) if size > mean > 0 else 1
    return [Slice(i_parameter, size * i // n, size * (i + 1) // n) for i in range(n)]


def _chosen(size: int, mean: float, loads: Sequence[int], servers: Sequence[Sequence[Slice]]) -> int:
    everyone = range(len(loads))
    # Parameters smaller than this share of the mean load are counted as requests only: their size hardly matters.
    if size < 0.01 * mean:
        return min(everyone, key=lambda i: (len(servers[i]), loads[i], i))
    fitting = [i for i in everyone if loads[i] + size <= mean * (1 + 1e-9)]
    if fitting:
        return max(fitting, key=lambda i: (loads[i], -i))
    return min(everyone, key=lambda i: (loads[i], i))


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
