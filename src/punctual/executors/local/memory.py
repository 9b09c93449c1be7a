"""The memory of a job: what its processes hold, the limit on it, and whether the kernel has ended one for want of it."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from punctual.core.ids import JobId
from punctual.core.units import format_bytes
from punctual.executors.local.cgroup_files import FOLDER, CgroupFiles, group_name, make_dir, remove_dir
from punctual.executors.local.mounts import hierarchy
from punctual.executors.local.process_tree import TreeUsage

#: Seconds between two looks at what a job holds, and the most of the time that they may take: for a large process, or where
#: there are many groups, one takes milliseconds.
_PERIOD_S, _COST_FRAC = 1.0, 0.01
#: The kernel hands memory out in batches: a group that has run into its limit may be seen a little below it.
_AT_LIMIT_FRAC = 0.95
#: Of a process that SIGKILL has ended.
_SIGKILL = 128 + 9
#: Memory of files, which the kernel takes back when others need it.
_CACHES = ("active_file", "inactive_file")

#: What a keeper counts of a job: how many of its processes the kernel has ended for want of memory, or, where nobody tells
#: whose they were, how many of this machine; the most that it has held, files included; and what it asked for.
OOM_KILLS, MACHINE_OOM_KILLS, PEAK_BYTES, ASKED_BYTES = (
    "oom_kills",
    "machine_oom_kills",
    "peak_bytes",
    "asked_memory_bytes",
)


class JobMemory(Protocol):
    """The memory of one job."""

    @property
    def files(self) -> CgroupFiles:
        """The files of a group that it needs beside those of the quota."""
        ...

    @property
    def can_limit(self) -> bool:
        """Whether there can be a limit."""
        ...

    def limit(self, n_bytes: int) -> None:
        """Let the job hold no more, from its start on; raises `OSError`."""
        ...

    def used_bytes(self) -> int:
        """Memory that its processes hold, without what the kernel keeps of files; raises `OSError`."""
        ...


class CgroupMemory:
    """A group whose memory the kernel counts.

    Parameters
    ----------
    folder
        Of the group: of version 2, which has a file ``memory.max``, or of the `memory` hierarchy of version 1.
    """

    can_limit = True

    def __init__(self, folder: Path) -> None:
        self._is_v2 = (folder / "memory.max").exists()
        self._stat = folder / "memory.stat"
        self._used = folder / ("memory.current" if self._is_v2 else "memory.usage_in_bytes")
        self._limit = folder / ("memory.max" if self._is_v2 else "memory.limit_in_bytes")
        self._swap = folder / ("memory.swap.max" if self._is_v2 else "memory.memsw.limit_in_bytes")
        events = folder / ("memory.events" if self._is_v2 else "memory.oom_control")
        peak = folder / ("memory.peak" if self._is_v2 else "memory.max_usage_in_bytes")
        self.files = CgroupFiles(
            entrances=(folder / "cgroup.procs",),
            remove_dirs=(folder, folder.parent),
            counters=((OOM_KILLS, events, "oom_kill"), (PEAK_BYTES, peak, "")),
        )

    def limit(self, n_bytes: int) -> None:
        self._limit.write_text(str(n_bytes))
        with suppress(OSError):  # a kernel that does not count swap; version 1 limits the sum of both
            self._swap.write_text("0" if self._is_v2 else str(n_bytes))

    def used_bytes(self) -> int:
        prefix = "" if self._is_v2 else "total_"
        cache_bytes = sum(_number(self._stat.read_text(), prefix + name) for name in _CACHES)
        return max(0, int(self._used.read_text()) - cache_bytes)


class TreeMemory:
    """Processes whose memory nobody limits; what several of them share is counted once.

    Parameters
    ----------
    processes
        All processes of the job.
    """

    can_limit = False
    files = CgroupFiles(counters=((MACHINE_OOM_KILLS, Path("/proc/vmstat"), "oom_kill"),))

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes

    def limit(self, n_bytes: int) -> None:
        """There is none."""

    def used_bytes(self) -> int:
        return sum(map(_held_bytes, self._processes()))


class MemoryGauge:
    """What a job holds, looked at so seldom that it costs little."""

    def __init__(self, memory: JobMemory) -> None:
        self._memory = memory
        self._next_at = 0.0
        self._used_bytes = 0
        #: The most that was seen.
        self.peak_bytes = 0

    def read(self) -> int:
        """Bytes held, as last looked at."""
        begun_at = time.monotonic()
        if begun_at >= self._next_at:
            with suppress(OSError, ValueError):  # the group is gone, as it is with the last process
                self._used_bytes = self._memory.used_bytes()
            took_s = time.monotonic() - begun_at
            self._next_at = begun_at + max(_PERIOD_S, took_s / _COST_FRAC)
            self.peak_bytes = max(self.peak_bytes, self._used_bytes)
        return self._used_bytes


def memory_of(folder: Path | None, keeper_pid: int) -> JobMemory:
    """The memory of the job whose group is `folder` and whose processes are below a keeper."""
    if folder is not None and any((folder / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
        return CgroupMemory(folder)
    return TreeMemory(TreeUsage(keeper_pid).processes)


def usable_memory() -> Path | None:
    """Where groups of version 1 whose memory is counted may be made; None: nowhere."""
    tree = hierarchy("memory")
    if tree is None:
        return None
    folder = tree.own / FOLDER / group_name(JobId("try"))
    try:
        make_dir(folder)
        CgroupMemory(folder).limit(1 << 30)
    except OSError:
        return None
    finally:
        remove_dir(folder)
        remove_dir(folder.parent)
    return tree.own


def memory_folder_in(files: CgroupFiles) -> Path | None:
    """The group of version 1 in `files` that counts memory; None: there is none."""
    folders = [entrance.parent for entrance in files.entrances]
    return next((folder for folder in folders if (folder / "memory.limit_in_bytes").exists()), None)


def not_limited(asked_bytes: int) -> str:
    """That a job may use more than it has asked for."""
    return (
        f"it may use more memory than the {format_bytes(asked_bytes)} that it asked for (`--memory`): what it asked for is kept "
        "free of other jobs, and no control group that limits memory can be made here"
    )


def lack_of_memory(counted: Mapping[str, int], code: int, seen_bytes: int) -> tuple[str, bool] | None:
    """Why a process has ended that the kernel ended, or a child of it, for want of memory; None: it did not, as far as known.

    Parameters
    ----------
    counted
        By its keeper, see `OOM_KILLS`.
    code
        Its exit code, as a shell has it.
    seen_bytes
        The most that it was seen to hold.

    Returns
    -------
    tuple of str and bool
        Why, as a clause; and whether it needed more than it asked for.
    """
    is_surely = counted.get(OOM_KILLS, 0) > 0
    if not is_surely and not (counted.get(MACHINE_OOM_KILLS, 0) > 0 and code == _SIGKILL):
        return None
    asked_bytes, peak_bytes = counted.get(ASKED_BYTES, 0), counted.get(PEAK_BYTES, 0)
    if asked_bytes and max(peak_bytes, seen_bytes) >= _AT_LIMIT_FRAC * asked_bytes:
        held = format_bytes(max(seen_bytes, min(peak_bytes, asked_bytes)))
        why = f"its processes held {held} of the {format_bytes(asked_bytes)} that it asked for (`--memory`)"
        return f"out of memory: {why}, and the kernel killed one of them", True
    held = f", when its processes had held up to {format_bytes(seen_bytes)}" if seen_bytes else ""
    who = "the kernel killed one of them" if is_surely else "the kernel killed processes, probably this one too"
    return f"out of memory: the machine had no more{held}, and {who}", False


def _held_bytes(pid: int) -> int:
    """Memory that a process holds, as its part of what it shares; where that is not told, with all that it shares."""
    for file, names in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/{file}").read_text()
            if n_kib := sum(_number(text, name) for name in names):
                return n_kib * 1024
    return 0


def _number(text: str, name: str) -> int:
    """What the line of `text` that begins with `name` says; 0: there is none."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    return 0
