"""What a simulation leaves does not stay."""

import gc
import subprocess
import sys
import weakref

import pytest

from punctual.sim.garbage import is_frozen, rare_collections


class Ring:
    def __init__(self) -> None:
        self.itself = self


def test_the_garbage_of_a_simulation_is_gone_when_the_next_has_begun() -> None:
    with rare_collections():
        left = weakref.ref(Ring())
    with rare_collections():
        assert left() is None


def test_what_an_interpreter_begins_with_is_not_taken_for_what_somebody_froze() -> None:
    """Python 3.12 freezes some hundreds of objects."""
    program = "from punctual.sim.garbage import is_frozen; print(is_frozen())"
    bare = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert bare.stdout == "False\n"
    assert is_frozen(), "`conftest` has frozen what is here"


def test_what_is_frozen_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that has run many tests it takes longer than a small simulation."""
    assert is_frozen()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("counted again"))
    with rare_collections():
        pass
