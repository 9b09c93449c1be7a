"""Inside an allocation of Slurm, which these tests pretend."""

import threading
import time
from types import SimpleNamespace

import pytest
from tests.waiting import wait_until

from punctual.cli._allocation import SlurmAllocation, allocation, stopped_before_end, warn_of_end
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

    jobs = ("a", "b")

    def __init__(self) -> None:
        self.stopped: list[tuple[str, str]] = []

    def stop(self, job: str, cause: str) -> None:
        self.stopped.append((job, cause))


def test_jobs_are_asked_to_stop_when_it_is_time() -> None:
    host, now = Host(), time.monotonic()
    with stopped_before_end(host, SlurmAllocation(now + 60, now - 1)):  # type: ignore[arg-type]
        wait_until(lambda: len(host.stopped) == 2)
    assert host.stopped == [(job, "the end of the Slurm allocation") for job in host.jobs]


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
