"""Jobs with parameter servers: the law, its fit to a table, and the rule that makes them."""

import os
import tracemalloc
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import fmean

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.job import shape_of
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.papers.optimus.optimus_jobs import Optimus
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.papers.optimus.served_speeds import fitted, read_laws
from punctual.papers.optimus.with_servers import PlacedServed
from punctual.papers.simulations import record_of
from punctual.request import input_file
from punctual.request.cluster_file import NodeGroup, nodes_of
from punctual.sim.scaling import sim_jobs
from punctual.sim.speed_laws import Served
from punctual.sim.traces import TraceJob

LAW = Served(compute_s=4.0, fixed_s=0.5, link_s=1.0, worker_s=0.25, server_s=0.125)
TRACE = TraceJob(
    id="a", submitted_at=3.0, n_gpus=1, duration_s=600.0, model_name="resnet-50", deadline_s=900.0,
    parameters={"worker_gpus": 1.0, "worker_cores": 2.0, "server_cores": 3.0, "server_memory_bytes": 5.0},
)  # fmt: skip
PROFILES = Path(os.environ.get("PUNCTUAL_DATA", "nowhere")) / "profiles" / "dl2" / "config_speed.txt"


def table(path: Path, law: Served, n_most: int = 4) -> str:
    """A file in which a made-up model has exactly the speeds of the law."""
    lines = []
    for w in range(1, n_most + 1):
        for p in range(1, n_most + 1):
            each = law.rate_sps(Shape(n_workers=w, n_servers=p)) / w
            lines.append(repr(("resnet-50", "dist_sync", 32, p, w, [each] * w, [1.0], [0.5])))
    path.write_text("\n".join([*lines, repr(("resnet-50", "dist_sync", 32, 9, 2, [1.0, 0.0], [1.0], [0.5])), ""]))
    return str(path)


def test_the_law_by_hand() -> None:
    """4/2 + 0.5 + 1 * 2/4 + 0.25 * 2 + 0.125 * 4 = 4 seconds."""
    assert LAW.rate_sps(Shape(n_workers=2, n_servers=4)) == pytest.approx(1 / 4.0)
    assert LAW.rate_sps(Shape(n_workers=2)) == LAW.rate_sps(Shape(n_workers=2, n_servers=2))
    assert LAW.rate_sps(Shape(n_workers=0)) == 0.0
    assert LAW.scaled(2.0).rate_sps(Shape(n_workers=2, n_servers=4)) == pytest.approx(1 / 8.0)


WORKER, SERVER = Resources(cores=2.0, gpus=1, memory_bytes=4), Resources(cores=3.0, memory_bytes=5)


@pytest.mark.parametrize(
    ("parts", "load"),
    [
        ([(2, 4)], 0.0),  # all on one node
        ([(1, 2), (1, 2)], 1 / 4),  # evenly on two: each server has one worker elsewhere
        ([(2, 1), (0, 3)], 2 / 4),  # servers alone on a node serve both
    ],
)
def test_only_what_leaves_a_node_is_transmitted(parts: list[tuple[int, int]], load: float) -> None:
    """4/2 + 0.5 + load + 0.25 * 2 + 0.125 * 4 seconds."""
    allocation = {NodeId(f"n{i}"): WORKER * w + SERVER * p for i, (w, p) in enumerate(parts)}
    truth = PlacedServed(law=LAW, worker=WORKER, server=SERVER)
    assert truth.placed_sps(allocation) == pytest.approx(1 / (3.5 + load))
    assert truth.rate_sps(Shape(n_workers=2, n_servers=4)) == LAW.rate_sps(Shape(n_workers=2, n_servers=4))


def test_the_busiest_server_is_waited_for() -> None:
    allocation = {NodeId("n"): WORKER * 2 + SERVER * 4}
    everywhere = PlacedServed(law=LAW, worker=WORKER, server=SERVER, inside_is_free=False)
    assert everywhere.placed_sps(allocation) == LAW.rate_sps(Shape(n_workers=2, n_servers=4))
    unbalanced = replace(everywhere, busiest_frac=(1.0, 0.6))
    assert unbalanced.placed_sps(allocation) == pytest.approx(1 / (3.5 + 2 * 0.6))
    with pytest.raises(InvalidSpec, match="told from servers by their devices"):
        PlacedServed(law=LAW, worker=SERVER, server=SERVER)


@pytest.mark.parametrize("times", [(-1.0, 2.0), (0.0, 0.0), (float("nan"), 1.0)])
def test_a_law_has_no_negative_times(times: tuple[float, float]) -> None:
    with pytest.raises(InvalidSpec, match="must be finite"):
        Served(*times)


def test_a_fit_finds_the_law_back(tmp_path: Path) -> None:
    """... and leaves out the run in which a worker stood still."""
    found = read_laws(table(tmp_path / "speeds.txt", LAW))["resnet-50"]
    for w, p in [(1, 1), (3, 2), (12, 5)]:
        shape = Shape(n_workers=w, n_servers=p)
        assert found.rate_sps(shape) == pytest.approx(LAW.rate_sps(shape), rel=1e-6)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "other").write_text("a,b,c\n")
    for name, count in [("none", "0"), ("infinite", "1e999")]:
        (tmp_path / name).write_text(f"('net', 'dist_sync', 32, {count}, 1, [1.0])\n")
    for name, complaint in [
        ("empty", "must have some"), ("other", "line 1"), ("missing", "can be read"), ("none", "line 1"),
        ("infinite", "line 1"),
    ]:  # fmt: skip
        with pytest.raises(InvalidSpec, match=complaint):
            read_laws(tmp_path / name)


def test_a_table_of_any_size_is_refused_before_it_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "N_CHARACTERS_MAX", 1_000_000)
    (tmp_path / "speeds").touch()
    os.truncate(tmp_path / "speeds", 1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSpec, match="at most 1,000,000 characters"):
            read_laws(tmp_path / "speeds")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not PROFILES.is_file(), reason="PUNCTUAL_DATA names no folder with the published table")
def test_published_speeds_are_fitted_within_a_tenth() -> None:
    from punctual.papers.optimus.served_speeds import _tables

    for model, rates in _tables(PROFILES).items():
        law = fitted(rates)
        errors = [abs(rate / law.rate_sps(Shape(n_workers=w, n_servers=p)) - 1) for (w, p), rate in rates.items()]
        assert fmean(errors) < 0.1, model


def test_with_what_it_had_a_job_takes_what_it_took() -> None:
    for n_gpus, steps in [(1, None), (4, 5_000.0)]:
        job = ParameterServers(link_frac=0.5).job(replace(TRACE, n_gpus=n_gpus, work_steps=steps))
        shape = Shape(n_workers=n_gpus, n_servers=n_gpus)
        assert job.work_steps / job.truth.rate_sps(shape) == pytest.approx(600.0)
        assert job.work_steps == job.spec.work_steps == (steps or 600.0)


def test_what_is_declared() -> None:
    spec = ParameterServers(n_workers_max=3, n_servers_max=2, startup_s=20.0, restarts=True).job(TRACE).spec
    assert (spec.worker, spec.server) == (Resources(2.0, 1), Resources(3.0, 0, 5))
    assert spec.worker_counts() == (1, 2, 3)
    assert (spec.floor, spec.ceiling) == (Resources(2.0, 1), Resources(12.0, 3, 10))
    assert (spec.startup_s, spec.resize_cost_s, spec.deadline_s) == (20.0, 20.0, 900.0)
    assert spec.model == "parameter-server"
    for one in spec.profile:  # as the scheduler would name what it measures itself
        amount = Resources(2.0, 1) * one.shape.n_workers + Resources(3.0, 0, 5) * one.shape.n_servers
        assert shape_of(spec, {nodes_of([NodeGroup()])[0].id: amount}, {}) == one.shape


def test_some_numbers_are_tried_the_least_first_and_none_twice() -> None:
    for seed in range(5):
        shapes = [one.shape for one in ParameterServers(n_samples=8).job(TRACE, seed).spec.profile]
        assert len(set(shapes)) == 8
        assert (shapes[0].n_workers, shapes[0].n_servers) == (1, 1)
    assert len(ParameterServers(knows="recorded").job(TRACE).spec.profile) == 1
    assert ParameterServers(knows="nothing").job(TRACE).spec.profile == ()
    assert len(ParameterServers(n_workers_max=1, n_servers_max=2).job(TRACE).spec.profile) == 2


def test_declared_speeds_are_wrong_by_so_much() -> None:
    job = ParameterServers(n_samples=40, speed_error_frac=0.2).job(TRACE)
    errors = [one.rate_sps / job.truth.rate_sps(one.shape) - 1 for one in job.spec.profile]
    assert {round(error, 9) for error in errors} == {-0.2, 0.2}


def test_declared_sizes_are_wrong_and_the_work_is_not() -> None:
    job = ParameterServers(size_sigma=0.5).job(TRACE)
    assert job.work_steps == 600.0
    assert abs(log((job.spec.work_steps or 0.0) / 600.0)) > 1e-3


def test_a_law_from_a_table(tmp_path: Path) -> None:
    rule = ParameterServers(tables=table(tmp_path / "speeds.txt", LAW))
    truth = rule.job(TRACE).truth
    one, other = (truth.rate_sps(Shape(n_workers=w, n_servers=p)) for w, p in [(1, 1), (4, 2)])
    assert other / one == pytest.approx(
        LAW.rate_sps(Shape(n_workers=4, n_servers=2)) / LAW.rate_sps(Shape(n_workers=1))
    )
    for name in (None, "unknown"):
        with pytest.raises(InvalidSpec, match="model"):
            rule.job(replace(TRACE, model_name=name))


def test_a_trace_must_say_what_they_hold() -> None:
    with pytest.raises(InvalidSpec, match="what a server holds"):
        ParameterServers().job(replace(TRACE, parameters={"worker_gpus": 1.0}))


@pytest.mark.parametrize(
    "wrong", [{"n_samples": 0}, {"n_workers_max": 0}, {"speed_error_frac": 1.0}, {"compute_frac": -1.0}]
)
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        ParameterServers(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["optimus", "dominant-share", "tetris"])
def test_a_whole_simulation(policy: str) -> None:
    """With the model that learns: all jobs land, and no faster than their law allows."""
    rule = ParameterServers(startup_s=20.0, restarts=True, n_workers_max=4, n_servers_max=4)
    jobs = list(
        sim_jobs(Optimus(n_jobs=6, duration_low_s=600.0, duration_high_s=6_000.0, horizon_s=900.0).jobs(1), rule)
    )
    cluster = [NodeGroup(n_nodes=3, gpus=4, cores=32.0, memory_gib=160.0)]
    record = record_of(jobs, cluster, registry.load("policies", policy)())
    for job, course in zip(jobs, record.jobs(), strict=True):
        assert course.jct_s is not None
        pairs = [(w, p) for w in range(1, 5) for p in range(1, 13)]
        best = max(job.truth.rate_sps(Shape(n_workers=w, n_servers=p)) for w, p in pairs)
        assert course.jct_s >= job.work_steps / best + 20.0 - 1e-6
