"""Control groups version 2: `cpu.max` and `memory.max` in a subtree that may be written to, or in a scope of the user's systemd."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from punctual.core.ids import JobId
from punctual.core.units import span
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
from punctual.executors.local.freezer import Freezer, freezer_of
from punctual.executors.local.memory import JobMemory, memory_of

#: Group for processes that must leave a group so that its children can be limited.
_ASIDE = "punctual-controller"
_SYSTEMD_S_MAX = 5.0
#: Exists where systemd runs the machine.
_RUNS_SYSTEMD = Path("/run/systemd/system")
#: Run in a scope of its own: prints the controllers that were delegated to it.
_LOOK = """
import sys
group = next(line.split(":", 2)[2] for line in open("/proc/self/cgroup").read().splitlines() if line.startswith("0:"))
print(open(sys.argv[1] + group + "/cgroup.controllers").read())
"""


class CgroupV2:
    """CPU quotas below one group.

    `base`: the group below which those of jobs are made: a delegated one, or the root; None: not mounted.
    """

    name = "cgroup-v2"
    can_cap = True
    supervisor_prefix = ()

    def __init__(self, base: Path | None, n_cpus: int | None = None) -> None:
        self._base = base
        self._n_cpus = n_cpus or os.cpu_count() or 1

    @classmethod
    def found(cls) -> "list[CgroupV2]":
        """Return actuators below the group of this process, and below the root."""
        tree = hierarchy("")
        if tree is None:
            return [cls(None)]
        return [cls(base) for base in dict.fromkeys((tree.own, tree.mount))]

    @property
    def limits_memory(self) -> bool:
        return self._base is not None and "memory" in _words(self._base / "cgroup.controllers")

    def check(self) -> None:
        if self._base is None:
            raise Unusable("no version 2 hierarchy is mounted")
        if "cpu" not in _words(self._base / "cgroup.controllers"):
            raise Unusable(f"'{self._base / 'cgroup.controllers'}' does not list the cpu controller")
        remove_abandoned(self._base / FOLDER)
        try_out(self)

    def open(self, job: JobId, supervisor_pid: int) -> "CgroupV2Group":
        assert self._base is not None
        step_aside(self._base, {os.getpid()})
        enable_controllers(self._base)
        folder = self._base / FOLDER / group_name(job)
        make_dir(folder)
        enable_controllers(folder.parent)
        _weigh(folder.parent, self._n_cpus)
        return CgroupV2Group(folder, self._n_cpus, (folder, folder.parent), supervisor_pid)

    def find(self, files: CgroupFiles, supervisor_pid: int) -> "CgroupV2Group":
        return CgroupV2Group(files.cgroup_procs_files[0].parent, self._n_cpus, files.remove_dirs, supervisor_pid)


class CgroupV2Group:
    """A job's group; see `punctual.executors.local.actuator.JobGroup`."""

    def __init__(self, folder: Path, n_cpus: int, remove_dirs: tuple[Path, ...], supervisor_pid: int) -> None:
        self._n_cpus = n_cpus
        self._folder = folder
        self._quota = folder / "cpu.max"
        self._burst = folder / "cpu.max.burst"
        self._members = folder / "cgroup.procs"
        self._usage = folder / "cpu.stat"
        self.freezer: Freezer = freezer_of(folder, supervisor_pid)
        self.memory: JobMemory = memory_of(folder, supervisor_pid)
        self.files = CgroupFiles(
            cgroup_procs_files=(self._members,),
            lift=((self._quota, f"max {PERIOD_US}"), *self.freezer.files.lift),
            usage_file=self._usage,
            remove_dirs=remove_dirs,
            counters=self.memory.files.counters,
        )

    def grant(self, cores: float) -> float:
        quota, period = limit_us(cores, self._n_cpus)
        limit = self._quota, f"{'max' if quota is None else quota} {period}"
        _weigh(self._folder, min(cores, self._n_cpus))
        for file, text in quota_writes(quota, limit, self._burst):
            if _words(file) != text.split():
                write(file, text)
        return self.granted_cores()

    def granted_cores(self) -> float:
        quota, period = self._quota.read_text().split()
        return float(self._n_cpus) if quota == "max" else int(quota) / int(period)

    def used_core_s(self) -> float:
        return _usage_core_s(self._usage.read_text())

    def final_core_s(self, usage: str, core_s: float) -> float:
        return _usage_core_s(usage) if usage else core_s

    def processes(self) -> list[int]:
        return [int(pid) for pid in self._members.read_text().split()]


class UserScope:
    """CPU quotas without root rights: in a transient scope that the user's systemd delegates, and removes with its last process.

    `mount`: folder at which version 2 is mounted; None: it is not.
    """

    name = "cgroup-v2"
    can_cap = True
    supervisor_prefix = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--")

    def __init__(self, mount: Path | None, n_cpus: int | None = None) -> None:
        self._mount = mount
        self._n_cpus = n_cpus or os.cpu_count() or 1
        self.limits_memory = False

    @classmethod
    def found(cls) -> "UserScope":
        """Return the actuator for the mounted version 2, if any."""
        tree = hierarchy("")
        return cls(None if tree is None else tree.mount)

    def check(self) -> None:
        if self._mount is None:
            raise Unusable("no version 2 hierarchy is mounted")
        if shutil.which("systemd-run") is None or not _RUNS_SYSTEMD.exists():
            raise Unusable("no systemd that could delegate a scope to this user")
        look = [*self.supervisor_prefix, sys.executable, "-I", "-S", "-c", _LOOK, str(self._mount)]
        try:
            answer = subprocess.run(look, capture_output=True, text=True, timeout=_SYSTEMD_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise Unusable(f"the user's systemd did not answer in {span(_SYSTEMD_S_MAX)}") from None
        if answer.returncode:
            raise Unusable(f"the user's systemd refused a scope ({answer.stderr.strip()})")
        self.limits_memory = "memory" in answer.stdout.split()
        if "cpu" not in answer.stdout.split():
            raise Unusable("the user's systemd does not delegate the cpu controller")

    def open(self, job: JobId, supervisor_pid: int) -> CgroupV2Group:
        assert self._mount is not None
        membership = Path(f"/proc/{supervisor_pid}/cgroup").read_text()
        scope = hierarchy("", membership=membership)
        assert scope is not None
        step_aside(scope.own, {supervisor_pid})
        enable_controllers(scope.own)
        folder = scope.own / "job"
        folder.mkdir()
        return CgroupV2Group(folder, self._n_cpus, (folder,), supervisor_pid)

    def find(self, files: CgroupFiles, supervisor_pid: int) -> CgroupV2Group:
        return CgroupV2Group(files.cgroup_procs_files[0].parent, self._n_cpus, files.remove_dirs, supervisor_pid)


def step_aside(base: Path, own_pids: set[int]) -> None:
    """Move `own_pids` into a group of their own if `base` has no other processes.

    Except in the root, a group with processes of its own cannot have limited groups below it.
    """
    members = {int(pid) for pid in _words(base / "cgroup.procs")}
    if not members or not members <= own_pids or not (base / "cgroup.type").exists():
        return
    aside = base / _ASIDE
    aside.mkdir(exist_ok=True)
    for pid in members:
        write(aside / "cgroup.procs", str(pid))


def enable_controllers(folder: Path) -> None:
    """Enable quotas, and limits of memory if possible, for the groups below `folder`; raises `OSError`."""
    switch = folder / "cgroup.subtree_control"
    if "cpu" not in _words(switch):
        write(switch, "+cpu")
    if "memory" in _words(folder / "cgroup.controllers") and "memory" not in _words(switch):
        with suppress(OSError):
            switch.write_text("+memory")


def _weigh(folder: Path, cores: float) -> None:
    """Set the weight above that of other programs, and in proportion to the grant among jobs.

    With equal weights all jobs run until the small ones have used their quotas; what is left of the period is too short
    for the large ones, and one of the CPUs has nothing to do.
    """
    # Weight of each core granted against what else runs, which counts 100, and the largest the kernel takes.
    file, weight = folder / "cpu.weight", str(min(max(round(200 * cores), 1), 10_000))
    if _words(file) != [weight]:
        write(file, weight)


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _usage_core_s(text: str) -> float:
    for line in text.splitlines():
        name, _, amount = line.partition(" ")
        if name == "usage_usec":
            return int(amount) / 1e6
    return 0.0
