"""Which process is meant, written down so that another process can tell later whether it is still there."""

import os
from collections.abc import Mapping
from typing import Any

from punctual.journal.boot import boot_id
from punctual.journal.owner import start_ticks


def process_record(pid: int) -> dict[str, Any]:
    """What tells process `pid` from every other: also from a later one with its number, and from those elsewhere."""
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot": boot_id(), "machine": os.uname().nodename}


def is_alive(record: Mapping[str, Any]) -> bool:
    """Whether the process of `record` is there; not if it is damaged, or of another machine or start of this one."""
    pid, ticks = record.get("pid"), record.get("start_ticks")
    # Written down of a process that had just ended, the start is unknown: as it is of every process that is gone.
    if not isinstance(pid, int) or not isinstance(ticks, int) or not is_of_this_boot(record):
        return False
    return start_ticks(pid) == ticks


def is_of_this_boot(record: Mapping[str, Any]) -> bool:
    """Whether what is written there is of this machine, and of the time since it was started."""
    return bool(record.get("boot", boot_id()) == boot_id())
