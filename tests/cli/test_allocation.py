"""Inside an allocation of Slurm, which these tests pretend."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.programs import Terminal
from tests.waiting import wait_until

from punctual.cli import _allocation
from punctual.cli._allocation import SlurmAllocation, allocation, note_end, stopped_before_end, warn_of_end
from punctual.executors.local.job_signals import ALLOCATION_END_VARIABLE as END_VARIABLE


@pytest.mark.parametrize(
    ("left_s", "lead_s"), [(300, 30), (3600, 72), (600, 60), (86400, 300)], ids=["5 min", "1 h", "10 min", "1 day"]
)
def test_jobs_are_asked_some_time_before_the_end(left_s: int, lead_s: float) -> None:
    end = allocation({END_VARIABLE: str(round(time.time()) + left_s)})
    assert end is not None
    assert end.ends_at - end.stop_at == pytest.approx(lead_s, rel=0.1)  # the clock goes on


@pytest.mark.parametrize(("grace_s", "lead_s"), [(1200.0, 1200), (10.0, 72), (7200.0, 1800)])
def test_jobs_are_asked_so_early_that_they_have_the_time_that_they_are_to_have(grace_s: float, lead_s: float) -> None:
    end = allocation({END_VARIABLE: str(round(time.time()) + 3600)}, grace_s=grace_s)
    assert end is not None
    assert end.ends_at - end.stop_at == pytest.approx(lead_s, rel=0.1)


@pytest.mark.parametrize("text", ["", "soon", "1000"])
def test_an_end_that_is_unknown_or_over_is_none(text: str) -> None:
    assert allocation({END_VARIABLE: text}) is None


class Host:
    """Two jobs, and what they were told."""

    job_ids = ("a", "b")

    def __init__(self) -> None:
        self.stopped: list[tuple[str, str]] = []

    def stop(self, job: str, cause: str) -> None:
        self.stopped.append((job, cause))


def test_jobs_are_asked_to_stop_when_it_is_time() -> None:
    host, now = Host(), time.monotonic()
    with stopped_before_end(host, SlurmAllocation(now + 60, now - 1)):  # type: ignore[arg-type]
        wait_until(lambda: len(host.stopped) == 2)
    assert host.stopped == [(job, "the end of the Slurm allocation") for job in host.job_ids]


def test_nothing_is_left_of_a_command_that_is_done_before() -> None:
    host, now, threads = Host(), time.monotonic(), threading.active_count()
    with stopped_before_end(host, SlurmAllocation(now + 3600, now + 3540)):  # type: ignore[arg-type]
        pass
    wait_until(lambda: threading.active_count() <= threads)
    assert not host.stopped


@pytest.mark.parametrize(
    ("deadline_s", "told"), [(None, ""), (3000.0, ""), (3590.0, " before the end"), (7200.0, " after the end")]
)
def test_a_deadline_behind_the_end_is_told(
    deadline_s: float | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.monotonic()
    submission = SimpleNamespace(submitted_at=now, spec=SimpleNamespace(id="a", deadline_s=deadline_s))
    warn_of_end([submission], SlurmAllocation(now + 3600, now + 3528))  # type: ignore[list-item]
    errors = capsys.readouterr().err
    assert (told in errors) if told else (errors == "")


def test_outside_of_an_allocation_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_end([], None)
    with stopped_before_end(Host(), None):  # type: ignore[arg-type]
        assert capsys.readouterr().err == ""


#: Answers of `squeue` for job 7, and the end that they name.
IN_LOCAL_TIME = "2099-11-27T06:59:00"
ANSWERS = {
    "with its number": f"echo 7 {IN_LOCAL_TIME}",
    "alone": f"echo {IN_LOCAL_TIME}",
    "among tasks of an array": f"echo 6 2099-11-26T00:00:00; echo 7 {IN_LOCAL_TIME}; echo 8 N/A",
    "before it has started": "echo 7 N/A",
    "unknown": "echo 7 Unknown",
    "none": "echo NONE",
    "empty": "true",
    "of another job alone": "echo 8 2099-11-26T00:00:00",
    "no text": r"printf '\377\376 7\n'",
    "out of range": "echo 7 9999-99-99T99:99:99",
    "refusal": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    "words": "echo slurm_load_jobs error: Unable to contact slurm controller",
}
NAMES_THE_END = ("with its number", "alone", "among tasks of an array")


@pytest.fixture
def squeue(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return a maker of a fake `squeue`, and of an environment in which it is found."""

    def make(script: str) -> dict[str, str]:
        command = tmp_path / "squeue"
        command.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/asked'\n{script}\n")
        command.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}

    return make


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_end_that_the_variable_does_not_name_is_asked_of_squeue(
    kind: str, squeue: Callable[[str], dict[str, str]]
) -> None:
    environment = {**squeue(ANSWERS[kind]), END_VARIABLE: ""}
    note_end(environment)
    end = allocation(environment)
    if kind not in NAMES_THE_END:
        assert end is None
        return
    assert end is not None
    left_s = datetime.fromisoformat(IN_LOCAL_TIME).timestamp() - time.time()
    assert end.ends_at - time.monotonic() == pytest.approx(left_s, abs=60)


@pytest.mark.parametrize(
    "given", [{"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../7"}, {END_VARIABLE: str(round(time.time()) + 9999)}]
)
def test_squeue_is_not_asked_outside_of_an_allocation_or_where_the_variable_answers(
    given: dict[str, str], squeue: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    environment = {**squeue("echo 7 2099-01-01T00:00:00"), **given}
    note_end(environment)
    assert not (tmp_path / "asked").exists()
    assert environment.get(END_VARIABLE) == given.get(END_VARIABLE)


def test_where_there_is_no_squeue_the_end_is_not_known(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "SLURM_JOB_ID": "7"}
    note_end(environment)
    assert allocation(environment) is None


def test_a_squeue_that_hangs_is_given_up_and_ended(
    squeue: Callable[[str], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_allocation, "ANSWER_S_MAX", 0.5)
    environment = squeue(f"sleep 1000 & echo $! > '{tmp_path}/pid'; wait")
    note_end(environment)
    assert allocation(environment) is None
    sleeper = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{sleeper}").exists() or " Z " in Path(f"/proc/{sleeper}/stat").read_text())


def test_a_run_and_its_job_know_the_end_that_squeue_names(
    squeue: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    end = datetime.fromtimestamp(int(time.time()) + 3600, UTC).astimezone().replace(tzinfo=None)
    environment = {**squeue(f"echo 7 {end.isoformat()}"), END_VARIABLE: ""}
    terminal.environment |= environment
    program = terminal.script(f"import os; print(os.environ['{END_VARIABLE}'])")
    try:
        done = terminal.punctual("run", "--deadline", "2h", "--", *program)
    finally:
        terminal.close()
    assert done.returncode == 0, done.stderr
    assert str(int(end.timestamp())) in done.stdout
    assert "after the end of this Slurm allocation" in done.stderr
    assert (tmp_path / "asked").read_text().splitlines() == ["--noheader --jobs 7 --format %A %e"]
