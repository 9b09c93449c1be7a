"""Cores, GPUs and memory that this process may use: the default ceiling of a job, and the capacity of the node."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from punctual.core.resources import Resources
from punctual.executors.local.devices import visible_devices

_CGROUPS = Path("/sys/fs/cgroup")


def capacity_here(n_cpus: int | None = None) -> Resources:
    """Resources of this machine that this process may use; `n_cpus`: CPUs instead of those of its affinity mask."""
    return Resources(usable_cores(n_cpus), usable_gpus(), usable_memory_bytes())


def usable_cores(n_cpus: int | None = None) -> float:
    """CPUs of this process's affinity mask, or the quota of a group that it is in, whichever is less."""
    if not hasattr(os, "sched_getaffinity"):  # not on Linux
        return float(os.cpu_count() or 1)
    n_cpus = len(os.sched_getaffinity(0)) if n_cpus is None else n_cpus
    return min([float(n_cpus), *_quotas(Path("/proc/self/cgroup").read_text(), _CGROUPS)])


def usable_gpus(devices: Path | None = None) -> int:
    """NVIDIA devices of this machine, or those that ``CUDA_VISIBLE_DEVICES`` leaves, whichever are less."""
    return len(visible_devices(devices=devices))


def usable_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), membership: Path = Path("/proc/self/cgroup"), root: Path = _CGROUPS
) -> int:
    """Memory of the machine, or the limit of the control group of this process if that is less; 0: not known."""
    sizes = [int(value.split()[0]) * 1024 for value in _values([meminfo], "MemTotal")]
    with suppress(OSError):
        sizes += _memory_limits(membership.read_text(), root)
    return min(sizes, default=0)


def device_kind(cpus: Path = Path("/proc/cpuinfo"), gpus: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """Kind of this machine, by which learnt speeds are filed: the GPUs' name or, without any, the processor's.

    In letters, digits, ``.`` and ``-``; empty if the machine does not tell.
    """
    names = [*_values(sorted(gpus.glob("*/information")), "Model"), *_values([cpus], "model name")]
    words = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bNVIDIA\b", " ", next(iter(names), ""))
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")


def _values(files: Iterable[Path], key: str) -> Iterator[str]:
    """Yield the values of `key` in the files' lines `key: value`; unreadable files are skipped."""
    for file in files:
        with suppress(OSError):
            lines = (line.partition(":") for line in file.read_text(errors="replace").splitlines())
            yield from (value.strip() for name, _, value in lines if name.strip() == key)


def _quotas(membership: str, root: Path) -> Iterator[float]:
    """The quotas in force, in cores, of the groups listed in `membership` (the text of /proc/self/cgroup)."""
    for folder, is_v2 in _groups("cpu", membership, root):
        names = ("cpu.max",) if is_v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _words(folder / name)]
        if len(words) == 2 and words[0].isdigit():  # in microseconds; "max" and -1 are no limit
            yield int(words[0]) / int(words[1])


def _memory_limits(membership: str, root: Path) -> Iterator[int]:
    """Limits in bytes of the groups listed in `membership`; version 1 shows a huge number for no limit."""
    for folder, is_v2 in _groups("memory", membership, root):
        words = _words(folder / ("memory.max" if is_v2 else "memory.limit_in_bytes"))
        yield from (int(word) for word in words if word.isdigit())


def _groups(controller: str, membership: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of the groups with this controller and of every group around them, and whether they are of version 2."""
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            top, parts = root if controllers == "" else root / controller, [part for part in group.split("/") if part]
            for n_parts in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:n_parts]), controllers == ""


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # the root group has no quota, and a container may not see its own group's folder
        return []
