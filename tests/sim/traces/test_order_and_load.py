"""Jobs in order from 0, and at the load that is wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.sim.traces import TraceJob
from punctual.sim.traces.load import core_s, offered_load, rescaled
from punctual.sim.traces.order import normalized


def job(name: str, at: float, n_gpus: float | None = 1, duration_s: float | None = 10.0) -> TraceJob:
    return TraceJob(id=name, submitted_at=at, n_gpus=n_gpus, duration_s=duration_s, deadline_s=20.0)


def test_in_order_of_submission_from_zero() -> None:
    found = normalized([job("c", 30.0), job("a", 5.0), job("b", 30.0)])
    assert [(one.id, one.submitted_at) for one in found] == [("a", 0.0), ("c", 25.0), ("b", 25.0)]
    assert found[0].deadline_s == 20.0


def test_no_jobs() -> None:
    assert normalized([]) == []


@given(st.lists(st.sampled_from(["a", "b", "a~2", "a~3", "b~2~2"]), max_size=12))
def test_every_name_once(names: list[str]) -> None:
    found = normalized(job(name, float(i)) for i, name in enumerate(names))
    assert len({one.id for one in found}) == len(names)
    assert all(one.id.startswith(name) for one, name in zip(found, names, strict=True))
    first = {name: names.index(name) for name in names}
    assert all(found[i].id == name for name, i in first.items())


def test_load() -> None:
    jobs = [job("a", 100.0, 2, 30.0), job("b", 150.0, 1, 40.0), job("c", 200.0, 0)]
    assert offered_load(jobs, 4) == 0.25


def test_a_share_of_a_device_takes_a_whole_one() -> None:
    jobs = [job("a", 0.0, 0.25, 40.0), job("b", 100.0, 1.5, 30.0)]
    assert offered_load(jobs, 1) == (1 * 40 + 2 * 30) / 100


def test_load_in_cores() -> None:
    with_cores = TraceJob(id="a", submitted_at=0.0, n_gpus=1, cores=3.0, duration_s=40.0)
    jobs = [with_cores, job("b", 50.0, 2, 30.0), job("c", 100.0, 0, 20.0)]
    assert offered_load(jobs, 4, core_s) == (3 * 40 + 2 * 30 + 1 * 20) / (4 * 100)
    assert offered_load(rescaled(jobs, 0.25, 4, core_s), 4, core_s) == 0.25


@pytest.mark.parametrize("load", [0.1, 0.9, 3.0])
def test_rescaling_gives_the_load_and_changes_nothing_else(load: float) -> None:
    jobs = [job("a", 150.0, 2, 30.0), job("b", 100.0, 1, 40.0), job("c", 120.0)]
    found = rescaled(jobs, load, 4)
    assert offered_load(found, 4) == pytest.approx(load)
    assert [one.id for one in found] == ["a", "b", "c"]
    assert found[1].submitted_at == 100.0
    gaps = [(one.submitted_at - 100.0) / (before.submitted_at - 100.0) for one, before in zip(found, jobs, strict=True) if before.id != "b"]  # fmt: skip
    assert gaps[0] == pytest.approx(gaps[1])
    assert {(one.duration_s, one.deadline_s) for one in found} == {(30.0, 20.0), (40.0, 20.0), (10.0, 20.0)}


@pytest.mark.parametrize(
    ("jobs", "load", "n_devices"),
    [
        ([], 1.0, 4),
        ([job("a", 1.0)], 1.0, 4),
        ([job("a", 1.0), job("b", 1.0)], 1.0, 4),
        ([job("a", 1.0), job("b", 2.0, None)], 1.0, 4),
        ([job("a", 1.0), job("b", 2.0, 1, None)], 1.0, 4),
        ([job("a", 1.0, 0), job("b", 2.0, 0)], 1.0, 4),
        ([job("a", 1.0), job("b", 2.0)], 0.0, 4),
        ([job("a", 1.0), job("b", 2.0)], float("nan"), 4),
        ([job("a", 1.0), job("b", 2.0)], 1.0, 0),
    ],
)
def test_where_there_is_no_load(jobs: list[TraceJob], load: float, n_devices: int) -> None:
    with pytest.raises(InvalidSpec):
        rescaled(jobs, load, n_devices)
