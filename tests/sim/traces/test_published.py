"""Every published trace at hand, each read twice: by its reader, and cell by cell."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isclose
from typing import Any

import pytest
from tests.sim.traces.published import NO_JOBS, PUBLISHED, files, folder, plain_rows

from punctual.sim.traces import TraceJob, read

Cells = Mapping[str, str]


def seconds_of_date(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def absolute_or_none(cells: Cells, deadline: str, submission: str) -> float | None:
    return float(cells[deadline]) - float(cells[submission]) if deadline in cells else None


#: Format -> field -> how the cells of a row say it.
SAID: Mapping[str, Mapping[str, Callable[[Cells], Any]]] = {
    "philly-csv": {
        "submitted_at": lambda row: seconds_of_date(row["timestamp"]),
        "duration_s": lambda row: float(row["duration"]),
        "n_gpus": lambda row: int(row["num_gpus"]),
        "device_s": lambda row: float(row["gpu_time"]),
        "user": lambda row: row["cluster"],
    },
    "itp": {
        "id": lambda row: row["job_id"],
        "submitted_at": lambda row: float(row["submission_time"]),
        "duration_s": lambda row: float(row["duration"]),
        "n_gpus": lambda row: int(row["num_gpu"]),
        "work_steps": lambda row: float(row["num_iteration"]) if "num_iteration" in row else None,
        "batch_size": lambda row: int(row["batch_size"]) if "batch_size" in row else None,
        "model_name": lambda row: row.get("model_name"),
        "deadline_s": lambda row: absolute_or_none(row, "deadline", "submission_time"),
    },
    "elasticflow": {
        "submitted_at": lambda row: float(row["submit_time"]),
        "duration_s": lambda row: float(row["duration"]),
        "work_steps": lambda row: float(row["iteration"]),
        "deadline_s": lambda row: absolute_or_none(row, "ddl", "submit_time"),
        "batch_size": lambda row: int(row["batch_size"]),
    },
    "pollux": {
        "id": lambda row: row["name"],
        "submitted_at": lambda row: float(row["time"]),
        "n_gpus": lambda row: int(row["num_replicas"]),
        "model_name": lambda row: row["application"],
        "batch_size": lambda row: int(row["batch_size"]),
        "duration_s": lambda row: None,
    },
    "gavel": {
        "submitted_at": lambda row: float(row["9"]),
        "n_gpus": lambda row: int(row["6"]),
        "work_steps": lambda row: int(row["5"]),
        "weight": lambda row: float(row["7"]),
        "model_name": lambda row: row["0"].split(" (")[0],
        "deadline_s": lambda row: None,
    },
    "shockwave": {
        "submitted_at": lambda row: float(row["11"]),
        "duration_s": lambda row: float(row["10"]),
        "n_gpus": lambda row: int(row["6"]),
        "work_steps": lambda row: int(row["5"]),
        "batch_size": lambda row: int(row["0"].split("batch size ")[1].rstrip(")")),
        "deadline_s": lambda row: None,
    },
    "chronus": {
        "submitted_at": lambda row: 60 * int(row["submit_time"]),
        "duration_s": lambda row: 60 * int(row["duration"]),
        "n_gpus": lambda row: int(row["num_gpu"]),
        "deadline_s": lambda row: 60 * int(row["expect_time_list"]) if row["job_type"] == "strict" else None,
        "best_effort": lambda row: row["job_type"] == "best",
        "user": lambda row: row["user"],
    },
    "hydra": {
        "submitted_at": lambda row: 0.0,
        "deadline_s": lambda row: None if row["ddl"] == "inf" else float(row["ddl"]),
        "device_durations_s": lambda row: {kind: float(row[kind]) for kind in ("A100", "V100", "GTX2080Ti")},
    },
    "muri": {
        "submitted_at": lambda row: int(row["submit_time"]) / 1000,
        "duration_s": lambda row: int(row["duration"]) / 1000,
        "n_gpus": lambda row: int(row["num_gpu"]),
        "work_steps": lambda row: int(row["iterations"]),
        "batch_size": lambda row: int(row["batch_size"]),
    },
    "rubick": {
        "submitted_at": lambda row: float(row["submission_time"]),
        "duration_s": lambda row: float(row["duration"]),
        "n_gpus": lambda row: int(row["num_gpus"]),
        "cores": lambda row: float(row["num_cpus"]),
        "work_steps": lambda row: int(row["steps"]),
    },
    "arena": {
        "submitted_at": lambda row: float(row["submission_time"]),
        "deadline_s": lambda row: absolute_or_none(row, "deadline", "submission_time"),
        "device": lambda row: row["gpu_type"],
        "n_gpus": lambda row: int(row["num_gpu"]),
        "duration_s": lambda row: None,
    },
}  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def differing(jobs: list[TraceJob], rows: list[dict[str, str]], name: str) -> list[str]:
    return [
        f"{field} of {job.id}"
        for job, row in zip(jobs, rows, strict=True)
        for field, said in SAID[name].items()
        if not same(getattr(job, field), said(row))
    ]


@pytest.mark.parametrize(("file", "name"), files())
def test_every_row_says_the_same_in_both_readings(file: str, name: str) -> None:
    path = folder() / file
    trace = read(path, on_bad="fail")
    jobs, rows = list(trace), list(plain_rows(path, name))
    assert trace.format == name
    assert len(jobs) == len(rows) > 0
    assert not differing(jobs, rows, name)


def test_nothing_that_lies_there_is_left_out() -> None:
    known = {pattern.split("/")[0] for pattern in PUBLISHED}
    assert {path.name for path in folder().iterdir() if path.is_dir()} - NO_JOBS <= known
    read_files = {file for file, _ in files()}
    beside = {".csv", ".trace"}
    assert {
        str(path.relative_to(folder()))
        for path in folder().rglob("*")
        if path.suffix in beside and path.relative_to(folder()).parts[0] not in NO_JOBS
    } == read_files


def test_philly_is_as_its_collectors_count_it() -> None:
    jobs = list(read(folder() / "philly_2017" / "philly_jobs_pollux.csv"))
    assert len(jobs) == 82_247
    assert round(sum(job.device_s or 0 for job in jobs) / 3600) == 978_078
    assert len({job.user for job in jobs}) == 15
    days = {datetime.fromtimestamp(at, UTC).date() for at in (job.submitted_at for job in jobs)}
    assert (str(min(days)), str(max(days))) == ("2017-09-04", "2017-12-22")


@pytest.mark.parametrize(
    "file", ["microsoft_itp_2021/with_models_deadlines/cluster01.csv", "elasticflow_repo/philly_103959.csv"]
)
def test_absolute_deadlines_become_relative_ones(file: str) -> None:
    slack = sorted((job.deadline_s or 0) / (job.duration_s or 1) for job in read(folder() / file))
    assert slack[0] > 0.49
    assert slack[-1] < 1.51
    assert 0.95 < slack[len(slack) // 2] < 1.05


@pytest.mark.parametrize("variant", ["SLO", "MIX1"])
def test_chronus_counts_in_minutes(variant: str) -> None:
    jobs = list(read(folder() / f"chronus_philly_slo/trace_job_Philly_{variant}.csv"))
    at = [job.submitted_at for job in jobs]
    assert 13.9 < (max(at) - min(at)) / 86_400 < 14
    strict = [(job.deadline_s or 0.0, job.duration_s or 0.0) for job in jobs if not job.best_effort]
    assert all(1.1 * duration_s - 60 <= deadline_s <= 2 * duration_s + 3600 for deadline_s, duration_s in strict)


@pytest.mark.parametrize(("file", "n_deadlines"), [("20_ddl.csv", 985), ("case_5000_all_10_ddl.csv", 504)])
def test_hydra_has_deadlines_for_some(file: str, n_deadlines: int) -> None:
    jobs = list(read(folder() / "hydra_pai_deadlines" / file))
    assert sum(job.deadline_s is not None for job in jobs) == n_deadlines


def test_muri_counts_in_milliseconds() -> None:
    for job in read(folder() / "muri_philly" / "trace2.csv"):
        expected_s = (job.work_steps or 0) * job.parameters["iteration_s"]
        assert job.duration_s == pytest.approx(expected_s, abs=job.parameters["iteration_s"])
