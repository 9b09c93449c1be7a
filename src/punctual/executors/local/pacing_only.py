"""Actuator without enforcement: the job slows itself by pacing, and its usage is that of its process tree."""

import os

from punctual.core.ids import JobId
from punctual.executors.local.cgroup_files import CgroupFiles
from punctual.executors.local.freezer import Freezer, SignalFreezer
from punctual.executors.local.memory import JobMemory, memory_of
from punctual.executors.local.process_tree import TreeUsage


class PacingOnly:
    """Needs no rights; the job itself keeps to its grant."""

    name = "pacing"
    can_cap = limits_memory = False
    keeper_prefix = ()

    def check(self) -> None:
        """Accept every machine: pacing is usable everywhere."""

    def open(self, job: JobId, keeper_pid: int) -> "PacingOnlyGroup":
        return PacingOnlyGroup(keeper_pid)

    def find(self, files: CgroupFiles, keeper_pid: int) -> "PacingOnlyGroup":
        return PacingOnlyGroup(keeper_pid)


class PacingOnlyGroup:
    """The processes below the keeper; see `punctual.executors.local.actuator.JobGroup`."""

    def __init__(self, keeper_pid: int) -> None:
        self._cores = float(os.cpu_count() or 1)
        self._usage = TreeUsage(keeper_pid)
        self.freezer: Freezer = SignalFreezer(self._usage.processes)
        self.memory: JobMemory = memory_of(None, keeper_pid)
        self.files = self.memory.files

    def grant(self, cores: float) -> float:
        self._cores = min(cores, float(os.cpu_count() or 1))
        return self._cores

    def granted_cores(self) -> float:
        return self._cores

    def used_core_s(self) -> float:
        return self._usage.used_core_s()

    def final_core_s(self, usage: str, core_s: float) -> float:
        return max(core_s, self._usage.used_core_s())

    def processes(self) -> list[int]:
        return self._usage.processes()
