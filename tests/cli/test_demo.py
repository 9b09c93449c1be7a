"""The demo's choice of a feasible deadline."""

from pathlib import Path

import pytest
from tests.cli.pieces import JOB, started, submitted
from tests.core.desk import A, Desk, none, only

from punctual.cli import demo
from punctual.cli._demo_market import Course
from punctual.cli.demo import TrainingSpeed, pick_steps, speed_in
from punctual.core.commands import WarnUser
from punctual.core.control import PhaseProgress
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    JobFinished,
    JobSubmitted,
    MachinesAsked,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PhaseReported,
    PoolOffered,
    ProgressReported,
)
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.history.run import summarize


def reading(unit_at: float, steps_done: float, *, landed: bool = False) -> ProgressReported:
    return ProgressReported(
        at=unit_at, job=JOB, steps_done=steps_done, steps_total=60, unit_at=unit_at, used_core_s=unit_at, landed=landed
    )


def test_speed_is_taken_from_a_reading_amid_the_steps_to_the_landing() -> None:
    phase = PhaseProgress(name="evaluate", units_planned=10, units_done=10, units_measured=12, wall_s=2.4)
    messages: list[Message] = [
        submitted(0.0), started(0.5), reading(0.6, 0), reading(3.7, 10), PhaseReported(at=6.7, job=JOB, phases=(phase,)),
        reading(6.7, 60, landed=True), JobFinished(at=6.8, job=JOB, landed_at=6.7),
    ]  # fmt: skip
    speed = speed_in(messages, summarize(messages, JOB))
    assert speed.step_s == pytest.approx(0.02)
    assert speed.start_s == pytest.approx(3.0)
    assert speed.epoch_end_s == pytest.approx(2.0)


def test_the_job_takes_half_of_its_deadline_at_full_speed() -> None:
    speed = TrainingSpeed(start_s=3.0, step_s=0.02, epoch_end_s=0.5)
    n_epochs = demo._N_EPOCHS
    fastest_s = speed.start_s + n_epochs * (pick_steps(speed) * speed.step_s + speed.epoch_end_s)
    assert fastest_s == pytest.approx(demo._DEADLINE_S / demo._SLACK, rel=0.01)


def test_the_phases_of_the_demo_are_measured_before_anybody_is_warned_of_them() -> None:
    desk = Desk()
    desk.run(A, 1.0)
    phase = PhaseProgress(name="evaluate", units_planned=demo._N_EPOCHS, units_done=0)
    at_first_end = 100 / demo._N_EPOCHS
    for at, steps in ((1.0, at_first_end - 1), (2.0, at_first_end)):
        desk.tell(PhaseReported(at=at, job=A, phases=(phase,)))
        desk.progress(A, at=at, steps=steps)
        assert none(desk.tick(A, at=at), WarnUser)
    desk.progress(A, at=3.0, steps=99)
    assert only(desk.tick(A, at=3.0), WarnUser).reason.code == "unmeasured-phase"


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "calibrate", None)
    with pytest.raises(InvalidSpec, match="make its folder"):
        demo.demo()


def test_nothing_is_said_of_the_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    class Job:
        def subscribe(self, tell: object) -> None:
            raise AssertionError("it is followed")

    demo._Unwatched(quiet=True).open(Job())  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


def test_missing_extras_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match="pip install matplotlib safetensors scikit-learn torch"):
        demo.demo()


def test_a_market_needs_ray_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(InvalidSpec, match="the demo of a market needs the libraries of the extras `torch` and `ray`"):
        demo.demo(market=True)


def test_the_course_of_a_market_is_told_in_hours_of_its_trace_with_machines_and_dollars(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = Course()
    spot = PoolSpec(name="spot", capacity=Resources(cores=1.0), market="spot", most=3)
    first, second = NodeId("spot-0"), NodeId("spot-1")
    job = JobSubmitted(at=100.0, spec=JobSpec(id=JOB, ceiling=Resources(3.0)))
    told: list[Message] = [
        PoolOffered(at=99.0, pool=spot, price_usd_h=3600.0, obtainable=3), job,
        MachinesAsked(at=100.0, pool="spot", nodes=(first, second)),
        NodeJoined(at=110.0, node=first, capacity=Resources(1.0)), reading(120.0, 110), reading(120.0, 0),
    ]  # fmt: skip
    assert [course.take(message) for message in told] == [""] * len(told)
    assert course.line(120.0).split() == ["1", "h", "00", "spot", "#+.", "50%", "done", "$40"]
    notice = course.take(NodeNoticed(at=120.0, node=first, ends_at=125.0))
    assert notice.startswith(" 1 h 00  spot-0 is to be taken away")
    for node in (first, second):
        course.take(NodeLost(at=125.0, node=node))
    course.take(JobFinished(at=130.0, job=JOB, landed_at=130.0))
    assert course.end is not None
    assert course.conclude() == 0
    out = capsys.readouterr().out
    assert "It landed 4 h 30 min before its deadline." in out
    assert "It cost $50:" in out
    assert "on 2 machines" in out
    late = Course()
    late.take(job)
    late.take(JobFinished(at=1000.0, job=JOB, landed_at=1000.0))
    assert late.conclude() == 1
    assert "AFTER its deadline" in capsys.readouterr().out
