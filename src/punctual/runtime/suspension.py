"""How long the machine was suspended."""

import time
from collections.abc import Mapping
from typing import Any

from punctual.store.boot import boot_id

#: What is less is the time between two looks at clocks.
LEAST_S = 1.0


def suspended_s() -> float:
    """Seconds for which this machine was suspended since it was started: its monotonic clock stood still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def told_suspended(made_up_s: float) -> dict[str, Any]:
    """In the record of a run: for how many seconds of suspension its deadlines have been made up."""
    return {"suspended": {"boot": boot_id(), "made_up_s": made_up_s}}


def made_up_s(facts: Mapping[str, Any]) -> float:
    """What the record of a run says of that; all, where it says nothing of the time since the machine was started."""
    told = facts.get("suspended", {})
    return float(told["made_up_s"]) if told.get("boot") == boot_id() else suspended_s()
