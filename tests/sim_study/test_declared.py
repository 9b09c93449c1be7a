"""One file of jobs and of a cluster is run live, and simulated."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.daemon import earlier_runs
from punctual.request import input_file
from punctual.request.cluster_file import nodes_of, read_cluster
from punctual.request.jobs_file import read_jobs
from punctual.sim.assembly import jobs_of, trace_jobs
from punctual.sim.job import SimJob
from punctual.sim.one_run import simulate_one
from punctual.sim.scenario import Scenario, keys_in

JOBS = f"""
[[job]]
name = "share"
program = "{sys.executable} train.py"
deadline = "30m"
cores = "0.5..2"
work = "20m"
env = {{ KEY = "secret" }}

[[job]]
name = "workers"
program = "{sys.executable} train.py"
deadline = "40m"
submit-at = "5m"
workers = "1..4"
cores-per-worker = 1
steps = 3000
work = "30m"

[[job]]
name = "next"
program = "{sys.executable} train.py"
cores = 2
work = "1m"
after = "share"
"""
CLUSTER = """
[[cluster]]
nodes = ["a", "b"]
cores = 4.0
device = "fast"
"""


def written(folder: Path, text: str, name: str = "both.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def scenario(path: Path, **keys: Any) -> Scenario:
    return Scenario.of({**keys_in(path), "policies": ["promises-first"], "seeds": 1, **keys})


def simulated(text: str, folder: Path) -> list[SimJob]:
    return jobs_of(scenario(written(folder, text + CLUSTER)), 0)


def test_a_job_declares_the_same_live_and_simulated(tmp_path: Path) -> None:
    path = written(tmp_path, JOBS + CLUSTER)
    told: list[str] = []
    (capacity,) = {node.capacity for node in nodes_of(read_cluster(path))}
    live = {job.spec.id: job.spec for job in read_jobs(path, time.monotonic(), capacity, tell=told.append)}
    for job in jobs_of(scenario(path), 0):
        spec, other = job.spec, live[job.spec.id]
        assert (spec.floor, spec.ceiling, spec.counts, spec.worker) == (
            other.floor, other.ceiling, other.counts, other.worker,
        )  # fmt: skip
        assert (spec.profile, spec.controller, spec.model, spec.after) == (
            other.profile, other.controller, other.model, other.after,
        )  # fmt: skip
        assert (spec.deadline_s or 0.0) == pytest.approx(other.deadline_s or 0.0)
        assert spec.work_core_s == other.work_core_s
    assert told == [f"`submit_at` in '{path}' is for simulations: all its jobs are submitted now"]


def test_the_jobs_of_a_file_end_in_time_and_cost_what_they_declare(tmp_path: Path) -> None:
    study = scenario(written(tmp_path, JOBS + CLUSTER))
    _, record = simulate_one(study, study.policies[0], 0, lambda _: None)
    share, following, workers = (
        next(job for job in record.jobs() if job.id == name) for name in ("share", "next", "workers")
    )
    assert share.landed_at is not None
    assert 0.8 * 1800 < share.landed_at <= 1800
    assert share.core_s == pytest.approx(1200, rel=0.01)
    assert following.started_at == pytest.approx(share.landed_at, abs=1.0)
    assert workers.submitted_at == 300
    assert workers.on_time


def test_jobs_and_cluster_may_lie_in_files_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, JOBS, "jobs.toml")
    written(tmp_path, CLUSTER, "cluster.toml")
    apart = scenario(written(tmp_path, 'trace = "jobs.toml"\ncluster = "cluster.toml"'))
    together = scenario(written(tmp_path, JOBS + CLUSTER, "other.toml"))
    assert apart == together
    first = scenario(written(tmp_path, 'cluster = "cluster.toml"\ntrace = {file = "jobs.toml", jobs = 2}'))
    assert [job.spec.id for job in jobs_of(first, 0)] == ["share", "next"]


def test_a_scenario_is_written_without_what_runs_its_jobs_and_read_again(tmp_path: Path) -> None:
    study = scenario(written(tmp_path, JOBS + CLUSTER))
    text = study.toml()
    assert "secret" not in text
    assert "train.py" not in text
    assert scenario(written(tmp_path, text, "again.toml")) == study


AFTER = """
[[job]]
name = "b"
after = "a"
cores = 1
work = "1m"

[[job]]
name = "a"
submit_at = "5m"
cores = 1
work = "1m"

[[job]]
name = "c"
submit_at = "10m"
after = ["a", "b"]
cores = 1
work = "1m"
"""


def test_a_job_runs_after_one_further_down_and_is_submitted_no_earlier(tmp_path: Path) -> None:
    study = scenario(written(tmp_path, AFTER + CLUSTER))
    _, record = simulate_one(study, study.policies[0], 0, lambda _: None)
    a, b, c = sorted(record.jobs(), key=lambda job: job.id)
    assert {job.status for job in (a, b, c)} == {"finished"}
    assert (a.submitted_at, b.submitted_at, c.submitted_at) == (300, 300, 600), "counted from the beginning"
    assert b.started_at == a.landed_at


def test_a_job_alone_is_submitted_when_it_says(tmp_path: Path) -> None:
    study = scenario(written(tmp_path, '[[job]]\nname = "a"\nwork = "1m"\nsubmit_at = "1h"\n' + CLUSTER))
    _, record = simulate_one(study, study.policies[0], 0, lambda _: None)
    assert [job.submitted_at for job in record.jobs()] == [3600.0]


@pytest.mark.parametrize(
    ("trace", "kept"),
    [({"jobs": 1}, {"a": ()}), ({"start_s": 500.0}, {"c": ()}), ({"jobs": 2}, {"a": (), "b": ("a",)})],
)
def test_a_job_that_is_left_out_is_not_waited_for(tmp_path: Path, trace: dict[str, Any], kept: dict[str, Any]) -> None:
    study = scenario(written(tmp_path, AFTER + CLUSTER), trace=trace)
    assert {job.spec.id: job.spec.after for job in jobs_of(study, 0)} == kept


@pytest.mark.parametrize(
    ("text", "must"), [(AFTER.replace('"a"\nsubmit', '"x"\nsubmit'), "must name jobs submitted with it"),
                       (AFTER.replace('submit_at = "5m"', 'after = "c"'), "must not lead back")]
)  # fmt: skip
def test_after_jobs_that_never_finish_is_refused_as_it_is_live(tmp_path: Path, text: str, must: str) -> None:
    with pytest.raises(InvalidSpec, match=must):
        simulated(text, tmp_path)


def test_nodes_have_the_names_that_the_file_gives_them(tmp_path: Path) -> None:
    assert [node.id for node in nodes_of(scenario(written(tmp_path, JOBS + CLUSTER)).cluster)] == ["a", "b"]


def test_a_load_is_one_of_cores_where_there_are_no_devices(tmp_path: Path) -> None:
    """1200 + 1800 + 60 core-seconds on eight cores, half of what they have in 765 s."""
    jobs = trace_jobs(scenario(written(tmp_path, JOBS + CLUSTER), trace={"load": 0.5}), 0)
    assert [(job.id, job.submitted_at) for job in jobs] == [("share", 0), ("next", 0), ("workers", pytest.approx(765))]


@pytest.mark.parametrize(
    ("text", "must", "where"),
    [
        ("cores = 2", "must say what it costs", "job 1, `work`"),
        ("work = '1m'\ndeadline = '18:00'", "must be a duration", "job 1, `deadline`"),
        ("work = '1m'\ncores = 8", "must not ask for more", "job 1, `cores`"),
        ("work = '1m'\nsubmit_at = 5", "a duration must be", "job 1, `submit_at`"),
        ("work = '1m'\nsubmit_at = 'x'", "a duration must be", "job 1, `submit_at`"),
        ("work = '1m'\nworkers = 2", "needs the number of its steps", "job 1, `steps`"),
    ],
)
def test_what_cannot_be_simulated_is_told_with_its_place(tmp_path: Path, text: str, must: str, where: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        simulated(f"[[job]]\n{text}\n", tmp_path)
    assert must in caught.value.must
    assert where in caught.value.where


@pytest.mark.parametrize(
    ("keys", "must"),
    [
        ({"cluster": "4x8"}, "must say its cores"),
        ({"scaling": "rigid"}, "must go with tables `[[job]]`"),
        ({"trace": {"generator": "poisson"}}, "jobs must be declared or come from a trace"),
    ],
)
def test_what_does_not_go_with_jobs_is_refused(tmp_path: Path, keys: dict[str, Any], must: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        jobs_of(scenario(written(tmp_path, JOBS + CLUSTER), **keys), 0)
    assert must in caught.value.must


def test_both_readers_know_the_same_keys() -> None:
    assert set(input_file.KEYS) == set(Scenario.model_fields) | {"machines"}  # which are of live clusters alone


def test_jobs_with_servers_are_simulated_too(tmp_path: Path) -> None:
    text = "[[job]]\nworkers = '1..2'\nservers = '1..2'\ncores_per_worker = 1\nsteps = 100\nwork = '100s'\n"
    (job,) = simulated(text, tmp_path)
    assert job.truth.rate_sps(job.spec.profile[0].shape) == pytest.approx(job.spec.profile[0].rate_sps)


def test_what_an_earlier_job_took_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_runs, "run_like", {"earlier": SimpleNamespace(used_core_s=12.5)}.__getitem__)
    study = scenario(written(tmp_path, "[[job]]\nlike = 'earlier'\ncores = 1\n" + CLUSTER))
    assert study.job == ({"cores": 1, "work": "12.5s"},)
    assert jobs_of(study, 0)[0].spec.work_core_s == 12.5
