"""Waiting for something that another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Far beyond what anything here takes on a slow and busy machine: only a fault makes a test wait so long.
PATIENCE_S = 200.0


def wait_until(look: Callable[[], T], holds: Callable[[T], bool] = bool, pause_s: float = 0.02) -> T:
    """Call `look` until `holds` accepts what it returns, and return that."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds(seen := look()):
        assert time.monotonic() < give_up_at, f"still {seen!r} after {PATIENCE_S:.0f} s"
        time.sleep(pause_s)
    return seen
