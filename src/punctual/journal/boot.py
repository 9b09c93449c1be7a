"""Instants over restarts of the machine, whose monotonic clock begins again at each of them.

A journal keeps one time of its own: its instants go on where they stopped, also after the machine was started again.
Within one boot of the machine, journal time is the monotonic clock plus a constant, which is 0 as long as the machine
that began the journal runs. Wall time connects one boot with the next.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRecord:
    """What relates the instants of a journal to other clocks.

    Attributes
    ----------
    boot_id
        Which boot of which machine; empty where that is not known.
    wall_offset_s
        Wall time (seconds since 1970) minus the monotonic clock.
    shift_s
        What is added to an instant of the journal to get the monotonic clock of that boot.
    """

    boot_id: str
    wall_offset_s: float
    shift_s: float = 0.0

    def wall_at(self, at: float) -> float:
        """Wall time, in seconds since 1970, of instant `at` of the journal."""
        return at + self.shift_s + self.wall_offset_s


class _HasClock(Protocol):
    @property
    def clock(self) -> ClockRecord | None: ...


def clock_now() -> ClockRecord:
    """The clocks of this machine, since it was started last."""
    return ClockRecord(boot_id=boot_id(), wall_offset_s=time.time() - time.monotonic())


def shift_between(recorded: ClockRecord | None, now: ClockRecord) -> float:
    """What is added to instants that were recorded under `recorded` to get the monotonic clock of `now`, in seconds.

    Within one boot, changes of the wall clock do not matter.
    """
    if recorded is None:
        return 0.0
    if recorded.boot_id == now.boot_id:
        return recorded.shift_s
    return recorded.shift_s + recorded.wall_offset_s - now.wall_offset_s


def clock_shift(journal: _HasClock, now: ClockRecord | None = None) -> float:
    """What is added to the instants of `journal` to get today's monotonic clock, in seconds.

    0 as long as the machine was not started again. Whoever writes the journal on writes the monotonic clock minus
    this.

    Parameters
    ----------
    now
        For tests; None: `clock_now`.
    """
    return shift_between(journal.clock, now or clock_now())


@cache
def boot_id() -> str:
    """What this machine is called from its start to its end, and no other ever; empty where that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
