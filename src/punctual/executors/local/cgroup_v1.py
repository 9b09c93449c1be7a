"""Control groups version 1: the CPU quota of the `cpu` controller, usage from `cpuacct`, memory from `memory`."""

import os
from pathlib import Path

from punctual.core.ids import JobId
from punctual.executors.local.actuator import PERIOD_US, Unusable, limit_us, quota_writes, try_out
from punctual.executors.local.cgroup_files import (
    FOLDER,
    CgroupFiles,
    group_name,
    hierarchy,
    make_dir,
    remove_abandoned,
    write,
)
from punctual.executors.local.freezer import Freezer, folder_in, freezer_of, usable_freezer
from punctual.executors.local.memory import JobMemory, memory_folder_in, memory_of, usable_memory

#: Weight of each core granted against what else runs, of which each process counts 1024.
_SHARES = 2048


class CgroupV1:
    """CPU quotas, where the `cpu` and `cpuacct` hierarchies may be written to.

    * `cpu`, `cpuacct`: folders below which groups are made; None: that hierarchy is not mounted.
    * `freezer`: the same for what pauses jobs; None: signals do.
    * `memory`: the same for what counts and limits memory; None: nothing limits it.
    """

    name = "cgroup-v1"
    can_cap = True
    supervisor_prefix = ()

    def __init__(
        self,
        cpu: Path | None,
        cpuacct: Path | None,
        n_cpus: int | None = None,
        freezer: Path | None = None,
        memory: Path | None = None,
    ) -> None:
        self._cpu = cpu
        self._cpuacct = cpuacct
        self._freezer = freezer
        self._memory = memory
        self._n_cpus = n_cpus or os.cpu_count() or 1

    @classmethod
    def found(cls) -> "CgroupV1":
        """Return the actuator for this machine's hierarchies, below the groups of this process."""
        cpu, cpuacct = hierarchy("cpu"), hierarchy("cpuacct")
        return cls(
            None if cpu is None else cpu.own,
            None if cpuacct is None else cpuacct.own,
            freezer=usable_freezer(),
            memory=usable_memory(),
        )

    @property
    def limits_memory(self) -> bool:
        return self._memory is not None

    def check(self) -> None:
        for controller, folder in (("cpu", self._cpu), ("cpuacct", self._cpuacct)):
            if folder is None:
                raise Unusable(f"no '{controller}' hierarchy is mounted")
            remove_abandoned(folder / FOLDER)
        for place in (self._freezer, self._memory):
            if place is not None:
                remove_abandoned(place / FOLDER)
        try_out(self)

    def open(self, job: JobId, supervisor_pid: int) -> "CgroupV1Group":
        assert self._cpu is not None
        assert self._cpuacct is not None
        name = group_name(job)
        # One folder where both controllers share a hierarchy.
        folders = tuple(dict.fromkeys(parent.resolve() / FOLDER / name for parent in (self._cpu, self._cpuacct)))
        for folder in folders:
            make_dir(folder)
        write(folders[0].parent / "cpu.shares", str(_SHARES * self._n_cpus))
        freezer, memory = (
            None if parent is None else parent / FOLDER / name for parent in (self._freezer, self._memory)
        )
        for other in (freezer, memory):
            if other is not None:
                make_dir(other)
        return self._group(folders[0], folders[-1], freezer, memory, supervisor_pid)

    def find(self, files: CgroupFiles, supervisor_pid: int) -> "CgroupV1Group":
        freezer, memory = folder_in(files), memory_folder_in(files)
        folders = [entrance.parent for entrance in files.cgroup_procs_files if entrance.parent not in (freezer, memory)]
        return self._group(folders[0], folders[-1], freezer, memory, supervisor_pid)

    def _group(
        self, cpu: Path, cpuacct: Path, freezer: Path | None, memory: Path | None, supervisor_pid: int
    ) -> "CgroupV1Group":
        return CgroupV1Group(
            cpu, cpuacct, self._n_cpus, freezer_of(freezer, supervisor_pid), memory_of(memory, supervisor_pid)
        )


class CgroupV1Group:
    """A job's groups; see `punctual.executors.local.actuator.JobGroup`."""

    def __init__(self, cpu: Path, cpuacct: Path, n_cpus: int, freezer: Freezer, memory: JobMemory) -> None:
        self._n_cpus = n_cpus
        self._quota = cpu / "cpu.cfs_quota_us"
        self._period = cpu / "cpu.cfs_period_us"
        self._burst = cpu / "cpu.cfs_burst_us"
        self._shares = cpu / "cpu.shares"
        self._members = cpu / "cgroup.procs"
        folders = tuple(dict.fromkeys((cpu, cpuacct)))
        self._usage = cpuacct / "cpuacct.usage"
        self.freezer, self.memory = freezer, memory
        own = CgroupFiles(
            cgroup_procs_files=tuple(folder / "cgroup.procs" for folder in folders),
            lift=((self._quota, "-1"),),
            usage_file=self._usage,
            remove_dirs=(*folders, *(folder.parent for folder in folders)),
        )
        self.files = own.plus(freezer.files).plus(memory.files)
        write(self._period, str(PERIOD_US))

    def grant(self, cores: float) -> float:
        quota, period = limit_us(cores, self._n_cpus)
        # As in version 2: with equal weights the small grants are used up first, and then a CPU has nothing to do.
        # 2 is the least that the kernel takes.
        shares = max(round(_SHARES * min(cores, self._n_cpus)), 2)
        limits = (
            (self._shares, str(shares)),
            (self._period, str(period)),
            *quota_writes(quota, (self._quota, "-1" if quota is None else str(quota)), self._burst),
        )
        for file, text in limits:
            if file.read_text().strip() != text:
                write(file, text)
        return self.granted_cores()

    def granted_cores(self) -> float:
        quota = int(self._quota.read_text())
        return float(self._n_cpus) if quota < 0 else quota / int(self._period.read_text())

    def used_core_s(self) -> float:
        return int(self._usage.read_text()) / 1e9

    def final_core_s(self, usage: str, core_s: float) -> float:
        return int(usage) / 1e9 if usage else core_s

    def processes(self) -> list[int]:
        return [int(pid) for pid in self._members.read_text().split()]
