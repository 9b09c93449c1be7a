"""Files and control groups of a job, for its supervisor, a program of its own; standard library only."""

import errno
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: Suffix of the name of a file that is being written.
UNFINISHED = ".new"


@dataclass(kw_only=True)
class GroupFiles:
    """Files of a job's control groups.

    * `cgroup_procs_files`: files that a process writes its id to in order to enter the groups.
    * `lift`: (File, text) pairs whose writing takes the quota away and resumes a paused job.
    * `usage_file`: file with the CPU time used, whose text is reported at the end.
    * `counters`: by name: a file, and the first word of its line that ends with the number; empty: the file is the
      number.
    * `remove_dirs`: removed at the end; folders that others still use stay.
    """

    cgroup_procs_files: list[str] = field(default_factory=list)
    lift: list[list[str]] = field(default_factory=list)
    usage_file: str | None = None
    counters: dict[str, list[str]] = field(default_factory=dict)
    remove_dirs: list[str] = field(default_factory=list)


def mark_of(path: str) -> str:
    """Return the identity of a file, which differs from that of any later file at its path; empty: there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_ino} {status.st_mtime_ns}"


def clear_up(folders: Iterable[str], files: Iterable[Sequence[str]]) -> None:
    """Remove a job's control groups, and files unless others were made in their place: paths and marks."""
    for folder in folders:
        remove_groups_of_commands(folder)
        remove_dir(folder)
    for path, mark in files:
        if mark_of(path) == mark:
            try:
                os.unlink(path)
            except OSError:  # it has just been removed
                pass


def remove_groups_of_commands(folder: str) -> None:
    """Remove the groups of commands that were killed; the others are in use."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith("-command"):
            try:
                os.rmdir(f"{folder}/{name}")
            except OSError:
                pass


def remove_dir(folder: str) -> None:
    """Remove a control group, which stays busy for a moment after its last process has gone."""
    for _ in range(20):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.EBUSY or _holds_groups(folder):
                return
            time.sleep(0.01)
        else:
            return


def _holds_groups(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_dir() for entry in entries)
    except OSError:
        return False


def write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:  # the group is gone: there is nothing left to lift
        pass


def reserve(path: str | None, n_bytes: int) -> None:
    """Reserve the space on the disk that `write_whole` will need for the file."""
    if path is None:
        return
    try:
        with open(path + UNFINISHED, "wb", opener=_for_its_user) as file:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
    except OSError:  # the disk is full already; there may be room by then
        pass


def _for_its_user(path: str, flags: int) -> int:
    """Open a file for its user only: it holds a job's page, and perhaps a key."""
    return os.open(path, flags, 0o600)


def write_whole(path: str | None, text: str) -> bool:
    """Write a file completely or not at all, into the space that was reserved for it.

    False: writing failed, and another process may need the file; not if it has no path or its folder is gone.
    """
    if path is None:
        return True
    try:
        with open(_for_its_user(path + UNFINISHED, os.O_WRONLY | os.O_CREAT), "w") as file:
            file.write(text)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + UNFINISHED, path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True


def read(path: str | None) -> str:
    try:
        with open(path or "", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class Counters:
    """Numbers in files, as `GroupFiles` lists them; 0 if a file has none."""

    def __init__(self, places: dict[str, list[str]]) -> None:
        self._places = places
        self._before = self._now()

    def more(self) -> dict[str, int]:
        """Growth of each number since the start."""
        return {name: number - self._before[name] for name, number in self._now().items()}

    def _now(self) -> dict[str, int]:
        return {name: number_in(read(path), word) for name, (path, word) in self._places.items()}


def number_in(text: str, name: str) -> int:
    """Return the number after `name` in the line that begins with it; empty: the line is the number. 0: there is none."""
    for line in text.splitlines():
        words = [*line.split(), ""] if name else ["", line.strip()]
        if words[0] == name and words[1].isdigit():
            return int(words[1])
    return 0
