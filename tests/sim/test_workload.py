"""Jobs of a trace by each rule: what was recorded is kept."""

import os
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.sim.job import SimJob
from punctual.sim.measured import SpeedTables
from punctual.sim.scaling import ScalingRule, sim_jobs
from punctual.sim.scaling.cores import Cores as CoreShares
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.measured import Measured as MeasuredTables
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.traces import TraceJob

TRACE = TraceJob(
    id="a", submitted_at=7.0, n_gpus=8, duration_s=600.0, model_name="bert", batch_size=64, deadline_s=900.0,
    cores=32.0, memory_bytes=80.0, weight=2.0,
)  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> str:
    (tmp_path / "bert.csv").write_text("global_batch_size,1,2,4,8,16\n64,1.0,1.8,3.0,4.0,0\n128,0.6,1.1,2.0,3.0,\n")
    (tmp_path / "notes.csv").write_text("something,else\n1,2\n")
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar" / "placements-aws.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,32,0.5,0.1\n2,32,0.8,0.2\n11,32,1.0,0.3\n"
    )
    (tmp_path / "cifar" / "placements-dgx.csv").write_text("local_bsz,step_time,sync_time,placement\n32,0.1,0.1,1\n")
    return str(tmp_path)


def run_s(job: SimJob, n: int, n_nodes: int = 1, device: str = "") -> float:
    worker = job.spec.worker or Resources()
    shape = Shape(n_workers=n, cores=worker.cores * n, n_nodes=n_nodes, device=device)
    return job.work_steps / job.truth.rate_sps(shape)


@pytest.mark.parametrize("steps", [None, 5_000.0])
@pytest.mark.parametrize("rule", [Rigid(), Elastic(), Elastic(counts="all", communication_frac=0.1)])
def test_with_what_it_had_a_job_takes_what_it_took(rule: ScalingRule, steps: float | None) -> None:
    for n_gpus in (1, 3, 8, 16):
        job = rule.job(replace(TRACE, n_gpus=n_gpus, work_steps=steps))
        assert run_s(job, n_gpus, n_nodes=-(-n_gpus // 8)) == pytest.approx(600.0)
        assert n_gpus in job.spec.worker_counts()
        assert job.work_steps == job.spec.work_steps == (steps or 600.0)


def test_a_rigid_job_has_one_count_and_declares_its_speed() -> None:
    job = Rigid(startup_s=5.0).job(TRACE)
    spec = job.spec
    assert (spec.counts, spec.floor, spec.ceiling) == ((8,), Resources(gpus=8), Resources(gpus=8))
    assert (spec.deadline_s, spec.weight, spec.startup_s, spec.controller) == (900.0, 2.0, 5.0, None)
    assert [(seen.shape.n_workers, seen.rate_sps) for seen in spec.profile] == [(8, 1.0)]
    assert job.submitted_at == 7.0


def test_a_share_of_a_device_counts_as_a_whole_one() -> None:
    assert Rigid().job(replace(TRACE, n_gpus=0.25)).spec.counts == (1,)
    assert Rigid().job(replace(TRACE, n_gpus=2.5)).spec.counts == (3,)


def test_a_job_without_devices_takes_cores() -> None:
    assert Rigid().job(replace(TRACE, n_gpus=0)).spec.ceiling == Resources(cores=32.0)
    assert Elastic().job(replace(TRACE, n_gpus=0, cores=None)).spec.ceiling == Resources(cores=1.0)


def test_cores_and_memory_are_shared_out_among_workers_if_wanted() -> None:
    assert Rigid(cores_and_memory=True).job(TRACE).spec.worker == Resources(4.0, 1, 10)


def test_a_best_effort_job_has_no_deadline() -> None:
    assert Rigid().job(replace(TRACE, best_effort=True)).spec.deadline_s is None


def test_speeds_by_kind_of_device_are_kept_and_declared() -> None:
    durations = {"V100": 100.0, "K80": 400.0}
    job = Rigid().job(replace(TRACE, device_durations_s=durations))
    for kind, duration_s in durations.items():
        assert run_s(job, 8, device=kind) == pytest.approx(duration_s)
    assert run_s(job, 8, device="A100") == pytest.approx(400.0)
    assert run_s(job, 8, device="K80+V100") == pytest.approx(400.0)
    declared = {seen.shape.device: seen.rate_sps for seen in job.spec.profile}
    assert declared["V100"] == pytest.approx(job.work_steps / 100.0)


def test_an_elastic_job_has_powers_of_two_and_what_it_had() -> None:
    assert Elastic().job(replace(TRACE, n_gpus=3)).spec.counts == (1, 2, 3, 4, 8)
    assert Elastic(counts="all", least=2, most_factor=2.0).job(replace(TRACE, n_gpus=3)).spec.counts == (2, 3, 4, 5, 6)


def test_the_trace_may_say_the_range() -> None:
    trace = replace(TRACE, parameters={"n_gpus_min": 2.0, "n_gpus_max": 16.0})
    assert Elastic().job(trace).spec.counts == (2, 4, 8, 16)


def test_more_devices_are_faster_with_less_and_less_gain() -> None:
    job = Elastic(communication_frac=0.02).job(TRACE)
    times_s = [run_s(job, n) for n in (1, 2, 4, 8)]
    gains = [one / other for one, other in pairwise(times_s)]
    assert 2.0 > gains[0] > gains[1] > gains[2] > 1.0
    assert run_s(job, 8, n_nodes=2) > run_s(job, 8)


@pytest.mark.parametrize(("knows", "counts"), [("all", {1, 2, 4, 8, 16, 32}), ("recorded", {8}), ("nothing", set())])
def test_what_is_known_beforehand(knows: str, counts: set[int]) -> None:
    job = Elastic(knows=knows).job(TRACE)  # type: ignore[arg-type]
    assert {seen.shape.n_workers for seen in job.spec.profile} == counts
    assert all(seen.rate_sps == job.truth.rate_sps(seen.shape) for seen in job.spec.profile)


def test_a_job_that_restarts_declares_its_start_up_as_the_cost_of_a_resize() -> None:
    job = Elastic(restarts=True, startup_s=30.0, resize_cost_s=1.0).job(TRACE)
    assert (job.restarts, job.spec.resize_cost_s) == (True, 30.0)


def test_sizes_may_be_declared_wrongly_the_same_way_for_a_seed() -> None:
    traces = [replace(TRACE, id=f"job-{i}") for i in range(500)]
    rule = Rigid(size_sigma=0.5)
    jobs = list(sim_jobs(traces, rule, seed=3))
    assert jobs == list(sim_jobs(traces, rule, seed=3))
    assert jobs != list(sim_jobs(traces, rule, seed=4))
    errors = [log((job.spec.work_steps or 0.0) / job.work_steps) for job in jobs]
    assert mean(errors) == pytest.approx(0.0, abs=0.1)
    assert stdev(errors) == pytest.approx(0.5, abs=0.08)
    assert {job.work_steps for job in jobs} == {600.0}


def test_a_measured_job_has_the_table_s_speeds(tables: str) -> None:
    job = MeasuredTables(tables=tables).job(TRACE)
    assert job.spec.counts == (1, 2, 4, 8)
    assert run_s(job, 8) == pytest.approx(600.0)
    assert run_s(job, 1) == pytest.approx(2400.0)
    assert job.truth.rate_sps(Shape(n_workers=16)) == 0.0
    assert job.work_steps == pytest.approx(2400.0)


def test_the_nearest_batch_and_the_trace_s_own_steps_are_taken(tables: str) -> None:
    job = MeasuredTables(tables=tables).job(replace(TRACE, batch_size=120, work_steps=300.0))
    assert run_s(job, 8) == pytest.approx(100.0)


@pytest.mark.parametrize("knows", ["all", "recorded", "nothing"])
def test_what_jobs_of_one_table_declare_is_made_once_and_is_what_each_would_declare_alone(
    tables: str, knows: Any
) -> None:
    traces = [
        replace(TRACE, id=f"{model}-{batch}-{n}-{i}", model_name=model, batch_size=batch, n_gpus=n)
        for i in range(2)
        for model, batch in (("bert", 64), ("bert", 120), ("cifar", 32))
        for n in (1, 2, 8)
    ]
    rule = MeasuredTables(tables=tables, knows=knows)
    jobs = [rule.job(trace) for trace in traces]
    assert jobs == [MeasuredTables(tables=tables, knows=knows).job(trace) for trace in traces]
    assert all(one.spec.profile is other.spec.profile for one, other in zip(jobs[:9], jobs[9:], strict=True))


def test_placements_tell_nodes_and_kinds(tables: str) -> None:
    found = SpeedTables.read(tables).of("cifar", 32)
    assert found["T4"].rates == {(1, 1): 2.0, (2, 1): 2.5, (2, 2): 2.0}
    job = MeasuredTables(tables=tables).job(replace(TRACE, model_name="CIFAR", batch_size=32, n_gpus=2))
    assert job.truth.rate_sps(Shape(n_workers=1, device="A100")) == 10.0
    assert job.truth.rate_sps(Shape(n_workers=2, n_nodes=5, device="T4")) == 2.0
    assert run_s(job, 2, device="T4") == pytest.approx(600.0)


def test_a_model_that_was_not_measured_is_told(tables: str) -> None:
    with pytest.raises(InvalidSpec, match=r"'vgg'.*Known: bert, cifar"):
        MeasuredTables(tables=tables).job(replace(TRACE, model_name="vgg"))


def test_a_folder_without_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="must hold tables"):
        MeasuredTables(tables=str(tmp_path))


@pytest.mark.skipif("PUNCTUAL_DATA" not in os.environ, reason="PUNCTUAL_DATA does not name the published tables")
@pytest.mark.parametrize(
    "folder", ["elasticflow/throughputs_A100", "elasticflow/throughputs_T4", "sia", "pollux_osdi21"]
)
def test_published_tables_can_be_used(folder: str) -> None:
    tables = Path(os.environ["PUNCTUAL_DATA"]) / "profiles" / folder
    if not tables.exists():
        pytest.skip(f"{tables} is not there")
    rule = MeasuredTables(tables=str(tables))
    for model, rows in rule.read.rates.items():
        for batch in rows:
            job = rule.job(replace(TRACE, model_name=model, batch_size=batch, n_gpus=1))
            assert job.truth.rate_sps(Shape(n_workers=job.spec.counts[0], device="T4")) > 0


def test_a_share_of_cores_keeps_its_duration() -> None:
    trace = replace(TRACE, n_gpus=None, cores=0.5)
    job = CoreShares(most_factor=2.0).job(trace, controller="remaining-cost")
    assert job.work_steps / job.truth.rate_sps(Shape(cores=0.5)) == pytest.approx(600.0)
    assert (job.spec.floor, job.spec.ceiling) == (Resources(cores=0.1), Resources(cores=1.0))
    assert job.spec.controller == "remaining-cost"


@pytest.mark.parametrize("lacking", ["n_gpus", "duration_s"])
def test_what_the_trace_must_say_is_told(lacking: str) -> None:
    silent: dict[str, Any] = {lacking: None}
    with pytest.raises(InvalidSpec, match=r"the trace must say .* 'a'"):
        Rigid().job(replace(TRACE, **silent))


def test_rules_have_names_and_check_their_parameters() -> None:
    assert {
        "rigid",
        "elastic",
        "measured",
        "adaptive-batch",
        "parameter-server",
        "layered",
        "cores",
        "declared",
    } <= set(registry.names("scaling"))
    wrongs: tuple[dict[str, Any], ...] = (
        {"least": 0},
        {"most_factor": 0.5},
        {"startup_s": -1.0},
        {"communication_frac": -0.1},
        {"knows": "a"},
    )
    for wrong in wrongs:
        with pytest.raises(InvalidSpec):
            Elastic(**wrong)
