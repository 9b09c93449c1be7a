"""How elastic trainings end: finished before the last step, or left to make room and gone on with later."""

import signal
import sys
from pathlib import Path

import pytest
from tests.elastic_training import ending_training
from tests.elastic_training.agent_stage import Stage
from tests.waiting import wait_until

import punctual
from punctual.channel import EXIT_PREEMPTED, Fault, ProgramState

SCRIPT = str(Path(__file__).parent / "ending_training.py")
SLEEPING = str(Path(__file__).parent / "sleeping_training.py")
FOR_EVER = "2000000"


@pytest.mark.parametrize(("n_workers", "how"), [(1, []), (2, ["break"])])
def test_a_training_that_says_it_is_finished_has_landed(
    stage: Stage, tmp_path: Path, n_workers: int, how: list[str]
) -> None:
    stage.start(SCRIPT, str(tmp_path / "kept"), FOR_EVER, "7", *how, n_workers=n_workers)
    assert stage.exit_code() == 0, stage.output()
    assert "ends at 7 True" in stage.output()
    declaration = stage.page.declaration()
    assert (declaration.state, declaration.fault, declaration.total_steps) == (ProgramState.LANDED, Fault.NONE, 7)
    assert stage.page.progress().n_steps == 7


def test_a_training_that_has_left_goes_on_where_it_was_with_the_weights_that_it_would_have_had(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.start(SCRIPT, str(tmp_path / "kept"), FOR_EVER, "0", n_workers=2)
    stage.await_step(3)
    stage.leave()
    assert stage.exit_code() == EXIT_PREEMPTED, stage.output()
    assert stage.page.declaration().state == ProgramState.LEFT
    n_steps = stage.page.progress().n_steps
    stage.forget_directives()
    stage.start(SCRIPT, str(tmp_path / "kept"), FOR_EVER, str(n_steps + 5), n_workers=1)
    assert stage.exit_code() == 0, stage.output()
    assert f"begins at {n_steps}\n" in stage.output()
    assert f"punctual: training goes on at step {n_steps}, from '{tmp_path}/kept/" in stage.output()
    assert stage.page.declaration().state == ProgramState.LANDED
    monkeypatch.setattr(sys, "argv", [SCRIPT, str(tmp_path / "undisturbed"), FOR_EVER, str(n_steps + 5)])
    punctual.elastic(ending_training.train)
    assert stage.output().partition("ends at")[2] == capsys.readouterr().out.partition("ends at")[2] != ""


def test_a_training_that_cannot_write_its_checkpoint_trains_on(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    stage.start(SCRIPT, str(tmp_path / "file" / "kept"), FOR_EVER, "0", n_workers=2)
    stage.await_step(1)
    stage.leave()
    wait_until(stage.output, lambda output: "must have written its checkpoint" in output)
    stage.await_step(stage.page.progress().n_steps + 3)
    assert stage.page.declaration().state == ProgramState.TRAINING


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_that_all_sleep_are_found_and_replaced(stage: Stage, tmp_path: Path, n_workers: int) -> None:
    stage.start(SLEEPING, "first", str(tmp_path / "mark"), n_workers=n_workers, PUNCTUAL_HANG_S="3")
    assert stage.exit_code() == 0, stage.output()
    assert "because it stood still for worker" in stage.output()
    assert "trained\n" in stage.output()


def test_a_worker_that_sleeps_behind_its_loop_is_let_be(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    stage.start(SLEEPING, "late", str(tmp_path / "mark"), PUNCTUAL_HANG_S="1")
    assert stage.exit_code() == 0, stage.output()
    assert stage.output() == "trained\nended\n"


def test_a_step_in_which_every_worker_sleeps_ends_the_training(stage: Stage, tmp_path: Path) -> None:
    stage.start(SLEEPING, "all", str(tmp_path / "mark"), PUNCTUAL_HANG_S="2")
    assert stage.exit_code() == 128 + signal.SIGKILL, stage.output()
    assert "punctual: 3 workers stood still after step 1\n" in stage.output()
