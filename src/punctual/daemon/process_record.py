"""Record of a process, by which another process can tell later whether it still runs."""

import os
from collections.abc import Mapping
from typing import Any

from punctual.journal.boot import boot_id
from punctual.journal.owner import start_ticks


def process_record(pid: int) -> dict[str, Any]:
    """Return the identity of process `pid`: no later process with its number, nor any other machine's, has the same."""
    return {"pid": pid, "start_ticks": start_ticks(pid), "boot": boot_id(), "machine": os.uname().nodename}


def is_alive(record: Mapping[str, Any]) -> bool:
    """Whether the recorded process runs; False if the record is damaged, or of another machine or boot."""
    pid, ticks = record.get("pid"), record.get("start_ticks")
    # Written down of a process that had just ended, the start is unknown: as it is of every process that is gone.
    if not isinstance(pid, int) or not isinstance(ticks, int) or not is_of_this_boot(record):
        return False
    return start_ticks(pid) == ticks


def is_of_this_boot(record: Mapping[str, Any]) -> bool:
    """Whether the record is of this machine since its last start."""
    return bool(record.get("boot", boot_id()) == boot_id())
