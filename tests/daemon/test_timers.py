"""Timers: by key, in order of time."""

from hypothesis import given
from hypothesis import strategies as st

from punctual.core.ids import JobId, Timer
from punctual.daemon.engine import Timers

A, B = Timer("tick", JobId("a")), Timer("tick", JobId("b"))


def test_nothing_is_set_at_first() -> None:
    timers = Timers()
    assert timers.next_at() is None
    assert timers.pop_due(1e9) == {}


def test_fires_in_order_and_once() -> None:
    timers = Timers()
    timers.set(B, 2.0)
    timers.set(A, 1.0)
    assert timers.next_at() == 1.0
    assert list(timers.pop_due(2.0).items()) == [(A, 1.0), (B, 2.0)]
    assert timers.pop_due(2.0) == {}


def test_a_timer_set_again_replaces_its_instant() -> None:
    timers = Timers()
    timers.set(A, 1.0)
    timers.set(A, 3.0)
    assert timers.pop_due(2.0) == {}
    timers.set(A, 2.5)
    assert timers.next_at() == 2.5
    assert timers.pop_due(9.0) == {A: 2.5}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9))), st.integers(0, 9))
def test_agrees_with_a_plain_table(settings: list[tuple[str, int]], now: int) -> None:
    timers, table = Timers(), {}
    for job, fire_at in settings:
        timer = Timer("tick", JobId(job))
        timers.set(timer, float(fire_at))
        table[timer] = float(fire_at)
    due = sorted((fire_at, timer) for timer, fire_at in table.items() if fire_at <= now)
    assert list(timers.pop_due(now).items()) == [(timer, fire_at) for fire_at, timer in due]
    assert timers.next_at() == min((fire_at for fire_at in table.values() if fire_at > now), default=None)
