"""Small blocks make way for large ones: by hand, and for all that powers of two can do."""

from hypothesis import given
from hypothesis import strategies as st

from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.papers.elasticflow.buddy import Block, Move, moves_for

GPU = Resources(gpus=1)
Nodes = dict[NodeId, list[Block[str]]]


def nodes(**on_nodes: str) -> Nodes:
    """Blocks on each node: "a2 b1" is one of two devices and one of one."""
    found: Nodes = {}
    for node, text in on_nodes.items():
        found[NodeId(node)] = [Block(word[0], NodeId(node), GPU * int(word[1:])) for word in text.split()]
    return found


def free_of(blocks: Nodes, size: int) -> dict[NodeId, Resources]:
    return {node: Resources(gpus=size - sum(one.amount.gpus for one in found)) for node, found in blocks.items()}


def moves(n: int, blocks: Nodes, size: int, held: dict[NodeId, Resources] | None = None) -> list[Move[str]] | None:
    return moves_for(n, GPU, free_of(blocks, size), dict.fromkeys(blocks, GPU * size), blocks, held)


def named(found: list[Move[str]] | None) -> list[tuple[str, str]] | None:
    return None if found is None else [(str(block.id), str(node)) for block, node in found]


def test_what_fits_moves_nobody() -> None:
    assert named(moves(2, nodes(m="a2", n="b1"), 4)) == []


def test_the_node_on_which_least_has_to_move_is_cleared() -> None:
    assert named(moves(4, nodes(m="a2", n="b1", o="c4"), 4)) == [("b", "m")]


def test_a_block_makes_way_for_one_that_makes_way() -> None:
    # Two devices have to leave m, and find them in one piece only once d has left n.
    assert named(moves(8, nodes(m="a2", n="b4 c2 d1", o="e4 f2 g1"), 8)) == [("d", "o"), ("a", "n")]


def test_more_than_a_node() -> None:
    assert named(moves(8, nodes(m="a1", n="", o="c2 d1"), 4)) == [("a", "o")]


def test_what_is_too_much_or_cannot_move() -> None:
    blocks = nodes(m="a3", n="b3")
    assert moves(4, blocks, 4) is None
    assert moves_for(2, GPU, free_of(blocks, 4), dict.fromkeys(blocks, GPU * 4), {}) is None
    assert moves_for(1, GPU, {}, {}, {}) is None


def test_own_room_is_for_the_workers_only() -> None:
    # It grows from two devices on m to four. Another one cannot move to where it still is.
    blocks = nodes(m="a1 x2", n="b2 c1")
    del blocks[NodeId("m")][1]
    free = {NodeId("m"): GPU, NodeId("n"): GPU}
    found = moves_for(4, GPU, free, dict.fromkeys(free, GPU * 4), blocks, {NodeId("m"): GPU * 2})
    assert named(found) == [("a", "n")]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, int, Nodes]:
    """Nodes of a power of two of devices with powers of two on them, and one for which enough is free."""
    size = draw(st.sampled_from([2, 4, 8]))
    blocks: Nodes = {}
    for i in range(draw(st.integers(1, 6))):
        node, n_free = NodeId(f"n{i}"), size
        blocks[node] = []
        for n in draw(st.lists(st.sampled_from([1, 2, 4]), max_size=8)):
            if n <= n_free:
                blocks[node].append(Block(f"{i}.{len(blocks[node])}", node, GPU * n))
                n_free -= n
    n_free = sum(int(room.gpus) for room in free_of(blocks, size).values())
    wanted = [n for n in (1, 2, 4, 8, 16, 32) if n <= n_free]
    return draw(st.sampled_from(wanted)) if wanted else 0, size, blocks


@given(clusters())
def test_powers_of_two_always_find_a_place_in_one_piece(cluster: tuple[int, int, Nodes]) -> None:
    n, size, blocks = cluster
    if n == 0:
        return
    found = moves(n, blocks, size)
    assert found is not None
    free = {node: room.gpus for node, room in free_of(blocks, size).items()}
    for block, target in found:
        assert free[target] >= block.amount.gpus
        free[target] -= block.amount.gpus
        free[block.node] += block.amount.gpus
    whole = [room for room in free.values() if room >= min(n, size)]
    assert len(whole) >= max(1, n // size)
