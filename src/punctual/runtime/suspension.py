"""How long the machine was suspended."""

import time

#: What is less is the time between two looks at clocks.
LEAST_S = 1.0


def suspended_s() -> float:
    """Seconds for which this machine was suspended since it was started: its monotonic clock stood still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
