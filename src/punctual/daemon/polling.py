"""Wait for something that another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def poll(look: Callable[[], T], most_s: float, interval_s: float = 0.1) -> T:
    """Call `look` until its result is true, for at most `most_s` seconds; return the last result."""
    give_up_at = time.monotonic() + most_s
    while not (seen := look()) and time.monotonic() < give_up_at:
        time.sleep(interval_s)
    return seen
