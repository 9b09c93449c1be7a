"""Actuators by control groups: version 1, version 2, and version 2 in a scope that the user's systemd delegates."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.units import span
from punctual.executors.local.actuator import Actuator, Choice, JobGroup, Unusable, choose
from punctual.executors.local.cgroup_files import (
    FOLDER,
    bring_to,
    folder_with,
    group_name,
    hierarchy,
    make_dir,
    remove_abandoned,
    remove_dir,
    words,
    write,
)
from punctual.executors.local.freezer import usable_freezer
from punctual.executors.local.memory import usable_memory
from punctual.executors.local.supervisor_files import GroupFiles, number_in

#: A longer period makes a job advance in jerks, and gives away more when a quota is written: each write refills it.
PERIOD_US = 20_000
#: The kernel takes no shorter quota.
_QUOTA_US_MIN = 1_000
#: Weight of each core granted against what else runs, of which each process counts 1024. With equal weights all jobs run
#: until the small ones have used their quotas; what is left of the period is too short for the large ones, and one of the
#: CPUs has nothing to do.
_SHARES = 2048
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


class CgroupGroup(JobGroup):
    """A job's control groups; the first of `folders` has its quota.

    * `quota`: file of the quota, and the text that lifts it.
    * `usage`: file with the CPU time used.
    * `remove_dirs`: folders to remove at the job's end.
    """

    def __init__(
        self,
        supervisor_pid: int,
        folders: Sequence[Path],
        quota: tuple[Path, str],
        usage: Path,
        remove_dirs: Iterable[Path],
    ) -> None:
        super().__init__(supervisor_pid, folders)
        self._usage_file = usage
        self._quota, unlimited = quota
        self.files = GroupFiles(
            cgroup_procs_files=[str(folder / "cgroup.procs") for folder in folders],
            lift=[[str(self._quota), unlimited], *self.freezer.lift],
            usage_file=str(usage),
            counters=self.memory.counters,
            remove_dirs=list(map(str, remove_dirs)),
        )

    def grant(self, cores: float) -> float:
        quota_us, period_us = limit_us(cores, self._n_cpus)
        for file, text in self._limits(min(cores, self._n_cpus), quota_us, period_us):
            bring_to(file, text)
        return self.granted_cores()

    def used_core_s(self) -> float:
        return self._core_s(self._usage_file.read_text())

    def final_core_s(self, usage: str, core_s: float) -> float:
        return self._core_s(usage) if usage else core_s

    def processes(self) -> list[int]:
        return [int(pid) for pid in self._quota.with_name("cgroup.procs").read_text().split()]

    def _limits(self, cores: float, quota_us: int | None, period_us: int) -> list[tuple[Path, str]]:
        """List the files and texts that set the weight and the quota for `cores`; quota None: none is needed."""
        raise NotImplementedError

    def _core_s(self, usage: str) -> float:
        """CPU seconds by the text of the usage file."""
        raise NotImplementedError


class CgroupV1(Actuator):
    """CPU quotas, where the `cpu` and `cpuacct` hierarchies may be written to.

    * `cpu`, `cpuacct`: folders below which groups are made; None: that hierarchy is not mounted.
    * `freezer`: the same for what pauses jobs; None: signals do.
    * `memory`: the same for what counts and limits memory; None: nothing limits it.
    """

    name = "cgroup-v1"
    can_cap = True

    def __init__(
        self, cpu: Path | None, cpuacct: Path | None, freezer: Path | None = None, memory: Path | None = None
    ) -> None:
        self._parents = {"cpu": cpu, "cpuacct": cpuacct, "freezer": freezer, "memory": memory}
        self.limits_memory = memory is not None

    @classmethod
    def found(cls) -> "CgroupV1":
        """Return the actuator for this machine's hierarchies, below the groups of this process."""
        cpu, cpuacct = (None if (tree := hierarchy(name)) is None else tree.own for name in ("cpu", "cpuacct"))
        return cls(cpu, cpuacct, freezer=usable_freezer(), memory=usable_memory())

    def check(self) -> None:
        for controller, parent in self._parents.items():
            if parent is not None:
                remove_abandoned(parent / FOLDER)
            elif controller in ("cpu", "cpuacct"):
                raise Unusable(f"no '{controller}' hierarchy is mounted")
        try_out(self)

    def open(self, job: JobId, supervisor_pid: int) -> JobGroup:
        name = group_name(job)
        # One folder where several controllers share a hierarchy.
        parents = (parent.resolve() for parent in self._parents.values() if parent is not None)
        folders = [parent / FOLDER / name for parent in dict.fromkeys(parents)]
        for folder in folders:
            make_dir(folder)
        write(folders[0].parent / "cpu.shares", str(_SHARES * (os.cpu_count() or 1)))
        return CgroupV1Group(supervisor_pid, folders)

    def find(self, files: GroupFiles, supervisor_pid: int) -> JobGroup:
        return CgroupV1Group(supervisor_pid, [Path(file).parent for file in files.cgroup_procs_files])


class CgroupV1Group(CgroupGroup):
    """A job's groups of version 1: that of `cpu` first."""

    def __init__(self, supervisor_pid: int, folders: Sequence[Path]) -> None:
        cpu = folders[0]
        usage = (folder_with(folders, "cpuacct.usage") or cpu) / "cpuacct.usage"
        remove_dirs = (*folders, *(folder.parent for folder in folders))
        super().__init__(supervisor_pid, folders, (cpu / "cpu.cfs_quota_us", "-1"), usage, remove_dirs)
        self._shares, self._period = cpu / "cpu.shares", cpu / "cpu.cfs_period_us"

    def _limits(self, cores: float, quota_us: int | None, period_us: int) -> list[tuple[Path, str]]:
        quota = self._quota, "-1" if quota_us is None else str(quota_us)
        return [
            (self._shares, str(max(round(_SHARES * cores), 2))),  # the least that the kernel takes
            (self._period, str(period_us)),
            *quota_writes(quota_us, quota, self._quota.with_name("cpu.cfs_burst_us")),
        ]

    def granted_cores(self) -> float:
        quota = int(self._quota.read_text())
        return float(self._n_cpus) if quota < 0 else quota / int(self._period.read_text())

    def _core_s(self, usage: str) -> float:
        return int(usage) / 1e9


class CgroupV2(Actuator):
    """CPU quotas below one group.

    `base`: the group below which those of jobs are made: a delegated one, or the root; None: not mounted.
    """

    name = "cgroup-v2"
    can_cap = True

    def __init__(self, base: Path | None) -> None:
        self._base = base
        self.limits_memory = base is not None and "memory" in words(base / "cgroup.controllers")

    def check(self) -> None:
        if self._base is None:
            raise Unusable("no version 2 hierarchy is mounted")
        if "cpu" not in words(self._base / "cgroup.controllers"):
            raise Unusable(f"'{self._base / 'cgroup.controllers'}' does not list the cpu controller")
        remove_abandoned(self._base / FOLDER)
        try_out(self)

    def open(self, job: JobId, supervisor_pid: int) -> JobGroup:
        assert self._base is not None
        step_aside(self._base, {os.getpid()})
        enable_controllers(self._base)
        folder = self._base / FOLDER / group_name(job)
        make_dir(folder)
        enable_controllers(folder.parent)
        bring_to(*_weight(folder.parent, os.cpu_count() or 1))
        return CgroupV2Group(supervisor_pid, folder, (folder, folder.parent))

    def find(self, files: GroupFiles, supervisor_pid: int) -> JobGroup:
        return CgroupV2Group(supervisor_pid, Path(files.cgroup_procs_files[0]).parent, map(Path, files.remove_dirs))


class UserScope(CgroupV2):
    """CPU quotas without root rights: in a transient scope that the user's systemd delegates, and removes with its last process.

    `base`: folder at which version 2 is mounted; None: it is not.
    """

    supervisor_prefix = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--")

    def check(self) -> None:
        if self._base is None:
            raise Unusable("no version 2 hierarchy is mounted")
        if shutil.which("systemd-run") is None or not _RUNS_SYSTEMD.exists():
            raise Unusable("no systemd that could delegate a scope to this user")
        look = [*self.supervisor_prefix, sys.executable, "-I", "-S", "-c", _LOOK, str(self._base)]
        try:
            answer = subprocess.run(look, capture_output=True, text=True, timeout=_SYSTEMD_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise Unusable(f"the user's systemd did not answer in {span(_SYSTEMD_S_MAX)}") from None
        if answer.returncode:
            raise Unusable(f"the user's systemd refused a scope ({answer.stderr.strip()})")
        self.limits_memory = "memory" in answer.stdout.split()
        if "cpu" not in answer.stdout.split():
            raise Unusable("the user's systemd does not delegate the cpu controller")

    def open(self, job: JobId, supervisor_pid: int) -> JobGroup:
        scope = hierarchy("", membership=Path(f"/proc/{supervisor_pid}/cgroup").read_text())
        assert scope is not None
        step_aside(scope.own, {supervisor_pid})
        enable_controllers(scope.own)
        folder = scope.own / "job"
        folder.mkdir()
        return CgroupV2Group(supervisor_pid, folder, (folder,))


class CgroupV2Group(CgroupGroup):
    """A job's group of version 2."""

    def __init__(self, supervisor_pid: int, folder: Path, remove_dirs: Iterable[Path]) -> None:
        quota = folder / "cpu.max", f"max {PERIOD_US}"
        super().__init__(supervisor_pid, [folder], quota, folder / "cpu.stat", remove_dirs)

    def _limits(self, cores: float, quota_us: int | None, period_us: int) -> list[tuple[Path, str]]:
        quota = self._quota, f"{'max' if quota_us is None else quota_us} {period_us}"
        burst = self._quota.with_name("cpu.max.burst")
        return [_weight(self._quota.parent, cores), *quota_writes(quota_us, quota, burst)]

    def granted_cores(self) -> float:
        quota, period = self._quota.read_text().split()
        return float(self._n_cpus) if quota == "max" else int(quota) / int(period)

    def _core_s(self, usage: str) -> float:
        return number_in(usage, "usage_usec") / 1e6


def actuators() -> list[Actuator]:
    """Return all actuators, best first."""
    tree = hierarchy("")
    bases = dict.fromkeys((None,) if tree is None else (tree.own, tree.mount))
    scope = UserScope(None if tree is None else tree.mount)
    return [*map(CgroupV2, bases), scope, CgroupV1.found(), Actuator()]


def in_force(name: str) -> Choice:
    """Return the actuator of that name for jobs that were started with it: the first usable one, if any."""
    candidates = actuators()
    try:
        actuator = choose(name, candidates).actuator
    except InvalidSpec:  # the jobs that run have their groups already
        actuator = next(one for one in candidates if one.name == name)
    return Choice(actuator, "the job was started with it.")


def limit_us(cores: float, n_cpus: int) -> tuple[int | None, int]:
    """Compute the quota for `cores` and its period, in microseconds; quota None: none is needed.

    The quota is rounded down, so that the grants of several jobs never add up to more than was shared out.
    """
    if cores >= n_cpus:
        return None, PERIOD_US
    # Period for grants so small that the kernel rejects their quota of the usual period.
    period_us = 100_000 if cores * PERIOD_US < _QUOTA_US_MIN else PERIOD_US
    return max(_QUOTA_US_MIN, math.floor(cores * period_us + 1e-6)), period_us


def quota_writes(quota_us: int | None, limit: tuple[Path, str], burst: Path) -> list[tuple[Path, str]]:
    """List the writes of files and texts that set `limit`, with an equal `burst` before or after it.

    What a job could not use of a period because the CPUs were not free then, it may make up for in later ones, up to
    `burst`: where several quotas divide a few CPUs, the sum of what they get is smaller by 4 to 8 % without it. The kernel
    takes no burst above the quota. Each write hands out a quota, so that the burst is left as it is from half a quota on.
    """
    try:
        burst_us = int(burst.read_text())
    except FileNotFoundError:  # Linux before 5.14
        return [limit]
    if quota_us is None or quota_us // 2 <= burst_us <= quota_us:
        return [limit]
    follows = burst, str(quota_us)
    return [follows, limit] if burst_us > quota_us else [limit, follows]


def try_out(actuator: Actuator) -> None:
    """Test an actuator by making and limiting a group: the system's files do not show whether that works.

    Raises `Unusable`: the system refused something; names the file.
    """
    try:
        group = actuator.open(JobId("try"), os.getpid())
        try:
            group.grant(0.5)
        finally:
            for folder in group.files.remove_dirs:
                remove_dir(Path(folder))
    except OSError as error:
        raise Unusable(f"'{error.filename}' cannot be used ({error.strerror})") from None


def step_aside(base: Path, own_pids: set[int]) -> None:
    """Move `own_pids` into a group of their own if `base` has no other processes.

    Except in the root, a group with processes of its own cannot have limited groups below it.
    """
    members = {int(pid) for pid in words(base / "cgroup.procs")}
    if not members or not members <= own_pids or not (base / "cgroup.type").exists():
        return
    aside = base / _ASIDE
    aside.mkdir(exist_ok=True)
    for pid in members:
        write(aside / "cgroup.procs", str(pid))


def enable_controllers(folder: Path) -> None:
    """Enable quotas, and limits of memory if possible, for the groups below `folder`; raises `OSError`."""
    switch = folder / "cgroup.subtree_control"
    if "cpu" not in words(switch):
        write(switch, "+cpu")
    if "memory" in words(folder / "cgroup.controllers") and "memory" not in words(switch):
        with suppress(OSError):
            switch.write_text("+memory")


def _weight(folder: Path, cores: float) -> tuple[Path, str]:
    """Return the file and the text of a group's weight, in proportion to its cores."""
    # Weight of each core granted against what else runs, which counts 100, and the largest the kernel takes.
    return folder / "cpu.weight", str(min(max(round(200 * cores), 1), 10_000))
