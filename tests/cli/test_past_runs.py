"""What is told of runs that have ended, from what was written down at their ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.pieces import counted_looks
from tests.cli.programs import TRACKED, Terminal

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.daemon import paths
from punctual.daemon.earlier_runs import run_like
from punctual.daemon.run_folder import create_run
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of

LATE = {
    "submitted_wall": "2026-11-20T10:00:00+00:00", "argv": ["python", "train.py"], "deadline_s": 60.0,
    "landed_s": 62.5, "cause": "",
}  # fmt: skip


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(tmp_path)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    return terminal


def leave(name: str, facts: dict[str, Any] | None, *, failed: bool = False) -> None:
    """A run of one job, which has ended."""
    run = create_run(name)
    run.record_end(JobId(name), "failed" if failed else "finished", facts)
    run.remove_live_places()


def test_past_runs_are_listed_the_oldest_first_with_how_each_landed(terminal: Terminal) -> None:
    leave("b", LATE)
    leave("a", {**LATE, "submitted_wall": "2026-11-21T10:00:00+00:00", "landed_s": 59.95, "argv": ["x" * 99]})
    leave("c", {**LATE, "landed_s": None, "cause": "exit code 7", "submitted_wall": "2026-11-19T10:00"}, failed=True)
    leave("old", None)
    rows = terminal.tell("ps", "--all").stdout.splitlines()
    assert rows[0].split()[:3] == ["JOB", "STATE", "STARTED"]
    assert [row.split()[0] for row in rows[1:]] == ["old", "c", "b", "a"]
    assert rows[1].split()[:5] == ["old", "finished", "-", "-", "-"]
    assert "exit code 7" in rows[2]
    assert "landed 2.5 s late" in rows[3]
    leave("d", {**LATE, "landed_s": None, "cause": "its process ended", "exit_code": 7}, failed=True)
    ended = {told["job"]: told for told in map(json.loads, terminal.tell("ps", "--all", "--json").stdout.splitlines())}
    assert [ended[name]["phrase"] for name in "cd"] == ["exit code 7", "exit status 7"]
    assert rows[3].endswith("python train.py")
    assert "landed 50 ms early" in rows[4]
    assert rows[4].endswith(f" {'x' * 99}"), "nothing is cut where nobody looks at a terminal"


def test_what_jobs_have_cost_is_listed_where_anything_costs(terminal: Terminal) -> None:
    leave("dear", {**LATE, "spent_usd": 12.4})
    leave("free", LATE)
    head, *rows = (row.split() for row in terminal.tell("ps", "--all").stdout.splitlines())
    assert head[:3] == ["JOB", "STATE", "COST"]
    assert {row[0]: row[2] for row in rows} == {"dear": "$12.40", "free": "-"}
    told = [json.loads(line) for line in terminal.tell("ps", "--all", "--json").stdout.splitlines()]
    assert {each["job"]: each["spent_usd"] for each in told} == {"dear": 12.4, "free": None}


def test_a_job_is_not_told_by_the_command_that_began_its_run(terminal: Terminal) -> None:
    run = create_run("job", {"argv": ["punctual", "up"], "wall": "2026-11-20T10:00:00+00:00"})
    run.record_end(JobId("job"), "failed", None)
    run.remove_live_places()
    assert terminal.tell("ps", "--all").stdout.splitlines()[1].split()[2:] == ["-", "-", "-", "-"]


def test_the_record_of_a_run_is_read_as_often_for_many_jobs_as_for_few(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, n_looks = create_run("service"), []
    for n_jobs in (2, 20):
        for i in range(n_jobs):
            run.record_end(JobId(f"job-{i}"), "finished", LATE)
        with counted_looks(monkeypatch) as looks:
            assert len(terminal.tell("ps", "--all").stdout.splitlines()) == 1 + n_jobs
        n_looks.append(len(looks))
    assert n_looks[0] == n_looks[1]


def test_a_program_is_told_the_same(terminal: Terminal) -> None:
    leave("b", LATE)
    told = json.loads(terminal.tell("ps", "--all", "--json").stdout)
    assert told == {**told, "job": "b", "state": "finished", **LATE}


def test_each_job_is_told_with_the_same_fields(terminal: Terminal) -> None:
    """Null where something is not known, or is not of a job in this state."""
    leave("ended", LATE)
    leave("old", None, failed=True)
    running = terminal.start("run", "--name", "running", "--deadline", "1h", "--", "sleep", "600")
    terminal.wait_for_job(lambda job: job["state"] == "running")
    told = [json.loads(line) for line in terminal.tell("ps", "--all", "--json").stdout.splitlines()]
    assert {job["job"] for job in told} == {"ended", "old", "running"}
    assert len({tuple(job) for job in told}) == 1, "and in the same order"
    assert {"submitted_wall", "argv", "deadline_s", "landed_s", "cause", "output", "forecast_s", "host"} <= told[
        0
    ].keys()
    running.terminate()
    running.communicate()


def test_a_report_says_what_was_run_when_and_where(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--name", "mine", "--", *terminal.script(TRACKED), "5")
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ", 1) for line in terminal.tell("report", "mine").stdout.splitlines() if ": " in line)
    assert told["command"].endswith("train.py 5")
    assert {"started", "host", "controller", "actuator"} <= set(told)
    (past,) = (json.loads(line) for line in terminal.tell("ps", "--all", "--json").stdout.splitlines())
    assert past["landed_s"] > 0
    assert past["argv"][-1] == "5"
    assert terminal.tell("report", "mine", "--out", "out.html").returncode == 0
    page = (terminal.folder / "out.html").read_text()
    for part in ("train.py", "Host: ", "Actuator: ", "remaining-cost"):
        assert part in page


def test_a_job_like_an_earlier_one_is_known_to_cost_what_that_took(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--name", "first", "--json", "--", *terminal.script(TRACKED), "5")
    assert done.returncode == 0, done.stderr
    took_core_s = json.loads(done.stdout.splitlines()[-1])["used_core_s"]
    job = JobOptions(program=["sleep", "1"], like="first")
    work_core_s = submission_of(job, 0.0, Resources(2.0), earlier_run=run_like).spec.work_core_s
    assert work_core_s is not None
    assert work_core_s == pytest.approx(took_core_s, abs=0.01)
    with pytest.raises(InvalidSpec, match="must not go with"):
        submission_of(job.model_copy(update={"work": "30m"}), 0.0, Resources(2.0), earlier_run=run_like)
    with pytest.raises(InvalidSpec, match="unknown"):
        submission_of(job.model_copy(update={"like": "unknown"}), 0.0, Resources(2.0), earlier_run=run_like)
    assert terminal.punctual("run", "--name", "failed", "--", "false").returncode
    with pytest.raises(InvalidSpec, match="must name a job that has finished"):
        submission_of(job.model_copy(update={"like": "failed"}), 0.0, Resources(2.0), earlier_run=run_like)
