from collections.abc import Callable, Iterator
from itertools import count

import pytest

import punctual
from punctual.channel import Fault, ProgramState, SharedBlock


class Unsized:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def test_each_epoch_goes_through_the_iterable_again() -> None:
    run = punctual.track([10, 20], epochs=3)
    assert [(batch, run.step, run.epoch, run.epoch_ended) for batch in run] == [
        (10, 0, 0, False), (20, 1, 0, True), (10, 2, 1, False), (20, 3, 1, True), (10, 4, 2, False), (20, 5, 2, True),
    ]  # fmt: skip
    assert len(run) == 6


def test_a_step_is_done_when_the_loop_comes_back(page: SharedBlock) -> None:
    seen = [page.progress().n_steps for _ in punctual.track("abc", epochs=1)]
    assert seen == [0, 1, 2]
    assert page.progress().n_steps == 3
    assert page.progress().stamp_ns >= 0 < page.progress().cpu_ns


def test_the_declaration_says_what_is_declared(page: SharedBlock) -> None:
    run = punctual.track("ab", epochs=5, start_step=3)
    assert (page.declaration().total_steps, page.declaration().start_step, page.declaration().state) == (
        10,
        3,
        ProgramState.STARTING,
    )
    next(iter(run))
    assert page.declaration().state == ProgramState.TRAINING


def test_it_has_landed_after_the_last_step(page: SharedBlock) -> None:
    for _ in punctual.track("ab", epochs=2):
        assert page.declaration().state == ProgramState.TRAINING
    assert (page.declaration().state, page.declaration().fault) == (ProgramState.LANDED, Fault.NONE)


def test_nested_loops_continue_one_count(page: SharedBlock) -> None:
    steps = []
    for _ in range(3):
        run = punctual.track("ab", total_steps=6)
        steps += [(run.step, run.epoch, run.epoch_ended) for _ in run]
    assert steps == [(0, 0, False), (1, 0, True), (2, 1, False), (3, 1, True), (4, 2, False), (5, 2, True)]
    assert (page.progress().n_steps, page.declaration().state, page.declaration().fault) == (
        6,
        ProgramState.LANDED,
        Fault.NONE,
    )


def test_total_steps_neither_cuts_nor_repeats(page: SharedBlock) -> None:
    assert len(list(punctual.track(Unsized(3), total_steps=5))) == 3
    assert page.declaration().state == ProgramState.TRAINING


@pytest.mark.parametrize(("start", "n_each_pass"), [(0, [3, 3]), (2, [1, 3]), (3, [3]), (5, [1]), (6, [])])
def test_resuming_does_the_remaining_steps(page: SharedBlock, start: int, n_each_pass: list[int]) -> None:
    passes: list[int] = []

    class Loader:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            passes.append(0)
            for i in range(3):
                passes[-1] += 1
                yield i

    run = punctual.track(Loader(), epochs=2, start_step=start)
    assert len(run) == sum(n_each_pass)
    assert [run.step for _ in run] == list(range(start, 6))
    assert passes == n_each_pass
    assert (page.progress().n_steps, page.declaration().state) == (6, ProgramState.LANDED)


def test_resuming_with_total_steps_skips_nothing(page: SharedBlock) -> None:
    assert len(list(punctual.track("abc", total_steps=10, start_step=7))) == 3
    assert (page.progress().n_steps, page.declaration().state) == (10, ProgramState.LANDED)


def test_a_loop_left_by_break_counts_the_step_it_was_left_in(page: SharedBlock) -> None:
    for batch in punctual.track("abcd", epochs=1):
        if batch == "c":
            break
    assert page.progress().n_steps == 3


def test_a_loop_left_by_break_when_all_is_done_counts_no_more(page: SharedBlock) -> None:
    for i in punctual.track(count(), total_steps=4):
        if i == 4:
            break
    assert (page.progress().n_steps, page.declaration().state, page.declaration().fault) == (
        4,
        ProgramState.LANDED,
        Fault.NONE,
    )


def test_a_step_that_fails_and_is_caught_inside_the_loop_counts(page: SharedBlock) -> None:
    for batch in punctual.track("abc", epochs=1):
        try:
            assert batch != "b"
        except AssertionError:
            continue
    assert page.progress().n_steps == 3


def test_an_iterable_shorter_than_it_says_keeps_its_epochs_apart() -> None:
    class Short:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

    run = punctual.track(Short(), epochs=2)
    assert [(run.step, run.epoch, run.epoch_ended) for _ in run] == [
        (0, 0, False), (1, 0, False), (2, 1, False), (3, 1, False),
    ]  # fmt: skip


def test_an_exception_passes_through_and_is_no_landing(page: SharedBlock) -> None:
    def fail_at(batch: str) -> None:
        if batch == "b":
            raise KeyError(batch)

    with pytest.raises(KeyError):  # noqa: PT012
        for batch in punctual.track("abc", epochs=1):
            fail_at(batch)
    assert page.declaration().state == ProgramState.TRAINING


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"epochs": -1}, ("`epochs` must be 0 or more", "got -1", "`punctual.track`", "Give")),
        ({"epochs": 1.5}, ("`epochs` must be a whole number", "got 1.5", "`punctual.track`", "int(")),
        ({"total_steps": "9"}, ("`total_steps` must be a whole number", "got '9'", "`punctual.track`", "int(")),
        ({"total_steps": 9, "start_step": -1}, ("`start_step` must be 0", "got -1", "`punctual.track`", "Give")),
        ({"epochs": 2, "start_step": 7}, ("not be above the 6 steps", "step 7", "`punctual.track`", "whole job")),
        ({"total_steps": 2**63}, ("must be below 2^63", "got 9223372036854775808", "this training", "Give fewer")),
        ({"epochs": 2**63 - 1}, ("must be below 2^63", "got 27670116110564327421", "this training", "run.finish()")),
        ({"epochs": 1, "total_steps": 3}, ("only one of", "epochs=1 and total_steps=3", "`punctual.track`", "Leave")),
    ],
)
def test_a_wrong_argument_is_told_at_once(arguments: dict[str, object], parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        punctual.track("abc", **arguments)  # type: ignore[arg-type]
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("epochs", [2, None])
def test_epochs_need_a_length(epochs: int | None) -> None:
    with pytest.raises(ValueError, match=r"must have a length.*total_steps"):
        punctual.track(Unsized(3), epochs=epochs)


def test_an_iterable_alone_is_one_epoch(page: SharedBlock) -> None:
    assert list(punctual.track(range(3))) == [0, 1, 2]
    declaration = page.declaration()
    assert (declaration.total_steps, declaration.state, declaration.fault) == (3, ProgramState.LANDED, Fault.NONE)


def test_a_loop_inside_a_loop_that_declares_no_total_is_told_how(
    page: SharedBlock, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        for _ in punctual.track("abc"):
            pass
    assert (page.declaration().total_steps, page.declaration().fault) == (6, Fault.MORE_STEPS)
    assert "total_steps" in capsys.readouterr().err


def test_zero_steps_are_a_fault_and_no_exception(page: SharedBlock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(punctual.track([], epochs=3)) == []
    assert (page.declaration().fault, page.declaration().state) == (Fault.ZERO_STEPS, ProgramState.TRAINING)
    assert "got 0 steps" in capsys.readouterr().err


def test_more_steps_than_declared_are_a_fault_told_once(page: SharedBlock, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(punctual.track(range(5), total_steps=3))) == 5
    assert (page.declaration().fault, page.declaration().total_steps, page.progress().n_steps) == (
        Fault.MORE_STEPS,
        5,
        5,
    )
    assert capsys.readouterr().err.count("must not take more than the 3 steps declared: got step 4 for") == 1


def test_another_loop_comes_on_top(page: SharedBlock) -> None:
    list(punctual.track("ab", epochs=2))
    run = punctual.track("abc", epochs=1)
    declaration = page.declaration()
    assert (declaration.fault, declaration.total_steps, declaration.state) == (
        Fault.MORE_STEPS,
        7,
        ProgramState.TRAINING,
    )
    assert [(run.step, run.epoch_ended) for _ in run] == [(0, False), (1, False), (2, True)]
    assert (page.progress().n_steps, page.declaration().state) == (7, ProgramState.LANDED)


def test_without_punctual_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(punctual.track(range(5), total_steps=3))) == 5
    list(punctual.track([], epochs=1))
    assert capsys.readouterr() == ("", "")


def test_a_restarted_training_takes_the_page_over(page: SharedBlock, restart: Callable[[], None]) -> None:
    list(punctual.track(range(4), total_steps=10))
    restart()
    run = punctual.track(range(6), total_steps=10, start_step=4)
    assert (page.declaration().state, page.declaration().start_step) == (ProgramState.STARTING, 4)
    list(run)
    assert (page.progress().n_steps, page.declaration().state) == (10, ProgramState.LANDED)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: punctual.phase(3), "name of a phase must be a text"),  # type: ignore[arg-type]
        (lambda: punctual.track(range(3), epochs=1, phases=(3,)), "name of a phase must be a text"),  # type: ignore[arg-type]
        (lambda: punctual.track(range(3), epochs=1, phases=""), "name of a phase must be a text"),
        (lambda: punctual.phase("evaluate").advance(1.5), "`n_units` must be a whole number"),  # type: ignore[arg-type]
        (lambda: punctual.phase("evaluate").advance(-1), "`n_units` must be 0 or more"),
        (lambda: punctual.Phase(cost_steps="a"), "`cost_steps` must be 0 or more"),  # type: ignore[arg-type]
        (lambda: punctual.on_stop("save"), "`hook` must be a function"),  # type: ignore[type-var]
    ],
)
def test_arguments_that_cannot_be_used_are_told_with_or_without_punctual(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        call()
