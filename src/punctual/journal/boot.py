"""Instants over restarts of the machine, whose monotonic clock begins again at each of them.

A journal keeps one time of its own: its instants go on where they stopped, also after the machine was started again.
Within one boot of the machine, journal time is the monotonic clock plus a constant, which is 0 as long as the machine
that began the journal runs. Wall time connects one boot with the next.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRecord:
    """Relation of a journal's instants to other clocks.

    * `boot_id`: identity of the machine's boot; empty if unknown.
    * `wall_offset_s`: wall time (seconds since 1970) minus the monotonic clock.
    * `shift_s`: seconds to add to an instant of the journal to get the monotonic clock of that boot.
    """

    boot_id: str
    wall_offset_s: float
    shift_s: float = 0.0


def clock_now() -> ClockRecord:
    """The clocks of this machine, since it was started last."""
    return ClockRecord(boot_id=boot_id(), wall_offset_s=time.time() - time.monotonic())


def clock_shift(recorded: ClockRecord | None, now: ClockRecord | None = None) -> float:
    """Seconds to add to instants recorded under a journal's clock to get today's monotonic clock; no record: none.

    0 until the machine is restarted: within one boot, changes of the wall clock do not matter. A process that continues
    the journal writes the monotonic clock minus this.

    `now`: None: `clock_now`.
    """
    if recorded is None:
        return 0.0
    now = now or clock_now()
    if recorded.boot_id == now.boot_id:
        return recorded.shift_s
    return recorded.shift_s + recorded.wall_offset_s - now.wall_offset_s


def suspended_s() -> float:
    """Seconds for which this machine was suspended since its start: its monotonic clock stood still meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


@cache
def boot_id() -> str:
    """Return the unique name of this boot of the machine; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
