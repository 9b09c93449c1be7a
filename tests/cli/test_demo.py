"""The demo's choice of a feasible deadline."""

import pytest
from tests.cli.pieces import JOB

from punctual.cli import demo
from punctual.cli.demo import Speed, pick_steps, speed_in
from punctual.core.control import PhaseProgress
from punctual.core.errors import InvalidSpec
from punctual.core.events import PhaseReported, ProgressReported


def reading(unit_at: float, steps_done: float) -> ProgressReported:
    return ProgressReported(
        at=unit_at, job=JOB, steps_done=steps_done, steps_total=60, unit_at=unit_at, used_core_s=unit_at
    )


def test_speed_is_taken_between_the_first_and_the_last_step() -> None:
    phase = PhaseProgress(name="evaluate", units_planned=10, units_done=10, units_measured=12, wall_s=2.4)
    readings = [reading(0.5, 0), reading(3.2, 10), reading(4.0, 50), reading(6.2, 60)]
    speed = speed_in([*readings, PhaseReported(at=6.2, job=JOB, phases=(phase,))], started_at=0.0)
    assert speed.step_s == pytest.approx(0.02)
    assert speed.start_s == pytest.approx(3.0)
    assert speed.epoch_end_s == pytest.approx(2.0)


def test_the_job_takes_half_of_its_deadline_at_full_speed() -> None:
    speed = Speed(start_s=3.0, step_s=0.02, epoch_end_s=0.5)
    n_epochs = demo._N_EPOCHS
    fastest_s = speed.start_s + n_epochs * (pick_steps(speed) * speed.step_s + speed.epoch_end_s)
    assert fastest_s == pytest.approx(demo._DEADLINE_S / demo._SLACK, rel=0.01)


def test_missing_extras_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match=r"pip install 'punctual\[torch,report\]'"):
        demo.demo()
