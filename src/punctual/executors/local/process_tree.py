"""CPU time of processes, measured from outside."""

import os
import time
from pathlib import Path

from punctual.executors.local.job_signals import descendants, stat_of

#: Unit of the times that the kernel adds up for ended children.
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Whether the kernel lists the children of a thread; without that, all processes must be searched.
_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()


def cpu_clock_ns(pid: int) -> int | None:
    """Return the CPU clock of a process, all its threads included; None: there is no such process."""
    # The kernel takes the number of a process's clock for any process: its complement, and 2 for time as scheduled.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except (OSError, OverflowError):  # there is none, or can be none
        return None


def active_s(pid: int) -> float:
    """Seconds in which the main thread of a process computed or waited for a processor, by the scheduler's statistics.

    The time in which a quota kept it from computing counts as well. 0: the system tells no such thing.
    """
    try:
        computed_ns, queued_ns, _ = Path(f"/proc/{int(pid)}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return (int(computed_ns) + int(queued_ns)) / 1e9


class TreeUsage:
    """CPU time of all processes below `root`, including ended ones that their parents have waited for.

    It never falls, although a process's time is out of sight for a moment while its parent takes it over.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._used_core_s = 0.0

    def used_core_s(self) -> float:
        """CPU seconds up to now."""
        used_core_s = _ended_children_core_s(self._root)
        for pid in self.processes():
            used_core_s += (cpu_clock_ns(pid) or 0) / 1e9 + _ended_children_core_s(pid)
        self._used_core_s = max(self._used_core_s, used_core_s)
        return self._used_core_s

    def processes(self) -> list[int]:
        """Return all processes below the root."""
        if not _LISTS_CHILDREN:
            return descendants(self._root)
        found: list[int] = []
        last = _children(self._root)
        while last:
            found += last
            last = [child for pid in last for child in _children(pid)]
        return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += [int(word) for word in (thread / "children").read_text().split()]
    except OSError:  # the process has ended
        pass
    return children


def _ended_children_core_s(pid: int) -> float:
    """User and system time of a process's ended children, in seconds."""
    fields = stat_of(pid)
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_S if fields else 0.0


def state_of(pid: int) -> str:
    """Return the kernel's letter for the process's state; Z also if it is gone."""
    return next(iter(stat_of(pid)), "Z")
