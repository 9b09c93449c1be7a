"""Control groups version 2 without root rights: a scope that the user's systemd delegates."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from punctual.core.ids import JobId
from punctual.executors.local.actuator import Unusable
from punctual.executors.local.cgroup_files import CgroupFiles
from punctual.executors.local.cgroup_v2 import CgroupV2Group, enable_controllers, step_aside
from punctual.executors.local.mounts import hierarchy

_ANSWER_S_MAX = 5.0
#: Exists where systemd runs the machine.
_RUNS_SYSTEMD = Path("/run/systemd/system")
#: Run in a scope of its own: prints the controllers that were delegated to it.
_LOOK = """
import sys
group = next(line.split(":", 2)[2] for line in open("/proc/self/cgroup").read().splitlines() if line.startswith("0:"))
print(open(sys.argv[1] + group + "/cgroup.controllers").read())
"""


class UserScope:
    """CPU quotas in a transient scope; systemd removes it with its last process.

    Parameters
    ----------
    mount
        Folder at which version 2 is mounted; None: it is not.
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
            answer = subprocess.run(look, capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise Unusable(f"the user's systemd did not answer in {_ANSWER_S_MAX:g} s") from None
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
