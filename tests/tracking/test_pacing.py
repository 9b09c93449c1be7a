import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.page_layout import DIRECTIVES, GUARD_BYTES

import punctual
from punctual.channel import BLOCK_VARIABLE, Directives, SharedBlock
from punctual.tracking import pacing, session
from punctual.tracking.pacing import Pacer, work_steps
from punctual.tracking.record import PhaseRecord

STEP_S = 0.02


def test_work_counts_a_unit_as_the_orders_say() -> None:
    phases = [PhaseRecord("evaluate", n_units_done=4), PhaseRecord("checkpoint", n_units_done=2)]
    assert work_steps(10, phases, Directives(phase_cost_steps=(0.5, 3.0, 0.0))) == 10 + 4 * 0.5 + 2 * 3.0


def test_no_step_is_done_ahead_of_the_line(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(STEP_S, 20)
    directives = page.directives()
    for i, _ in enumerate(punctual.track(range(20), epochs=1)):
        progress = page.progress()
        assert progress.n_steps == i
        assert i == 0 or progress.stamp_ns >= directives.unit_may_end_ns(i)
    assert page.progress().stamp_ns >= directives.end_ns, "the landing is on the line too"


def test_no_unit_of_a_phase_is_done_ahead_of_the_line(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(STEP_S, 2 + 4 * 2.0, (2.0,))
    directives = page.directives()
    list(punctual.track("ab", epochs=1, phases={"evaluate": punctual.Phase(count=1, units=4)}))
    with punctual.phase("evaluate", units=4) as progress:
        for n_units in range(1, 5):
            progress.advance()
            assert page.progress().stamp_ns >= directives.unit_may_end_ns(2 + 2.0 * n_units)
    assert page.progress().stamp_ns >= directives.end_ns


def test_waiting_costs_a_phase_nothing(
    page: SharedBlock, pace: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_ns: list[int] = []

    def sleep(duration_s: float) -> None:
        began_ns = time.monotonic_ns()
        time.sleep(0.05)
        page.send(Directives())  # which ends the wait
        slept_ns.append(time.monotonic_ns() - began_ns)

    monkeypatch.setattr(pacing, "sleep", sleep)
    begun_ns = time.monotonic_ns()
    pace(3600, 1, (1.0,))
    with punctual.phase("evaluate"):
        pass
    elapsed_ns = time.monotonic_ns() - begun_ns
    assert page.progress().stamp_ns >= page.directives().end_ns
    assert len(slept_ns) == 1
    assert page.phases()[0].wall_ns + slept_ns[0] <= elapsed_ns


def test_a_wait_is_excused_and_nothing_else(page: SharedBlock, pace: Callable[..., None]) -> None:
    n_excuses = 0

    @contextmanager
    def excused() -> Iterator[None]:
        nonlocal n_excuses
        n_excuses += 1
        page.send(Directives())  # which ends the wait
        yield

    session.current().excuse_waits(excused)
    pace(3600, 4)
    list(punctual.track(range(4), epochs=1))
    assert n_excuses == 1
    list(punctual.track(range(4), epochs=1))
    assert n_excuses == 1


def test_a_rehearsal_is_no_work(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(3600, 1, (1.0,))
    page.send(Directives(True, False, False, time.monotonic_ns() + 3600 * 10**9, 1.0, 3600e9, (1.0,)))
    with punctual.phase("evaluate", rehearsal=True):
        pass
    assert page.progress().stamp_ns < page.directives().end_ns


def test_new_orders_take_effect_while_it_waits(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(3600, 2)
    timer = threading.Timer(0.2, page.send, [Directives()])
    timer.start()
    list(punctual.track("ab", epochs=1))
    timer.join()
    assert page.progress().n_steps == 2


def rewrite(path: Path, content: bytes) -> None:
    """Replace the content of a file that others have mapped."""
    with path.open("r+b") as file:
        file.write(content)


def test_orders_that_are_being_written_are_read_when_they_are_whole(page: SharedBlock) -> None:
    page.send(Directives())
    pacer = Pacer(page)
    pacer.refresh()
    path = Path(os.environ[BLOCK_VARIABLE])
    before = path.read_bytes()
    page.send(Directives(stop=True))
    after = path.read_bytes()
    # Punctual is interrupted in the middle: the opening guard is new, the rest is not.
    rewrite(path, before)
    rewrite(path, after[: DIRECTIVES.offset + GUARD_BYTES] + before[DIRECTIVES.offset + GUARD_BYTES :])
    pacer.refresh()
    assert not pacer.directives.stop
    rewrite(path, after)
    pacer.refresh()
    assert pacer.directives.stop


def test_a_dead_controller_is_not_waited_for(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(3600, 2)
    page.heartbeat(time.monotonic_ns() - 6 * 10**9)
    list(punctual.track("ab", epochs=1))
    assert page.progress().n_steps == 2


def test_a_controller_that_dies_while_it_waits_releases_it(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(3600, 2)
    page.heartbeat(time.monotonic_ns() - 4_800_000_000)
    list(punctual.track("ab", epochs=1))
    assert page.progress().n_steps == 2


def test_a_step_that_is_left_for_an_exception_does_not_wait(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(3600.0, 20)

    def train() -> None:
        for _ in punctual.track(range(20), epochs=1):
            raise OSError("the disk is full")

    begun_s = time.monotonic()
    with pytest.raises(OSError, match="the disk is full"):
        train()
    assert page.progress().n_steps == 1
    assert time.monotonic() - begun_s < 60.0
