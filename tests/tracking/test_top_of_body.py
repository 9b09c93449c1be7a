"""What stands at the top of a loop's body, before the step itself, is no step."""

import time

import pytest

import punctual
from punctual.channel import ProgramState, SharedBlock

#: Long beside the moments for which a busy machine lets a process wait.
STEP_S = 0.1


def body() -> None:
    time.sleep(STEP_S)


def test_a_break_at_the_top_of_the_body_counts_no_step(page: SharedBlock) -> None:
    """As where each epoch is limited: `if i * batch_size >= limit: break`."""
    n_made = 0
    for _ in range(3):
        for i, _ in enumerate(punctual.track(range(9), total_steps=12)):
            if i == 4:
                break
            body()
            n_made += 1
    assert (page.progress().n_steps, n_made) == (12, 12)
    assert page.declaration().state == ProgramState.LANDED
    assert not page.declaration().fault


def test_a_break_after_the_step_counts_it_also_after_a_first_step_that_took_long(page: SharedBlock) -> None:
    for i, _ in enumerate(punctual.track(range(9), total_steps=2)):
        time.sleep(10 * STEP_S if i == 0 else STEP_S)
        if i == 1:
            break
    assert page.progress().n_steps == 2


def test_an_evaluation_at_the_top_of_the_body_does_not_end_the_step(page: SharedBlock) -> None:
    """As in nanoGPT: evaluate, and then make the step. The first step is not known yet, and ends."""
    for i, _ in enumerate(punctual.track(range(8), phases={"evaluate": 2})):
        if i % 5 == 0:
            with punctual.phase("evaluate"):
                time.sleep(2 * STEP_S)
                assert page.progress().n_steps == (1 if i == 0 else i)
            assert page.progress().n_steps == (1 if i == 0 else i)
        body()
    assert page.progress().n_steps == 8


def test_the_last_step_is_not_done_before_it_is_made(page: SharedBlock) -> None:
    for i, _ in enumerate(punctual.track(range(5), phases={"evaluate": 1})):
        if i == 4:
            with punctual.phase("evaluate"):
                pass
            assert page.declaration().state == ProgramState.TRAINING
        body()
    assert page.declaration().state == ProgramState.LANDED


@pytest.mark.parametrize("n_looks", [1, 3])
def test_an_evaluation_takes_nothing_from_the_time_of_its_step(page: SharedBlock, n_looks: int) -> None:
    """Whether the body comes to its end or is left is judged by the step alone."""
    run = punctual.track(range(9), total_steps=4)
    for i, _ in enumerate(run):
        if i == 3:
            for _ in range(n_looks):
                with punctual.phase("evaluate"):
                    time.sleep(2 * STEP_S)
            break
        body()
    assert page.progress().n_steps == 3


def test_a_phase_at_the_end_of_the_body_ends_the_step(page: SharedBlock) -> None:
    for i, _ in enumerate(punctual.track(range(5))):
        body()
        if i % 2:
            with punctual.phase("evaluate"):
                assert page.progress().n_steps == i + 1
