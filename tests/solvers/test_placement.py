"""Where workers go: against trying everything on small clusters."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from punctual.core.ids import NodeId
from punctual.core.resources import Resources, total
from punctual.solvers.placement import place

GPU = Resources(gpus=1)


def free(**gpus: int) -> dict[NodeId, Resources]:
    return {NodeId(name): Resources(gpus=n) for name, n in gpus.items()}


def on(allocation: dict[NodeId, Resources] | None) -> dict[str, int] | None:
    return None if allocation is None else {str(node): int(amount.gpus) for node, amount in allocation.items()}


def test_the_smallest_gap_that_is_large_enough() -> None:
    assert on(place(3, GPU, free(a=8, b=4, c=2))) == {"b": 3}


def test_equal_gaps_in_order_of_their_names() -> None:
    assert on(place(2, GPU, free(b=4, a=4))) == {"a": 2}


def test_the_fewest_nodes_and_the_rest_where_it_fits_best() -> None:
    assert on(place(9, GPU, free(a=3, b=8, c=1, d=2))) == {"b": 8, "c": 1}


def test_too_many() -> None:
    assert place(4, GPU, free(a=1, b=2)) is None
    assert place(1, GPU, {}) is None


def test_every_kind_of_hardware_counts() -> None:
    worker = Resources(cores=2, gpus=1, memory_bytes=10)
    rooms = {NodeId("a"): Resources(3, 4, 100), NodeId("b"): Resources(8, 4, 25)}
    assert place(2, worker, rooms) == {"b": worker * 2}
    assert place(3, worker, rooms) == {"b": worker * 2, "a": worker}
    assert place(4, worker, rooms) is None


def test_cores_that_fit_but_for_rounding() -> None:
    assert Resources(cores=0.3).n_times(Resources(cores=0.1)) == 3


def test_parts_of_gpus_that_fit_but_for_rounding() -> None:
    assert set(place(10, Resources(gpus=0.1), free(a=2, b=1)) or {}) == {"b"}


def test_nothing_fits_everywhere_at_no_count() -> None:
    assert Resources(cores=4.0).n_times(Resources(gpus=1)) == 0


_ROOMS = st.dictionaries(
    st.sampled_from([NodeId(name) for name in "abcde"]),
    st.builds(Resources, st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)),
)
_WORKERS = st.builds(Resources, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)).filter(bool)


@given(st.integers(1, 12), _WORKERS, _ROOMS)
def test_on_the_fewest_nodes_if_at_all(n: int, worker: Resources, rooms: dict[NodeId, Resources]) -> None:
    allocation = place(n, worker, rooms)
    sizes = [room.n_times(worker) for room in rooms.values()]
    enough = [k for k in range(1, len(sizes) + 1) for some in combinations(sizes, k) if sum(some) >= n]
    if allocation is None:
        assert not enough
        return
    assert len(allocation) == min(enough)
    assert total(allocation.values()) == worker * n
    assert all(amount and amount.fits_in(rooms[node]) for node, amount in allocation.items())
    assert place(n, worker, dict(reversed(rooms.items()))) == allocation
