"""A training that says itself that it is done."""

from itertools import count

import pytest

import punctual
from punctual.channel import Directives, Fault, ProgramState, SharedBlock
from punctual.integrations._loop import FrameworkLoop


def landed_after(page: SharedBlock, n_steps: int) -> bool:
    declaration = page.declaration()
    return (declaration.state, declaration.fault, declaration.total_steps, page.progress().n_steps) == (
        ProgramState.LANDED, Fault.NONE, n_steps, n_steps,
    )  # fmt: skip


def test_the_loop_ends_with_the_step_in_which_it_was_said(page: SharedBlock) -> None:
    run = punctual.track(range(10), epochs=3, phases={"evaluate": 0})
    steps = []
    for _ in run:
        steps.append(run.step)
        if run.step == 12:
            run.finish()
    assert steps == list(range(13))
    assert run.finished
    assert not run.goal_reached
    assert landed_after(page, 13)


def test_a_break_is_a_success_then(page: SharedBlock) -> None:
    run = punctual.track(range(10), epochs=3)
    for _ in run:
        if run.step == 4:
            run.finish()
            break
    assert landed_after(page, 5)


def test_a_break_alone_is_none(page: SharedBlock) -> None:
    for i in punctual.track(range(10), epochs=3):
        if i == 4:
            break
    assert (page.declaration().state, page.declaration().total_steps) == (ProgramState.TRAINING, 30)


def test_said_between_two_loops_it_ends_those_that_follow(page: SharedBlock) -> None:
    n_steps = 0
    for epoch in range(9):
        run = punctual.track(range(4), total_steps=36, phases=("evaluate",))
        for _ in run:
            n_steps += 1
        with punctual.phase("evaluate"):
            pass
        if epoch == 1:
            run.finish()
            assert landed_after(page, 8)
            break
    assert n_steps == 8
    assert list(punctual.track(range(4), total_steps=36)) == []
    assert landed_after(page, 8)


@pytest.mark.parametrize("start_step", [0, 4])
@pytest.mark.parametrize("iterates", [False, True])
def test_said_before_the_loop_it_is_done_with_the_steps_it_has(
    page: SharedBlock, start_step: int, iterates: bool
) -> None:
    run = punctual.track(range(10), epochs=3, start_step=start_step, phases=("evaluate",))
    run.finish()
    if iterates:
        assert list(run) == []
    assert landed_after(page, start_step)
    assert page.progress().stamp_ns > 0


def test_what_comes_after_the_loop_is_waited_for(page: SharedBlock) -> None:
    run = punctual.track(range(4), total_steps=36, phases=("evaluate",))
    for i in run:
        if i == 2:
            run.finish()
    assert page.declaration().state == ProgramState.TRAINING
    with punctual.phase("evaluate"):
        assert page.declaration().state == ProgramState.TRAINING
    assert landed_after(page, 3)


def test_without_punctual_the_loop_ends_too() -> None:
    run = punctual.track(range(10), epochs=3)
    steps = []
    for i in run:
        steps.append(i)
        run.finish()
    assert steps == [0]


def test_a_training_of_a_library_that_has_ended_does_not_end_the_loops_after_it() -> None:
    loop = FrameworkLoop(3)
    for _ in range(2):
        loop.step_began()
        loop.step_ended()
    loop.finish()
    assert list(punctual.track(range(3))) == [0, 1, 2]


def test_an_endless_loader_is_cut_at_the_steps_declared(page: SharedBlock) -> None:
    assert len(list(punctual.track(count(), total_steps=7))) == 7
    assert landed_after(page, 7)
    assert list(punctual.track(count(), total_steps=7)) == []
    assert landed_after(page, 7)


def test_an_endless_loader_is_cut_where_a_resumed_training_has_done_all(page: SharedBlock) -> None:
    assert len(list(punctual.track(count(), total_steps=7, start_step=5))) == 2
    assert landed_after(page, 7)


def test_a_training_that_is_told_to_leave_calls_its_hooks_and_says_so(page: SharedBlock) -> None:
    calls: list[int] = []
    run = punctual.track(range(10), epochs=1)
    punctual.on_stop(lambda: calls.append(page.progress().n_steps))
    code = None
    try:
        for i in run:
            if i == 2:
                page.send(Directives(leave=True))
    except SystemExit as leaving:
        code = leaving.code
    assert (code, calls, page.declaration().state) == (79, [3], ProgramState.LEFT)


def test_without_a_hook_nobody_leaves(page: SharedBlock) -> None:
    page.send(Directives(leave=True))
    assert len(list(punctual.track(range(3), epochs=1))) == 3
    assert landed_after(page, 3)
