"""Losses on their way to Punctual, and the end of a loop that has reached its goal."""

import math
from collections.abc import Callable

import pytest

import punctual
from punctual.channel import GOAL_VARIABLE, N_LOSSES_MAX, ProgramState, SharedBlock


@pytest.fixture
def aim(page: SharedBlock, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setenv(GOAL_VARIABLE, text)


def test_losses_are_on_the_page_with_their_steps(page: SharedBlock) -> None:
    run = punctual.track(range(3), epochs=1)
    for i in run:
        run.report_loss(10.0 - i)
    assert page.losses() == (3, [(1, 10.0), (2, 9.0), (3, 8.0)])


def test_a_loss_may_be_a_tensor_with_a_gradient(page: SharedBlock) -> None:
    torch = pytest.importorskip("torch")
    run = punctual.track(range(1), epochs=1)
    for _ in run:
        run.report_loss(torch.ones(1, requires_grad=True).sum() * 0.5)
    assert page.losses() == (1, [(1, 0.5)])


def test_the_last_ones_stay_and_all_are_counted(page: SharedBlock) -> None:
    run = punctual.track(range(50), epochs=1)
    for i in run:
        run.report_loss(float(i))
    n_losses, latest = page.losses()
    assert n_losses == 50
    assert latest == [(i + 1, float(i)) for i in range(50 - N_LOSSES_MAX, 50)]


def test_a_loss_that_is_no_number_is_left_out(page: SharedBlock) -> None:
    run = punctual.track(range(3), epochs=1)
    for _ in run:
        run.report_loss(math.nan)
    assert page.losses() == (0, [])


def test_the_loop_ends_where_the_goal_is_reached(page: SharedBlock, aim: Callable[[str], None]) -> None:
    aim("5.0")
    run = punctual.track(range(100), epochs=2, phases={"evaluate": 0})
    steps = []
    for i in run:
        steps.append(i)
        run.report_loss(2.0 if i == 1 else 10.0 - i)  # one low batch is no arrival
    assert steps == list(range(7))  # the middle of 6, 5, 4
    assert run.goal_reached
    assert page.declaration().total_steps == page.progress().n_steps == 7
    assert page.declaration().state == ProgramState.LANDED


def test_phases_after_the_goal_are_not_waited_for(page: SharedBlock, aim: Callable[[str], None]) -> None:
    aim("5.0")
    run = punctual.track(range(4), epochs=9, phases=("evaluate",))
    for _ in run:
        run.report_loss(5.0 if run.step else 6.0)
        if run.epoch_ended:
            with punctual.phase("evaluate"):
                assert not run.goal_reached or run.step == 3
    assert page.progress().n_steps == 3  # in the middle of an epoch
    assert (page.declaration().state, page.phases()[0].units_planned) == (ProgramState.LANDED, 0)


def test_what_comes_after_the_last_loop_is_waited_for(page: SharedBlock, aim: Callable[[str], None]) -> None:
    aim("5.0")
    for _ in range(9):
        run = punctual.track(range(4), total_steps=36, phases=("evaluate",))
        for _ in run:
            run.report_loss(5.0)
        if run.goal_reached:
            break
    assert (page.declaration().state, page.phases()[0].units_planned) == (ProgramState.TRAINING, 1)
    with punctual.phase("evaluate"):
        assert page.declaration().state == ProgramState.TRAINING
    assert page.declaration().state == ProgramState.LANDED


def test_a_process_that_takes_over_goes_on_with_the_losses_there_are(
    page: SharedBlock, aim: Callable[[str], None], restart: Callable[[], None]
) -> None:
    aim("5.0")
    run = punctual.track(range(100), epochs=1)
    for i in run:
        run.report_loss(6.0 - i)
        if i == 1:
            break
    restart()
    run = punctual.track(range(100), epochs=1, start_step=2)
    for _ in run:
        run.report_loss(4.0)
    assert run.goal_reached
    assert page.losses() == (3, [(1, 6.0), (2, 5.0), (3, 4.0)])


def test_loops_that_follow_the_goal_are_empty(page: SharedBlock, aim: Callable[[str], None]) -> None:
    aim("1.0")
    n_steps = 0
    for _ in range(4):
        run = punctual.track(range(5), total_steps=20)
        for _ in run:
            n_steps += 1
            run.report_loss(0.5)
    assert n_steps == 3


def test_without_a_goal_the_loop_goes_to_its_end(page: SharedBlock) -> None:
    run = punctual.track(range(10), epochs=1)
    for _ in run:
        run.report_loss(0.0)
    assert page.progress().n_steps == 10
    assert not run.goal_reached


def test_a_goal_that_is_no_number_is_warned_of(
    page: SharedBlock, aim: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    aim("low")
    assert len(list(punctual.track(range(3), epochs=1))) == 3
    assert "must be a number: got 'low'" in capsys.readouterr().err


def test_without_punctual_a_goal_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "1.0")
    run = punctual.track(range(9), epochs=1)
    for _ in run:
        run.report_loss(0.0)
    assert not run.goal_reached
