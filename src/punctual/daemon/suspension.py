"""Time for which the machine was suspended."""

import time
from collections.abc import Mapping
from typing import Any

from punctual.journal.boot import boot_id

#: Shortest suspension that counts, in seconds: two clocks are read one after the other.
LEAST_S = 1.0


def suspended_s() -> float:
    """Seconds for which this machine was suspended since its start: its monotonic clock stood still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def told_suspended(accounted_s: float) -> dict[str, Any]:
    """Return the run's record of the seconds of suspension by which its deadlines were shortened already."""
    return {"suspended": {"boot": boot_id(), "accounted_s": accounted_s}}


def accounted_s(facts: Mapping[str, Any]) -> float:
    """Seconds of suspension that the record accounts for; if it has none since the machine's start, all of them."""
    told = facts.get("suspended", {})
    return float(told["accounted_s"]) if told.get("boot") == boot_id() else suspended_s()
