"""Blocks of parameters on servers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.optim.server_balance import Piece, balance

SIZES = st.lists(st.floats(0, 1e3, allow_subnormal=False) | st.floats(0, 1.0, allow_subnormal=False), max_size=30)


def loads(servers: list[list[Piece]]) -> list[float]:
    return [sum(piece.size for piece in server) for server in servers]


def test_a_block_larger_than_the_mean_is_cut() -> None:
    assert loads(balance([10.0, 1.0, 1.0], 3)) == pytest.approx([4.0, 4.0, 4.0], abs=1.0)
    assert len([piece for server in balance([10.0, 1.0, 1.0], 3) for piece in server if piece.i_block == 0]) == 3


def test_blocks_fill_servers_up_to_the_mean() -> None:
    """Mean 6: 5 and 4 on empty servers, 2 beside the 4 and not beside the 5, 1 beside the 5."""
    assert [[piece.size for piece in server] for server in balance([2.0, 5.0, 1.0, 4.0], 2)] == [[5.0, 1.0], [4.0, 2.0]]


def test_tiny_blocks_level_the_requests() -> None:
    """A server with one large block has one request: it gets the tiny ones."""
    servers = balance([90.0, 30.0, 30.0, 30.0, *([0.1] * 4)], 2)
    assert [len(server) for server in servers] == [4, 4]
    assert sorted(Counter(piece.size for server in servers for piece in server).items()) == [
        (0.1, 4),
        (30.0, 3),
        (90.0, 1),
    ]


@given(SIZES, st.integers(1, 6))
def test_everything_is_kept_once_and_nobody_has_much_too_much(sizes: list[float], n: int) -> None:
    servers = balance(sizes, n)
    kept: Counter[int] = Counter()
    for server in servers:
        for piece in server:
            kept[piece.i_block] += piece.size  # type: ignore[assignment]
    assert len(servers) == n
    assert [kept[i] for i in range(len(sizes))] == pytest.approx(sizes)
    mean = sum(sizes) / n
    tiny = sum(size for size in sizes if size < 0.01 * mean)
    assert max(loads(servers)) <= 2 * mean * (1 + 1e-9) + tiny


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="there must be a server"):
        balance([1.0], 0)
    with pytest.raises(InvalidSpec, match="must not be negative"):
        balance([-1.0], 1)
