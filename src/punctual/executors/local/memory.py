"""The memory of a job: its use, its limit, and kills by the kernel when it runs out."""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from punctual.core.units import format_bytes
from punctual.executors.local.cgroup_files import folder_with, group_to_try, hierarchy, write
from punctual.executors.local.supervisor_files import number_in

#: Memory of files, which the kernel takes back when others need it.
_CACHES = ("active_file", "inactive_file")

#: Counters of a supervisor: processes of the job that the kernel killed to free memory; or those of the whole machine, where no
#: group counts them; the peak of the job, files included; and the memory that it asked for.
OOM_KILLS, MACHINE_OOM_KILLS, PEAK_BYTES, ASKED_BYTES = (
    "oom_kills",
    "machine_oom_kills",
    "peak_bytes",
    "asked_memory_bytes",
)


class JobMemory:
    """The memory of one job, measured seldom enough to cost little.

    Outside a control group that counts it nothing limits it; memory that processes share counts once.

    `processes`: all processes of the job.
    """

    #: Whether the memory can be limited.
    can_limit = False

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes
        #: Counters for its supervisor, see `punctual.executors.local.supervisor_files.GroupFiles`.
        self.counters = {MACHINE_OOM_KILLS: ["/proc/vmstat", "oom_kill"]}
        self._next_at = 0.0
        self._held_bytes = 0
        #: Largest measurement.
        self.peak_bytes = 0

    def limit(self, n_bytes: int) -> None:
        """Limit the memory of the job, before it starts; raises `OSError`. Does nothing where no group limits it."""

    def used_bytes(self) -> int:
        """Memory that its processes hold, without the cache of files; raises `OSError`."""
        return sum(map(_held_bytes, self._processes()))

    def read(self) -> int:
        """Return the bytes held at the last measurement; take a new one if it is due."""
        begun_at = time.monotonic()
        if begun_at >= self._next_at:
            with suppress(OSError, ValueError):  # the group is gone, as it is with the last process
                self._held_bytes = self.used_bytes()
            took_s = time.monotonic() - begun_at
            # Seconds between two measurements, and the part of the time that they may take at most. One takes
            # milliseconds for a large process, or where the machine has many groups.
            self._next_at = begun_at + max(1.0, took_s / 0.01)
            self.peak_bytes = max(self.peak_bytes, self._held_bytes)
        return self._held_bytes


class CgroupMemory(JobMemory):
    """Memory of a control group, counted by the kernel.

    `folder`: folder of the group: of version 2, with a file ``memory.max``, or of the `memory` hierarchy of version 1.
    """

    can_limit = True

    def __init__(self, folder: Path) -> None:
        super().__init__(list)
        self._is_v2 = (folder / "memory.max").exists()
        self._stat = folder / "memory.stat"
        self._used = folder / ("memory.current" if self._is_v2 else "memory.usage_in_bytes")
        self._limit = folder / ("memory.max" if self._is_v2 else "memory.limit_in_bytes")
        self._swap = folder / ("memory.swap.max" if self._is_v2 else "memory.memsw.limit_in_bytes")
        events = folder / ("memory.events" if self._is_v2 else "memory.oom_control")
        peak = folder / ("memory.peak" if self._is_v2 else "memory.max_usage_in_bytes")
        self.counters = {OOM_KILLS: [str(events), "oom_kill"], PEAK_BYTES: [str(peak), ""]}

    def limit(self, n_bytes: int) -> None:
        write(self._limit, str(n_bytes))
        with suppress(OSError):  # a kernel that does not count swap; version 1 limits the sum of both
            self._swap.write_text("0" if self._is_v2 else str(n_bytes))

    def used_bytes(self) -> int:
        prefix = "" if self._is_v2 else "total_"
        cache_bytes = sum(number_in(self._stat.read_text(), prefix + name) for name in _CACHES)
        return max(0, int(self._used.read_text()) - cache_bytes)


def memory_of(folders: Iterable[Path], processes: Callable[[], list[int]]) -> JobMemory:
    """Return the memory of the job with these groups and processes."""
    folder = folder_with(folders, "memory.max", "memory.limit_in_bytes")
    return JobMemory(processes) if folder is None else CgroupMemory(folder)


def usable_memory() -> Path | None:
    """Folder for groups of version 1 that count memory; None: no such group can be made."""
    if (tree := hierarchy("memory")) is not None:
        with suppress(OSError), group_to_try(tree.own) as folder:
            CgroupMemory(folder).limit(1 << 30)
            return tree.own
    return None


def not_limited(asked_bytes: int) -> str:
    """Return the warning that nothing limits the memory of a job."""
    return (
        f"it may use more memory than the {format_bytes(asked_bytes)} that it asked for (`--memory`): what it asked for is kept "
        "free of other jobs, and no control group that limits memory can be made here"
    )


def lack_of_memory(counted: Mapping[str, int], code: int, seen_bytes: int) -> tuple[str, bool] | None:
    """Return why a job failed, if the kernel killed a process of it to free memory; None: it did not, as far as known.

    * `counted`: counters from its supervisor, see `OOM_KILLS`.
    * `code`: its exit code, as a shell has it.
    * `seen_bytes`: the most that it was seen to hold.

    Returns why, as a clause; and whether it needed more than it asked for.
    """
    is_surely = counted.get(OOM_KILLS, 0) > 0
    if not is_surely and not (counted.get(MACHINE_OOM_KILLS, 0) > 0 and code == 128 + signal.SIGKILL):
        return None
    asked_bytes, peak_bytes = counted.get(ASKED_BYTES, 0), counted.get(PEAK_BYTES, 0)
    # The kernel hands memory out in batches: a group that has run into its limit may be seen a little below it.
    if asked_bytes and max(peak_bytes, seen_bytes) >= 0.95 * asked_bytes:
        held = format_bytes(max(seen_bytes, min(peak_bytes, asked_bytes)))
        why = f"its processes held {held} of the {format_bytes(asked_bytes)} that it asked for (`--memory`)"
        return f"out of memory: {why}, and the kernel killed one of them", True
    held = f", when its processes had held up to {format_bytes(seen_bytes)}" if seen_bytes else ""
    who = "the kernel killed one of them" if is_surely else "the kernel killed processes, probably this one too"
    return f"out of memory: the machine had no more{held}, and {who}", False


def _held_bytes(pid: int) -> int:
    """Memory that a process holds; shared memory counts in part, or in full where the kernel does not tell the part."""
    for file, names in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        with suppress(OSError):
            text = Path(f"/proc/{pid}/{file}").read_text()
            if n_kib := sum(number_in(text, name) for name in names):
                return n_kib * 1024
    return 0
