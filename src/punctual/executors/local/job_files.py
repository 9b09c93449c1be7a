"""Files of a job that outlive the process that steers it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from punctual.channel import EXIT_PREEMPTED
from punctual.core.ids import JobId
from punctual.executors.json_files import read_json
from punctual.executors.local.cgroup_files import file_name
from punctual.executors.local.supervisor_files import UNFINISHED


def takeover_socket_of(folder: Path, job: JobId) -> Path:
    """Path of the takeover socket of the job's supervisor."""
    return folder / f"{file_name(job)}.keeper"


def being_written(end_file: Path) -> Path:
    """Path of the unfinished record that a supervisor leaves if it is killed while it writes its last line."""
    return Path(f"{end_file}{UNFINISHED}")


def read_end(path: Path | None) -> dict[str, Any] | None:
    """Read the last line of an ended job's supervisor, with the boot id of that time; None: the job has not ended."""
    line: dict[str, Any] | None = None if path is None else read_json(path)
    return line


def has_left(last: Mapping[str, Any] | None) -> bool:
    """Whether the process has made a checkpoint and left as asked, to be continued from it."""
    return last is not None and last.get("ended") == EXIT_PREEMPTED
