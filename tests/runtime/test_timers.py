"""Timers: by key, in order of time."""

from hypothesis import given
from hypothesis import strategies as st

from punctual.runtime.timers import Timers


def test_nothing_is_set_at_first() -> None:
    timers = Timers()
    assert timers.next_at() is None
    assert timers.pop_due(1e9) == []


def test_fires_in_order_and_once() -> None:
    timers = Timers()
    timers.set("b", 2.0)
    timers.set("a", 1.0)
    assert timers.next_at() == 1.0
    assert timers.pop_due(2.0) == ["a", "b"]
    assert timers.pop_due(2.0) == []


def test_a_key_set_again_replaces_its_instant() -> None:
    timers = Timers()
    timers.set("a", 1.0)
    timers.set("a", 3.0)
    assert timers.pop_due(2.0) == []
    timers.set("a", 2.5)
    assert timers.next_at() == 2.5
    assert timers.pop_due(9.0) == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9))), st.integers(0, 9))
def test_agrees_with_a_plain_table(settings: list[tuple[str, int]], now: int) -> None:
    timers, table = Timers(), {}
    for key, fire_at in settings:
        timers.set(key, float(fire_at))
        table[key] = float(fire_at)
    due = sorted((fire_at, key) for key, fire_at in table.items() if fire_at <= now)
    assert timers.pop_due(now) == [key for _, key in due]
    assert timers.next_at() == min((fire_at for fire_at in table.values() if fire_at > now), default=None)
