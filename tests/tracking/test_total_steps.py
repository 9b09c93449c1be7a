"""Several loops of one script whose steps are declared together."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import punctual
from punctual.channel import Fault, ProgramState, SharedBlock
from punctual.integrations._loop import FrameworkLoop
from punctual.tracking.session import current


def ended(page: SharedBlock) -> tuple[ProgramState, int, int, Fault]:
    declared = page.declaration()
    return declared.state, declared.total_steps, page.progress().n_steps, declared.fault


def numbers(run: "punctual.Run[Any]") -> list[int]:
    """Go through a loop; the numbers of its steps."""
    return [run.step for _ in run]


def fit(n_steps: float, n_done: int | None = None, *, start_step: int = 0, total_steps: int | None = None) -> None:
    """One call of `fit` of a library, which may end before its last step."""
    loop = FrameworkLoop(n_steps, start_step=start_step, total_steps=total_steps)
    for _ in range(int(n_steps) - start_step if n_done is None else n_done):
        loop.step_began()
        loop.step_ended()
    loop.finish()


def test_loops_of_all_kinds_count_on(page: SharedBlock) -> None:
    punctual.total_steps(22)
    assert numbers(punctual.track("abc", epochs=2)) == [0, 1, 2, 3, 4, 5]
    assert page.declaration().state == ProgramState.TRAINING
    for n_before in (6, 11):
        assert numbers(punctual.track(iter("abcdefg"), total_steps=5)) == list(range(n_before, n_before + 5))
    fit(6)
    assert ended(page) == (ProgramState.LANDED, 22, 22, Fault.NONE)


def test_the_first_training_does_not_land_the_job(page: SharedBlock) -> None:
    for i in range(3):
        fit(4, total_steps=12)
        assert page.declaration().state == (ProgramState.LANDED if i == 2 else ProgramState.TRAINING)
        assert page.declaration().total_steps == 12
    assert ended(page) == (ProgramState.LANDED, 12, 12, Fault.NONE)


def test_a_training_that_ends_early_leaves_its_missing_steps_out(page: SharedBlock) -> None:
    punctual.total_steps(30)
    fit(10, 7)
    assert page.declaration().total_steps == 27
    fit(20)
    assert ended(page) == (ProgramState.LANDED, 27, 27, Fault.NONE)


def test_evaluations_of_a_training_that_ends_early_are_not_waited_for(page: SharedBlock) -> None:
    punctual.total_steps(20)
    for n_done in (10, 4):
        loop = FrameworkLoop(10, n_steps_per_epoch=2, phases={"evaluate": punctual.Phase()})
        for i in range(n_done):
            loop.step_began()
            loop.step_ended()
            if i % 2:
                with punctual.phase("evaluate"):
                    pass
        loop.finish()
    (evaluate,) = page.phases()
    assert (evaluate.n_units_done, evaluate.units_planned) == (7, 7)
    assert ended(page) == (ProgramState.LANDED, 14, 14, Fault.NONE)


def test_a_training_that_goes_on_from_another_s_model_counts_its_own_steps(page: SharedBlock) -> None:
    punctual.total_steps(30)
    fit(10)
    fit(30, start_step=10)
    assert ended(page) == (ProgramState.LANDED, 30, 30, Fault.NONE)


def test_a_job_that_is_resumed_begins_where_its_first_training_does(page: SharedBlock) -> None:
    punctual.total_steps(30)
    fit(10, start_step=4)
    assert (page.declaration().start_step, page.progress().n_steps) == (4, 10)
    fit(20)
    assert ended(page) == (ProgramState.LANDED, 30, 30, Fault.NONE)


def test_trainings_of_unknown_length_have_landed_when_the_program_ends(page: SharedBlock) -> None:
    for n_done in (3, 4):
        fit(float("inf"), n_done, total_steps=10)
    assert page.declaration().state == ProgramState.TRAINING
    current().program_ended()
    assert ended(page) == (ProgramState.LANDED, 7, 7, Fault.NONE)


def test_trainings_that_were_not_declared_together_are_told_but_are_no_fault(
    page: SharedBlock, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        fit(4)
    assert ended(page) == (ProgramState.LANDED, 12, 12, Fault.NONE)
    told = capfd.readouterr().err
    assert told.count("punctual: warning") == 1
    assert "`punctual.total_steps(8)`" in told


def test_more_steps_than_were_declared_are_a_fault(page: SharedBlock) -> None:
    punctual.total_steps(7)
    fit(4)
    fit(4)
    assert page.declaration().fault == Fault.MORE_STEPS


def test_steps_that_are_missing_at_the_end_are_missing(page: SharedBlock) -> None:
    punctual.total_steps(7)
    for _ in punctual.track("abc"):
        pass
    current().program_ended()
    assert ended(page) == (ProgramState.TRAINING, 7, 3, Fault.NONE)


def test_an_evaluation_after_each_epoch_is_planned_for_each_of_the_loops(page: SharedBlock) -> None:
    punctual.total_steps(12)
    for n_epochs in (1, 3):
        run = punctual.track("abc", epochs=n_epochs, phases=("evaluate",))
        for _ in run:
            if run.epoch_ended:
                with punctual.phase("evaluate"):
                    pass
    (evaluate,) = page.phases()
    assert (evaluate.n_units_done, evaluate.units_planned) == (4, 4)
    assert ended(page) == (ProgramState.LANDED, 12, 12, Fault.NONE)


def test_a_loop_that_is_cut_says_so_once(page: SharedBlock, capfd: pytest.CaptureFixture[str]) -> None:
    punctual.total_steps(9)
    for _ in range(2):
        assert len(numbers(punctual.track(itertools.count(), total_steps=4))) == 4
    told = capfd.readouterr().err
    assert told.count("the loop ended after its 4 steps") == 1
    assert "`run.finish()`" in told


@pytest.mark.parametrize("batches", [iter("abc"), "abcd", "abcde"])
def test_a_loop_that_came_to_its_own_end_says_nothing(
    page: SharedBlock, batches: Iterable[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in punctual.track(batches, total_steps=4):
        pass
    assert "the loop ended" not in capfd.readouterr().err


@pytest.mark.parametrize("begin", [lambda: punctual.track("abc"), lambda: punctual.total_steps(5)])
def test_what_comes_too_late_is_refused(begin: Callable[[], object]) -> None:
    begin()
    with pytest.raises(ValueError, match="must come before the first training"):
        punctual.total_steps(5)


@pytest.mark.parametrize("n_steps", [0, -1, 2.5, "7"])
def test_what_is_no_number_of_steps_is_refused(n_steps: object) -> None:
    with pytest.raises(ValueError, match="`n_steps` must be"):
        punctual.total_steps(n_steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_loop_that_is_finished_early_leaves_its_steps_out_and_those_that_follow_go_on(
    page: SharedBlock, leaves: bool
) -> None:
    punctual.total_steps(36)
    for _ in range(3):
        run = punctual.track("abc", epochs=4, phases=("evaluate",))
        for _ in run:
            if run.epoch_ended:
                with punctual.phase("evaluate"):
                    pass
            if run.epoch == 1 and run.epoch_ended:
                run.finish()
                if leaves:
                    break
        assert run.finished
        run.finish()  # it may be said twice
    assert page.progress().n_steps == page.declaration().total_steps == 18
    current().program_ended()
    assert ended(page) == (ProgramState.LANDED, 18, 18, Fault.NONE)
    (evaluate,) = page.phases()
    assert (evaluate.n_units_done, evaluate.units_planned) == (6, 6)


def test_a_training_whose_epochs_are_loops_of_their_own_may_be_finished_in_one_of_them(page: SharedBlock) -> None:
    punctual.total_steps(20)
    for _ in range(2):
        for _ in range(5):
            run = punctual.track("ab")
            for _ in run:
                pass
            run.finish()
            break
    assert (page.progress().n_steps, page.declaration().total_steps) == (4, 20)
    current().program_ended()
    assert ended(page) == (ProgramState.LANDED, 4, 4, Fault.NONE)
