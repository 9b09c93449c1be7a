"""`punctual trace`."""

import json
from pathlib import Path

import pytest

from punctual.cli import main
from punctual.sim.traces import read
from punctual.sim.traces.summary import summarize

CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type\n"
    "0,vc1,1,100,5,vgg16,60,5,90,10,0,strict\n1,vc2,4,10,5,vgg16,20,5,10,10,1,best\n2,vc1,1,5\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chronus.csv"
    path.write_text(CHRONUS, encoding="utf-8")
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["punctual", "trace", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_what_is_printed(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, str(file)) in (None, 0)
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if not line.startswith("  "))
    told = {label: text.strip() for label, text in lines.items()}
    assert told["format"] == "chronus"
    assert told["jobs"] == "2"
    assert told["submitted"] == "over 1h30m, not in order of submission"
    assert told["devices per job"] == "1 (1), 4 (1)"
    assert told["device-hours"] == "2"
    assert told["durations"].startswith("min 20m00s, p10 20m00s, p50 20m00s, p90 1h00m")
    assert told["deadlines"].startswith("1 job; times the duration: min 1.50")
    assert told["best-effort"] == "1 job"
    assert told["users"] == "2"
    assert told["bad rows"] == "1"


def test_bad_rows_are_shown(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, str(file))
    assert f"  {file}, line 4: 12 columns expected, 4 found\n" in capsys.readouterr().out


def test_as_json(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, str(file), "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["n_jobs"], told["n_bad_rows"], told["span_s"]) == ("chronus", 2, 1, 5400.0)
    assert told["n_gpus"] == {"1": 1, "4": 1}
    assert told["durations_s"]["max"] == 3600.0
    assert (told["n_deadlines"], told["slack"]["p50"], told["n_best_effort"]) == (1, 1.5, 1)
    assert told["bad_rows"] == [{"path": str(file), "line": 4, "reason": "12 columns expected, 4 found"}]


def test_a_bad_row_can_be_fatal(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(file), "--strict") == 2
    assert "line 4" in capsys.readouterr().err


def test_a_file_that_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n", encoding="utf-8")
    assert run(monkeypatch, str(path)) == 2
    told = capsys.readouterr().err
    assert "remember the milk" in told
    assert told.count("\n") == 4


def test_kinds_of_devices_are_counted_by_jobs(tmp_path: Path) -> None:
    path = tmp_path / "hydra.csv"
    path.write_text("job_name,norm_job_submit_time,ddl,A100,T4\nx,0,inf,10,30\ny,0,9,20,60\n", encoding="utf-8")
    summary = summarize(read(path))
    assert summary.devices == {"A100": 2, "T4": 2}
    assert (summary.durations_s, summary.slack, summary.n_deadlines, summary.in_order) == ({}, {}, 1, True)


def test_a_trace_that_says_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pollux.csv"
    path.write_text("name,time,application,num_replicas,batch_size\n", encoding="utf-8")
    assert run(monkeypatch, str(path)) in (None, 0)
    assert "not said" in capsys.readouterr().out
