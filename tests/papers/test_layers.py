"""Steps layer by layer: the formulas against event-by-event simulations, tables of layers, and the jobs that have them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.speed import Shape
from punctual.papers.optimus.with_servers import PlacedServed
from punctual.papers.simulations import record_of
from punctual.papers.smd.layered import LayeredServers
from punctual.papers.smd.layers import (
    LayeredServed,
    LayerProfile,
    LayerTimes,
    Overlap,
    priority_s,
    read_table,
    sequential_s,
    wait_free_s,
    write_table,
)
from punctual.request.cluster_file import NodeGroup
from punctual.sim import parts
from punctual.sim.choice import made
from punctual.sim.traces import TraceJob

_SECONDS = st.integers(0, 12)
#: Seconds and bytes of three layers.
LAYERS = (
    LayerProfile("conv", 0.01, 0.03, 8e6),
    LayerProfile("norm", 0.02, 0.04, 2e6),
    LayerProfile("linear", 0.03, 0.05, 5e7),
)
TIMES = LayerTimes.of(LAYERS, 1e9)
TRACE = TraceJob(
    id="a", submitted_at=3.0, n_gpus=1, duration_s=600.0, work_steps=100.0, model_name="ResNet-50",
    parameters={"worker_gpus": 1.0, "worker_cores": 2.0, "server_cores": 3.0},
)  # fmt: skip
OVERLAPS: tuple[Overlap, ...] = ("sequential", "wait-free", "priority")


@st.composite
def layer_times(draw: st.DrawFn) -> LayerTimes:
    """Whole seconds, so that a simulation in whole seconds is exact."""
    n_layers = draw(st.integers(1, 6))
    column = st.lists(_SECONDS.map(float), min_size=n_layers, max_size=n_layers).map(tuple)
    return LayerTimes(draw(column), draw(column), draw(column))


def pass_forward(forward_s: tuple[float, ...], arrived: list[float]) -> float:
    now = 0.0
    for seconds, arrival in zip(forward_s, arrived, strict=True):
        now = max(now, arrival) + seconds
    return now


def ready_at(times: LayerTimes) -> list[float]:
    return [sum(times.backward_s[i:]) for i in range(len(times.backward_s))]


def first_come(jobs: list[tuple[float, float]]) -> list[float]:
    """One link, jobs (ready, seconds) in the order given: when each has passed."""
    free, ended = 0.0, []
    for ready, seconds in jobs:
        free = max(free, ready) + seconds
        ended.append(free)
    return ended


def simulated_wait_free(times: LayerTimes) -> float:
    order = range(len(times.forward_s) - 1, -1, -1)
    ready = ready_at(times)
    pushed = first_come([(ready[i], times.transfer_s[i]) for i in order])
    pulled = first_come([(at, times.transfer_s[i]) for at, i in zip(pushed, order, strict=True)])
    # The published recursion begins the forward pass when the first layer has come, which comes last.
    return pass_forward(times.forward_s, pulled[::-1])


def simulated_priority(times: LayerTimes, slice_s: float) -> float:
    """Second by second: the link takes a second of the lowest layer that is ready and has some left."""
    ready, left = ready_at(times), list(times.transfer_s)
    pushed = [at if seconds == 0 else 0.0 for at, seconds in zip(ready, left, strict=True)]
    now = 0.0
    while any(left):
        layer = next((i for i, at in enumerate(ready) if at <= now and left[i] > 0), None)
        now += 1
        if layer is not None:
            left[layer] -= 1
            pushed[layer] = now
    return pass_forward(times.forward_s, [at + slice_s for at in pushed])


@settings(deadline=None)
@given(layer_times())
def test_wait_free_is_what_a_simulation_finds(times: LayerTimes) -> None:
    assert wait_free_s(times) == simulated_wait_free(times)


@settings(deadline=None)
@given(layer_times(), st.sampled_from([0.0, 1.0, 2.5]))
def test_priority_is_what_a_simulation_finds(times: LayerTimes, slice_s: float) -> None:
    transferring = LayerTimes(times.forward_s, times.backward_s, tuple(one + 1 for one in times.transfer_s))
    assert priority_s(transferring, slice_s) == simulated_priority(transferring, slice_s)


@given(layer_times())
def test_overlap_is_never_slower_and_never_faster_than_its_parts(times: LayerTimes) -> None:
    computing_s = sum(times.forward_s) + sum(times.backward_s)
    assert computing_s <= priority_s(times) <= wait_free_s(times) <= sequential_s(times)


def test_the_published_recursion_by_hand() -> None:
    times = LayerTimes((1.0, 1.0), (2.0, 3.0), (4.0, 5.0))
    # Layer 2 is ready at 3, pushed until 8, pulled until 13; layer 1 ready at 5, pushed until 12, pulled until 17.
    assert wait_free_s(times) == 19
    assert sequential_s(times) == 5 + 18 + 2


def test_lemma_two_while_the_link_is_busy_throughout() -> None:
    forward, backward, transfer = (1.0, 2.0, 1.0), (1.0, 1.0, 1.0), (4.0, 5.0, 6.0)
    first_s = sum(backward) + transfer[0] + 0.5
    arrived = [first_s + sum(transfer[1 : j + 1]) - sum(backward[:j]) for j in range(3)]
    assert priority_s(LayerTimes(forward, backward, transfer), 0.5) == pass_forward(forward, arrived)


@pytest.mark.parametrize(
    ("overlap", "slice_s", "step_s"),
    [
        ("sequential", 0.0, [0.3015, 0.3325, 0.29, 0.113, 0.66875]),
        ("wait-free", 0.0, [0.2215, 0.2775, 0.2525, 0.0905, 0.6110416666666666]),
        ("priority", 0.001, [0.1905, 0.1635, 0.146, 0.059, 0.3435]),
    ],
)
def test_steps_take_what_the_benchmark_s_model_said(overlap: Overlap, slice_s: float, step_s: list[float]) -> None:
    """Figures of `src/punctual/papers/smd/layered_model.py` before it took its formulas from here."""
    law = LayeredServed(times=TIMES, overlap=overlap, slice_s=slice_s, worker_s=0.001, server_s=0.0005)
    shapes = [Shape(n_workers=w, n_servers=p) for w, p in ((1, 1), (2, 1), (4, 2), (4, 8), (16, 3))]
    assert [1 / law.rate_sps(shape) for shape in shapes] == pytest.approx(step_s, rel=1e-12)


@settings(deadline=None)
@given(layer_times(), st.sampled_from(OVERLAPS), st.integers(1, 8), st.integers(1, 8))
def test_servers_and_a_faster_link_never_make_a_step_longer(
    times: LayerTimes, overlap: Overlap, w: int, p: int
) -> None:
    law = LayeredServed(
        times=replace(times, forward_s=tuple(1 + time_s for time_s in times.forward_s)), overlap=overlap
    )
    step_s = law.step_s(w, p, w / p)
    rounding = 1e-9 * step_s
    assert law.step_s(w, p + 1, w / (p + 1)) <= step_s + rounding
    assert law.times.computing_s / w <= law.step_s(w, p, 0.5 * w / p) + rounding <= step_s + 2 * rounding
    assert law.step_s(w, p, 0.0) == pytest.approx(law.times.computing_s / w)


def test_a_law_is_scaled_and_knows_where_nothing_runs() -> None:
    law = LayeredServed(times=TIMES, worker_s=0.001)
    shape = Shape(n_workers=2, n_servers=3)
    assert law.scaled(2.0).scaled(3.0).rate_sps(shape) == pytest.approx(law.rate_sps(shape) / 6)
    assert law.rate_sps(Shape(n_workers=0)) == 0.0
    assert law.rate_sps(Shape(n_workers=2)) == law.rate_sps(Shape(n_workers=2, n_servers=2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": LayerTimes((), (), ())},
        {"times": LayerTimes((1.0,), (1.0, 1.0), (1.0,))},
        {"times": LayerTimes((0.0,), (0.0,), (1.0,))},
        {"times": LayerTimes((1.0,), (1.0,), (float("inf"),))},
        {"times": LayerTimes((1e308,), (1e308,), (1.0,))},
        {"overlap": "prority"},
        {"slice_s": -1.0},
        {"worker_s": float("nan")},
    ],
)
def test_times_that_make_no_network_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        LayeredServed(**{"times": TIMES, **wrong})


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_table(tmp_path / "net.csv", LAYERS)
    assert read_table(tmp_path / "net.csv") == LAYERS


HEADER = "forward_s,backward_s,parameter_bytes\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no column `forward_s`"),
        ("a,b\n1,2\n", "no column `forward_s`"),
        ("forward_s,parameter_bytes\n1,2\n", "no column `backward_s`"),
        (HEADER, "0 rows"),
        (HEADER + "0,0,5\n", "not all zero"),
        (HEADER + "1,1,5\n1,-1,5\n", "`backward_s` must be .*'-1' in row 2"),
        (HEADER + "1,1\n", "`parameter_bytes` must be .*'' in row 1"),
        (HEADER + "nan,1,5\n", "'nan' in row 1"),
        (HEADER + "1,1e999,5\n", "'1e999' in row 1"),
        (HEADER + "1,1,many\n", "'many' in row 1"),
        (HEADER + "1,1,5\n" * 1001, "1001 rows"),
        ('layer,forward_s,backward_s,parameter_bytes\n"a', "row 1"),
        (None, "can be read"),
    ],
)
def test_a_bad_table_is_told_with_its_file(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "net.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSpec, match=complaint) as told:
        made(parts.kind("scaling", "layered"), {"tables": str(path)}, "scaling")
    assert "net.csv" in told.value.got
    assert told.value.where == "`scaling`"
    assert told.value.remedy


def test_a_folder_without_tables_and_parameters_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="must hold MODEL"):
        LayeredServers(tables=str(tmp_path))
    write_table(tmp_path / "net.csv", LAYERS)
    wrongs: tuple[dict[str, Any], ...] = (
        {"bandwidth_bytes_per_s": 0.0}, {"bandwidth_bytes_per_s": 1e-320}, {"overlap": "none"}, {"n_samples": 0},
    )  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(InvalidSpec):
            LayeredServers(tables=str(tmp_path), **wrong)


def test_a_job_takes_what_it_took_and_declares_what_its_layers_say(tmp_path: Path) -> None:
    write_table(tmp_path / "net.csv", LAYERS)
    rule = LayeredServers(tables=str(tmp_path / "net.csv"), bandwidth_bytes_per_s=1e9, overlap="priority")
    job = rule.job(replace(TRACE, n_gpus=2))
    recorded = Shape(n_workers=2, n_servers=2)
    assert job.work_steps / job.truth.rate_sps(recorded) == pytest.approx(600.0)
    law = LayeredServed(times=TIMES, overlap="priority")
    shape = Shape(n_workers=7, n_servers=3)
    ratio = law.rate_sps(shape) / law.rate_sps(recorded)
    assert job.truth.rate_sps(shape) / job.truth.rate_sps(recorded) == pytest.approx(ratio)
    declared = {(seen.shape.n_workers, seen.shape.n_servers): seen.rate_sps for seen in job.spec.profile}
    assert set(declared) == {(w, p) for w in range(1, 17) for p in range(1, 17)}
    assert declared[7, 3] == job.truth.rate_sps(shape)
    assert job.spec.model == "tabulated"
    placed = LayeredServers(tables=str(tmp_path), placed=True).job(replace(TRACE, model_name="net"))
    assert isinstance(placed.truth, PlacedServed)


def test_each_model_of_a_folder_has_its_own_layers(tmp_path: Path) -> None:
    write_table(tmp_path / "resnet-50.csv", LAYERS)
    write_table(tmp_path / "small.csv", LAYERS[:1])
    rule = LayeredServers(tables=str(tmp_path))
    one_worker, many = Shape(n_workers=1), Shape(n_workers=8, n_servers=1)

    def slowdown(model: str) -> float:
        truth = rule.job(replace(TRACE, model_name=model)).truth
        return truth.rate_sps(one_worker) / truth.rate_sps(many)

    assert slowdown("ResNet-50") > slowdown("small")
    with pytest.raises(InvalidSpec, match="'vgg'"):
        rule.job(replace(TRACE, model_name="vgg"))


@pytest.mark.parametrize("policy", ["smd", "smd-exact", "optimus"])
@pytest.mark.parametrize(("bandwidth_bytes_per_s", "scarce"), [(1e8, "servers"), (1e11, "workers")])
def test_policies_schedule_with_it(policy: str, bandwidth_bytes_per_s: float, scarce: str, tmp_path: Path) -> None:
    """A job alone gets more of what its layers wait for, and nearly the best numbers of workers and servers."""
    write_table(tmp_path / "net.csv", LAYERS)
    rule = LayeredServers(
        tables=str(tmp_path / "net.csv"), bandwidth_bytes_per_s=bandwidth_bytes_per_s, worker_s=1e-3, server_s=1e-3
    )
    job = rule.job(TRACE)
    cluster = [NodeGroup(n_nodes=2, gpus=16, cores=80.0, memory_gib=160.0)]
    (course,) = record_of([job], cluster, registry.load("policies", policy)()).jobs()
    assert course.jct_s is not None
    best = max(job.truth.rate_sps(Shape(n_workers=w, n_servers=p)) for w in range(1, 17) for p in range(1, 17))
    assert course.jct_s * best <= 1.1 * job.work_steps
    n_devices = course.device_s / course.jct_s
    assert n_devices < 3 if scarce == "servers" else n_devices > 10
