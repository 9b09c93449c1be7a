"""Which server keeps which part of a model's parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

#: Parameters smaller than this share of the mean load are counted as requests only: their size hardly matters.
_TINY_FRAC = 0.01


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
    """Share parameters among servers so that none has much more to send, or many more requests, than others.

    Parameters larger than the mean load are cut into equal slices; then, the largest first, each goes where it leaves
    the least room below the mean, or to the least load if it is too large for all; a tiny one goes to the server with
    the fewest slices [optimus2018].

    Parameters
    ----------
    sizes
        Elements of each parameter.
    n_servers
        At least 1.

    Returns
    -------
    list of lists of Slice
        What each server keeps, in the order of the parameters.
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
    if size < _TINY_FRAC * mean:
        return min(everyone, key=lambda i: (len(servers[i]), loads[i], i))
    fitting = [i for i in everyone if loads[i] + size <= mean * (1 + 1e-9)]
    if fitting:
        return max(fitting, key=lambda i: (loads[i], -i))
    return min(everyone, key=lambda i: (loads[i], i))
