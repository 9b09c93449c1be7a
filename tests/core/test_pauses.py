"""A job that runs and holds nothing is paused: it is not looked at, and the time is not held against it."""

import pytest
from tests.core.desk import A, B, Desk, cores, none, only

from punctual.controllers.two_level import TwoLevel
from punctual.core.commands import Command, LaunchJob, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.events import JobSubmitted, SteeringResumed, StopRequested
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler


def ticks(commands: list[Command]) -> list[float]:
    return [c.fire_at for c in commands if isinstance(c, SetTimer) and c.timer.kind == "tick"]


@pytest.fixture
def paused(desk: Desk) -> Desk:
    """Job `a` runs from 0 s to 10 s and is paused from then on."""
    spec = JobSpec(
        id=A, ceiling=Resources(cores=2), deadline_s=100.0, controller="scripted", preemptible=True
    )  # fmt: skip
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))
    pause = only(desk.plan({}, at=10.0), ResizeJob)
    assert pause.grant == {}
    assert ticks(desk.applied(pause, at=10.0)) == []
    return desk


def resume(desk: Desk, at: float) -> list[Command]:
    return desk.applied(only(desk.plan({A: cores(1.0)}, at=at), ResizeJob), at=at)


def test_a_job_that_holds_nothing_is_paused_and_goes_on_when_it_does(paused: Desk) -> None:
    assert paused.scheduler.job(A).status == "paused"
    assert [view.id for view in paused.scheduler.snapshot(10.0).waiting] == [A]
    assert ticks(resume(paused, at=40.0)) == [40.25]
    assert paused.scheduler.job(A).status == "running"


def test_it_is_not_looked_at(paused: Desk) -> None:
    assert paused.tick(A, at=11.0) == []
    assert paused.controller.readings == []


def test_the_time_counts_for_the_deadline_and_for_nothing_else(paused: Desk) -> None:
    resume(paused, at=40.0)
    commands = paused.tick(A, at=42.0)
    assert none(commands, WarnUser), "it has run for 12 s and may be silent for 30 s"
    reading = paused.controller.readings[-1]
    assert (reading.elapsed_s, reading.granted_core_s, reading.held_since_s) == (42.0, 12.0, 40.0)
    assert only(paused.tick(A, at=61.0), WarnUser).reason.text == (
        "no progress was reported in 31 s, nor read from the output; the job goes on at full speed"
    )


def test_waiting_for_a_start_is_no_silence(desk: Desk) -> None:
    desk.run(B, 2.0)
    desk.submit(A, at=0.0)
    desk.tell(StopRequested(at=80.0, job=B, cause="enough"))
    desk.tell(SteeringResumed(at=80.0, lost_at=80.0, granted={}))
    desk.started(only(desk.plan({A: cores(1.0)}, at=80.0), LaunchJob), at=80.0)
    assert none(desk.tick(A, at=81.0), WarnUser)


def test_it_can_be_stopped(paused: Desk) -> None:
    assert only(paused.tell(StopRequested(at=20.0, job=A, cause="enough")), StopJob).cause == "enough"
    assert paused.scheduler.job(A).status == "stopping"


def test_it_is_still_paused_after_a_hand_over(paused: Desk) -> None:
    paused.tell(SteeringResumed(at=20.0, lost_at=20.0, granted={A: {}}))
    assert paused.scheduler.job(A).status == "paused"
    paused.tell(SteeringResumed(at=21.0, lost_at=21.0, granted={}))
    assert paused.scheduler.job(A).status == "queued", "its process is gone"


def test_a_step_that_a_pause_interrupts_says_nothing_about_the_speed() -> None:
    desk, worker = Desk(), Resources(cores=0.5)
    desk.scheduler = Scheduler({"two-level": TwoLevel()}, strict=True)
    desk.tell(desk.joined)
    spec = JobSpec(
        id=A, worker=worker, counts=(2,), ceiling=worker * 2, deadline_s=500.0, controller="two-level", preemptible=True
    )
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))

    def train(from_at: int, until_at: int, ahead: int) -> float:
        for at in range(from_at, until_at):
            desk.progress(A, at=float(at), steps=float(at - ahead))
            desk.tick(A, at=float(at))
        forecast = desk.scheduler.demand(A).forecast
        return forecast.earliest_finish_s

    before_s = train(1, 20, 0)
    desk.applied(only(desk.plan({}, at=20.0), ResizeJob), at=20.0)
    resume(desk, at=80.0)
    assert train(81, 90, 61) == pytest.approx(before_s + 61.0, abs=3.0)
