"""Which parameter server of a job keeps which of its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from punctual.core.errors import InvalidSpec

#: Blocks smaller than this share of the mean load are counted as requests only: their size hardly matters.
_TINY_FRAC = 0.01


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of parameters, or a part of one: `size` of the parameters of block `i_block`."""

    i_block: int
    size: float


def balance(block_sizes: Sequence[float], n_servers: int) -> list[list[Piece]]:
    """Share blocks of parameters among servers so that none has much more to send, or many more requests, than others.

    Parameters
    ----------
    block_sizes
        Of each layer's parameters, in any unit, not negative.
    n_servers
        How many servers there are, at least one.

    Returns
    -------
    list of lists of Piece
        What each server keeps.

    Raises
    ------
    InvalidSpec
        A size is negative, or there are no servers.

    Notes
    -----
    *Formula.* The mean load is the sum of the sizes over the servers. Blocks larger than it are cut into equal pieces of
    at most the mean. Then, the largest first: a piece of at least a hundredth of the mean goes to the server on which it
    leaves the least room below the mean, or if it is too large for all, to the one with the least load; a smaller one
    goes to the server with the fewest pieces.

    *Source.* [optimus2018], parameter assignment.

    *Differs.* (1) Cut into equal pieces; the source cuts off pieces of the mean. (2) Of servers with equally few pieces
    the one with the least load takes the next.

    *Properties.* Deterministic. No load is over twice the mean, but for the tiny pieces. O(pieces · servers).

    Examples
    --------
    >>> [sum(piece.size for piece in server) for server in balance([6.0, 2.0, 1.0, 1.0], 2)]
    [5.0, 5.0]
    """
    if n_servers < 1 or not all(size >= 0 for size in block_sizes):
        raise InvalidSpec(
            "there must be a server, and sizes must not be negative", f"{n_servers} servers, {list(block_sizes)}",
            "a job's parameters", "Give at least one server, and sizes of zero or more.",
        )  # fmt: skip
    mean = sum(block_sizes) / n_servers
    pieces = [piece for i, size in enumerate(block_sizes) for piece in _cut(i, size, mean)]
    servers: list[list[Piece]] = [[] for _ in range(n_servers)]
    loads = [0.0] * n_servers
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.i_block)):
        i = _chosen(piece.size, mean, loads, servers)
        servers[i].append(piece)
        loads[i] += piece.size
    return servers


def _cut(i_block: int, size: float, mean: float) -> list[Piece]:
    n = ceil(size / mean - 1e-9) if size > mean > 0 else 1
    return [Piece(i_block, size / n)] * n


def _chosen(size: float, mean: float, loads: Sequence[float], servers: Sequence[Sequence[Piece]]) -> int:
    everyone = range(len(loads))
    if size < _TINY_FRAC * mean:
        return min(everyone, key=lambda i: (len(servers[i]), loads[i], i))
    fitting = [i for i in everyone if loads[i] + size <= mean * (1 + 1e-9)]
    if fitting:
        return max(fitting, key=lambda i: (loads[i], -i))
    return min(everyone, key=lambda i: (loads[i], i))
