"""The executor that pretends."""

import pytest
from tests.plants.dry_run import DryRun

from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, GrantApplied, JobFailed, JobFinished, JobStarted, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources

JOB = JobId("a")
WHY = Reason("test", "a test wants it")


def on(cores: float) -> Allocation:
    return {NodeId("n"): Resources(cores)}


def launch(at: float = 0.0, cores: float = 1.0, request: int = 1, work_steps: float | None = 10) -> LaunchJob:
    spec = JobSpec(id=JOB, ceiling=Resources(2.0), work_steps=work_steps)
    return LaunchJob(at=at, job=JOB, request=request, spec=spec, grant=on(cores), reason=WHY)


def resize(at: float, cores: float, request: int) -> ResizeJob:
    return ResizeJob(at=at, job=JOB, request=request, grant=on(cores), reason=WHY)


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def dry() -> DryRun:
    return DryRun(steps_per_core_s=2.0, n_steps=7)


def test_answers_at_once(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(), said.append)
    dry.perform(resize(1.0, 0.5, 2), said.append)
    dry.perform(StopJob(at=2.0, job=JOB, cause="enough"), said.append)
    assert said == [
        JobStarted(at=0.0, job=JOB, request=1, granted=on(1.0)),
        GrantApplied(at=1.0, job=JOB, request=2, granted=on(0.5)),
        JobFailed(at=2.0, job=JOB, cause="enough", is_stopped=True),
    ]


def test_advances_by_what_is_granted(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(), said.append)
    dry.perform(resize(1.0, 0.5, 2), said.append)  # two steps are done
    dry.observe(JOB, 2.5, said.append)
    assert said[-1] == ProgressReported(
        at=2.5, job=JOB, steps_done=3, steps_total=10, unit_at=2.0, used_core_s=1.75, in_flight_core_s=0.25
    )


def test_lands_when_the_last_step_is_done_and_not_when_it_is_seen(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(), said.append)
    dry.observe(JOB, 9.0, said.append)
    reading, finished = said[1:]
    assert isinstance(reading, ProgressReported)
    assert (reading.landed, reading.steps_done, reading.unit_at, reading.used_core_s) == (True, 10, 5.0, 5.0)
    assert finished == JobFinished(at=9.0, job=JOB, landed_at=5.0)
    dry.observe(JOB, 10.0, said.append)
    assert len(said) == 3


def test_a_job_without_declared_work_has_the_default(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(work_steps=None), said.append)
    dry.observe(JOB, 1.0, said.append)
    assert isinstance(said[-1], ProgressReported)
    assert said[-1].steps_total == 7


def test_a_launch_said_again_changes_nothing(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(), said.append)
    dry.perform(launch(at=1.0, cores=2.0, request=2), said.append)
    assert said[-1] == JobStarted(at=1.0, job=JOB, request=2, granted=on(1.0))


def test_drops_what_is_older_than_the_last_command(dry: DryRun, said: list[Event]) -> None:
    dry.perform(launch(), said.append)
    dry.perform(resize(1.0, 2.0, 3), said.append)
    dry.perform(resize(1.0, 1.0, 2), said.append)
    dry.perform(resize(1.0, 1.0, 3), said.append)
    assert [event.request for event in said[1:] if isinstance(event, GrantApplied)] == [3, 3]


@pytest.mark.parametrize("amount", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_rates_that_lead_nowhere(amount: float) -> None:
    with pytest.raises(InvalidSpec, match="steps_per_core_s"):
        DryRun(steps_per_core_s=amount)
