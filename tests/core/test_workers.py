"""Jobs made of workers and servers: which amounts they can run with, and what these are."""

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, shape_of
from punctual.core.resources import Resources
from punctual.core.speed import Shape

GPU = Resources(gpus=1)
A, B = NodeId("a"), NodeId("b")


def spec(*, floor: int = 1, ceiling: int = 8, counts: tuple[int, ...] = (), server: Resources | None = None) -> JobSpec:
    extra = server * 4 if server else Resources()
    return JobSpec(
        id=JobId("j"), worker=GPU, server=server, counts=counts, floor=GPU * floor, ceiling=GPU * ceiling + extra
    )


def test_counts_lie_between_floor_and_ceiling() -> None:
    assert spec(floor=2, ceiling=4).worker_counts() == (2, 3, 4)
    assert spec(floor=2, ceiling=6, counts=(1, 2, 4, 8)).worker_counts() == (2, 4)


@pytest.mark.parametrize(
    ("counts", "must"),
    [((4, 2), "ascending"), ((0, 1), "ascending"), ((16,), "between floor and ceiling")],
)
def test_counts_that_make_no_sense_are_refused(counts: tuple[int, ...], must: str) -> None:
    with pytest.raises(InvalidSpec, match=must):
        spec(counts=counts)


def test_a_server_needs_a_worker() -> None:
    with pytest.raises(InvalidSpec, match="server"):
        JobSpec(id=JobId("j"), ceiling=GPU, server=Resources(cores=1))


def test_the_shape_counts_workers_nodes_and_kinds() -> None:
    shape = shape_of(spec(), {A: GPU * 4, B: GPU * 2}, {A: "V100", B: "T4"})
    assert shape == Shape(n_workers=6, n_nodes=2, device="T4+V100")


def test_workers_and_servers_are_told_apart_by_what_they_hold() -> None:
    server = Resources(cores=2, memory_bytes=1 << 30)
    made = spec(server=server)
    assert made.parts_of(GPU * 3 + server * 2) == (3, 2)
    assert made.parts_of(GPU * 3) is None, "no server"
    assert made.parts_of(GPU * 3 + Resources(cores=2)) is None, "half a server"
    assert shape_of(made, {A: GPU * 3 + server, B: server}, {}).n_servers == 2


def test_parts_without_servers_are_the_allowed_counts() -> None:
    made = spec(counts=(1, 2, 4))
    assert [made.parts_of(GPU * n) for n in (1, 2, 3, 4)] == [(1, 0), (2, 0), None, (4, 0)]


def test_an_amount_reads_well() -> None:
    assert str(Resources(cores=1, gpus=2, memory_bytes=3 << 30)) == "1 core, 2 GPUs, 3 GiB"
    assert str(Resources()) == "nothing"
