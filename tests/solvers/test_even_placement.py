"""Equal parts of a job on the fewest nodes, against trying everything on small clusters."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from punctual.core.ids import NodeId
from punctual.core.resources import NOTHING, Resources, total
from punctual.solvers.placement import Rooms, place_apart, place_evenly

WORKER, SERVER = Resources(cores=2, gpus=1), Resources(cores=3)

AMOUNTS = st.builds(Resources, st.integers(0, 12).map(float), st.integers(0, 4))
FREE = st.lists(AMOUNTS, min_size=1, max_size=5).map(
    lambda rooms: {NodeId(f"n{i}"): room for i, room in enumerate(rooms)}
)


def rooms(**amounts: tuple[float, int]) -> Rooms:
    return Rooms({NodeId(name): Resources(*amount) for name, amount in amounts.items()})


def test_one_node_if_one_can_hold_it_and_the_tightest_of_those() -> None:
    found = place_evenly(2, WORKER, 1, SERVER, rooms(a=(20, 8), b=(8, 2), c=(7, 2), d=(6, 2)))
    assert found == {NodeId("c"): Resources(7, 2)}


def test_the_same_number_of_both_on_each_node() -> None:
    """The example of the theorem: two servers and four workers on two nodes instead of three."""
    found = place_evenly(4, WORKER, 2, SERVER, rooms(a=(8, 3), b=(8, 3), c=(8, 3)))
    assert found == {NodeId("a"): Resources(7, 2), NodeId("b"): Resources(7, 2)}


def test_uneven_numbers_are_split_as_evenly_as_possible() -> None:
    found = place_evenly(3, WORKER, 3, SERVER, rooms(a=(7, 2), b=(8, 4)))
    # The node with the worker more has the server less.
    assert found == {NodeId("a"): Resources(7, 2), NodeId("b"): Resources(8, 1)}


def test_without_servers() -> None:
    assert place_evenly(4, Resources(gpus=1), 0, NOTHING, rooms(a=(0, 3), b=(0, 3), c=(0, 1))) == {
        NodeId("a"): Resources(gpus=2), NodeId("b"): Resources(gpus=2),
    }  # fmt: skip


def test_too_many() -> None:
    assert place_evenly(4, WORKER, 1, SERVER, rooms(a=(8, 1), b=(8, 1))) is None
    assert place_evenly(1, WORKER, 1, SERVER, Rooms({})) is None


@given(FREE, st.integers(1, 6), st.integers(0, 4))
def test_fits_where_it_is_put_and_holds_everything(free: dict[NodeId, Resources], w: int, p: int) -> None:
    found = place_evenly(w, WORKER, p, SERVER, Rooms(free))
    if found is not None:
        assert all(amount.fits_in(free[node]) for node, amount in found.items())
        assert total(found.values()) == WORKER * w + SERVER * p


@given(FREE, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_no_fewer_nodes_can_take_equal_parts(free: dict[NodeId, Resources], w: int, p: int, k: int) -> None:
    """With numbers that divide by k: if k nodes can each take their part, no more than k are used."""
    part = WORKER * w + SERVER * p
    possible = any(all(part.fits_in(free[node]) for node in nodes) for nodes in combinations(free, k))
    found = place_evenly(w * k, WORKER, p * k, SERVER, Rooms(free))
    assert not possible or (found is not None and len(found) <= k)


@given(FREE, st.lists(st.tuples(st.integers(0, 4), AMOUNTS), max_size=6), AMOUNTS)
def test_the_tightest_room_is_found_after_changes(
    free: dict[NodeId, Resources], changes: list[tuple[int, Resources]], wanted: Resources
) -> None:
    changed = Rooms(free)
    for i, amount in changes:
        node = NodeId(f"n{i % len(free)}")
        changed.change(node, amount)
        free[node] = amount
    fitting = [node for node in free if wanted.fits_in(free[node])]
    fitting.sort(key=lambda node: (free[node].gpus, free[node].cores, node))
    assert [changed.tightest(wanted, n) for n in (1, 2, 9)] == [fitting[:1], fitting[:2], fitting]
    assert changed.tightest(wanted, 2, fitting[:1]) == fitting[1:3]


@given(FREE, st.integers(1, 6), st.integers(0, 4))
def test_apart_fits_wherever_it_says(free: dict[NodeId, Resources], w: int, p: int) -> None:
    found = place_apart(w, WORKER, p, SERVER, free)
    if found is not None:
        assert all(amount.fits_in(free[node]) for node, amount in found.items())
        assert total(found.values()) == WORKER * w + SERVER * p


def test_apart_puts_servers_where_workers_cannot_be() -> None:
    free = {NodeId("gpu"): Resources(2, 1), NodeId("cpu"): Resources(3, 0)}
    assert place_apart(1, WORKER, 1, SERVER, free) == {NodeId("gpu"): WORKER, NodeId("cpu"): SERVER}
    assert place_apart(1, WORKER, 2, SERVER, free) is None
