"""Supervisors that were stopped, or hang: jobs still end, and it is told that they may stand still."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.executors.conftest import JOB, Stage, is_alive, until

from punctual.core.events import JobFailed, JobWarned
from punctual.executors.local import job_run, launch, supervisor_client
from punctual.executors.local.supervisor_client import SupervisorLink

SLEEP = "import time; time.sleep(600)"
#: Writes more than its pipe holds, so that it stands still where nobody reads.
CHATTY = "print('x' * 200_000, flush=True)\nimport time; time.sleep(600)"
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"


@pytest.fixture
def kept(stage: Stage) -> Any:
    """Starts a job; the process id of its supervisor."""

    def started(code: str, **options: Any) -> int:
        stage.run(code, **options)
        return stage.supervisors[JOB]

    return started


def stop(pid: int) -> None:
    """Have a process stand still."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


@pytest.mark.parametrize("code", [SLEEP, CHATTY])
def test_a_job_whose_supervisor_was_stopped_can_be_stopped(stage: Stage, kept: Any, code: str) -> None:
    supervisor = kept(code)
    stop(supervisor)
    stage.stop()
    assert stage.wait(JobFailed).cause == "the user"
    assert not is_alive(supervisor)


def test_a_job_is_ended_without_its_supervisor_where_that_hangs(
    stage: Stage, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = kept(SLEEP, stop_grace_s=0.2)
    job = stage.pid()
    stop(supervisor)
    deal = SupervisorLink._signal
    monkeypatch.setattr(job_run, "END_S_MAX", 0.2)
    monkeypatch.setattr(
        SupervisorLink, "_signal", lambda link, number: deal(link, number) if number == signal.SIGKILL else None
    )
    stage.stop()
    assert stage.wait(JobFailed).cause == "the user"
    assert not is_alive(job)


def test_a_job_ends_where_not_even_its_supervisor_can_be_killed(
    stage: Stage, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a file system which does not answer."""
    supervisor = kept(SLEEP, stop_grace_s=0.2)
    stop(supervisor)
    with monkeypatch.context() as patch:
        patch.setattr(job_run, "END_S_MAX", 0.2)
        patch.setattr(supervisor_client, "_END_S_MAX", 0.2)
        patch.setattr(launch, "_OUTPUT_S_MAX", 0.2)
        patch.setattr(SupervisorLink, "_signal", lambda *_: None)
        stage.stop()
        assert stage.wait(JobFailed).cause == "the user"
    os.kill(supervisor, signal.SIGKILL)


def test_a_supervisor_that_hears_nothing_is_told_of_once(
    stage: Stage, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = kept(SLEEP)
    stage.executor.renew()
    monkeypatch.setattr(supervisor_client, "_ANSWER_S_MAX", 0.2)
    stop(supervisor)

    def warned() -> list[JobWarned]:
        stage.executor.renew()
        return [event for event in stage.events if isinstance(event, JobWarned)]

    (warning,) = until(warned)
    assert (warning.job, warning.reason.code) == (JOB, "keeper-silent")
    assert f"process {supervisor}, hears nothing" in warning.reason.text
    assert len(warned()) == 1
    os.kill(supervisor, signal.SIGCONT)
