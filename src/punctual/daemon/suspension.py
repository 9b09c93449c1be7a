"""How long the machine was suspended."""

import time
from collections.abc import Mapping
from typing import Any

from punctual.journal.boot import boot_id

#: What is less is the time between two looks at clocks.
LEAST_S = 1.0


def suspended_s() -> float:
    """Seconds for which this machine was suspended since it was started: its monotonic clock stood still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def told_suspended(accounted_s: float) -> dict[str, Any]:
    """For the record of a run: the seconds of suspension by which its deadlines were brought forward already."""
    return {"suspended": {"boot": boot_id(), "accounted_s": accounted_s}}


def accounted_s(facts: Mapping[str, Any]) -> float:
    """Those that the record tells; all seconds of suspension, if it tells none since the machine was started."""
    told = facts.get("suspended", {})
    return float(told["accounted_s"]) if told.get("boot") == boot_id() else suspended_s()
