"""Waiting for something that another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Far beyond what anything here takes on a slow and busy machine: only a fault makes a test wait so long.
PATIENCE_S = 200.0


def wait_until(look: Callable[[], T], holds: Callable[[T], bool] = bool, pause_s: float = 0.02) -> T:
    """Call `look` until `holds` accepts what it returns, and return that.

    What is waited for needs the processor too: looks take at most a tenth of the time, or follow each other after half a
    second.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        begun_at = time.monotonic()
        if holds(seen := look()):
            return seen
        now = time.monotonic()
        assert now < give_up_at, f"still {seen!r} after {PATIENCE_S:.0f} s"
        time.sleep(max(pause_s, min(9 * (now - begun_at), 0.5)))
