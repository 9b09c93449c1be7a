import pytest

import punctual
from punctual.channel import Directives, ProgramState, SharedBlock
from punctual.tracking.stop import forget


def test_the_page_says_whether_the_training_can_be_asked(page: SharedBlock) -> None:
    punctual.track("ab", epochs=1)
    assert not page.declaration().can_stop
    punctual.on_stop(lambda: None)
    assert page.declaration().can_stop


def test_a_training_asked_to_stop_calls_its_hooks_and_exits(page: SharedBlock) -> None:
    calls = []
    run = punctual.track(range(10), epochs=1)

    @punctual.on_stop
    def save() -> None:
        calls.append(("save", run.step + 1, page.progress().n_steps))

    punctual.on_stop(lambda: calls.append(("tell", 0, 0)))
    with pytest.raises(SystemExit) as caught:  # noqa: PT012
        for _ in run:
            if run.step == 4:
                page.send(Directives(stop=True))
    assert caught.value.code == 143
    assert calls == [("save", 5, 5), ("tell", 0, 0)]
    assert page.declaration().state == ProgramState.TRAINING


def test_a_hook_that_fails_does_not_keep_the_next_from_saving(page: SharedBlock) -> None:
    calls = []

    @punctual.on_stop
    def fail() -> None:
        raise OSError("the disk is full")

    punctual.on_stop(lambda: calls.append("saved"))
    page.send(Directives(stop=True))
    with pytest.raises(OSError, match="the disk is full"):
        list(punctual.track("ab", epochs=1))
    assert calls == ["saved"]


def test_it_stops_between_steps_and_never_inside_a_phase(page: SharedBlock) -> None:
    done = []
    punctual.on_stop(lambda: None)
    with pytest.raises(SystemExit):  # noqa: PT012
        for batch in punctual.track("abc", epochs=1):
            with punctual.phase("evaluate", units=2) as progress:
                page.send(Directives(stop=True))
                progress.advance()
                progress.advance()
            done.append(batch)
    assert done == ["a"]


def test_without_a_hook_it_goes_on(page: SharedBlock) -> None:
    page.send(Directives(stop=True))
    assert len(list(punctual.track("abc", epochs=1))) == 3


def test_it_does_not_wait_for_the_line_when_asked_to_stop(page: SharedBlock) -> None:
    punctual.on_stop(lambda: None)
    page.send(Directives(pacing=True, stop=True, end_ns=2**62, end_work=2.0, ns_per_step=1.0))
    page.heartbeat(2**62)
    with pytest.raises(SystemExit):
        list(punctual.track("ab", epochs=1))
    assert page.progress().n_steps == 1


def test_once_all_hooks_are_forgotten_it_cannot_be_asked_any_more(page: SharedBlock) -> None:
    hooks = [punctual.on_stop(lambda: None), punctual.on_stop(lambda: 1)]
    for hook, can_stop in zip(hooks, (True, False), strict=True):
        forget(hook)
        assert page.declaration().can_stop is can_stop
