"""Freezers, which pause a job: its processes get no CPU time, and keep their memory."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from punctual.core.ids import JobId
from punctual.executors.local.cgroup_files import FOLDER, CgroupFiles, group_name, hierarchy, make_dir, remove_dir
from punctual.executors.local.job_signals import send
from punctual.executors.local.process_tree import TreeUsage, state_of

_SIGKILL_BIT = 1 << (signal.SIGKILL - 1)


class Freezer(Protocol):
    """Pauses and resumes the processes of one job."""

    @property
    def files(self) -> CgroupFiles:
        """Files of its group beside those of the quota."""
        ...

    def freeze(self) -> None:
        """Begin to pause the processes, including those that they start meanwhile; raises `OSError`."""
        ...

    def is_frozen(self) -> bool:
        """Whether all processes stand still; raises `OSError`."""
        ...

    def was_frozen(self) -> bool:
        """Whether the processes stand still, even through another process's request. Raises `OSError`."""
        ...

    def thaw(self) -> None:
        """Let the processes continue; running ones are not affected. Raises `OSError`."""
        ...


class CgroupFreezer:
    """A group that the kernel freezes as a whole.

    `folder`: folder of the group: of version 2, with a file ``cgroup.freeze``, or of the `freezer` hierarchy of version
    1.
    """

    def __init__(self, folder: Path) -> None:
        self._is_v2 = (folder / "cgroup.freeze").exists()
        self._switch = folder / ("cgroup.freeze" if self._is_v2 else "freezer.state")
        self._events = folder / "cgroup.events"
        self._texts = ("0", "1") if self._is_v2 else ("THAWED", "FROZEN")
        self.files = CgroupFiles(
            cgroup_procs_files=(folder / "cgroup.procs",),
            lift=((self._switch, self._texts[False]),),
            remove_dirs=(folder, folder.parent),
        )

    def freeze(self) -> None:
        self._switch.write_text(self._texts[True])

    def is_frozen(self) -> bool:
        if self._is_v2:
            return "frozen 1" in self._events.read_text()
        return self._switch.read_text().strip() == "FROZEN"

    def was_frozen(self) -> bool:
        return self._switch.read_text().strip() != self._texts[False]

    def thaw(self) -> None:
        self._switch.write_text(self._texts[False])


class SignalFreezer:
    """SIGSTOP for every process. `processes`: all processes of the job, parents before their children."""

    files = CgroupFiles()

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes

    def freeze(self) -> None:
        """Stop the processes until no new one appears: one that was not stopped yet may have started another."""
        stopped: set[int] = set()
        # A tree of processes that still grows after so many looks is stopped by the next ones.
        for _ in range(100):
            new = [pid for pid in self._processes() if pid not in stopped]
            if not new:
                return
            for pid in new:
                send(pid, signal.SIGSTOP)
            stopped.update(new)

    def is_frozen(self) -> bool:
        running = [pid for pid in self._processes() if state_of(pid) not in "TtZX"]
        for pid in running:
            send(pid, signal.SIGSTOP)
        return not running

    def was_frozen(self) -> bool:
        states = [state_of(pid) for pid in self._processes()]
        return "T" in states and all(state in "TtZX" for state in states)

    def thaw(self) -> None:
        for pid in reversed(self._processes()):  # a parent that goes on first could take its children for stopped
            send(pid, signal.SIGCONT)


def freezer_of(folder: Path | None, supervisor_pid: int) -> Freezer:
    """Return the freezer of the job with the group `folder` and the processes below a supervisor, or one by signals."""
    if folder is not None and any((folder / name).exists() for name in ("cgroup.freeze", "freezer.state")):
        return CgroupFreezer(folder)
    return SignalFreezer(TreeUsage(supervisor_pid).processes)


def usable_freezer() -> Path | None:
    """Folder in which freezable groups may be made beside those of version 1 with quotas; None: there is none."""
    for controller in ("", "freezer"):
        tree = hierarchy(controller)
        if tree is not None and os.access(tree.own / "cgroup.procs", os.W_OK) and _can_freeze(tree.own):
            return tree.own
    return None


def folder_in(files: CgroupFiles) -> Path | None:
    """Return the folder of the group in `files` that pauses the job; None: signals pause it."""
    switches = [path for path, _ in files.lift if path.name in ("cgroup.freeze", "freezer.state")]
    return switches[0].parent if switches else None


def _can_freeze(base: Path) -> bool:
    """Try whether groups in the folder can be frozen; the system's files do not show it."""
    folder = base / FOLDER / group_name(JobId("try"))
    try:
        make_dir(folder)
        freezer = CgroupFreezer(folder)
        freezer.freeze()
        freezer.thaw()
    except OSError:
        return False
    finally:
        remove_dir(folder)
        remove_dir(folder.parent)
    return True


def is_killed(pid: int) -> bool:
    """Whether the process has ended or is about to: a frozen group of version 1 delays SIGKILL."""
    try:
        lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return True
    pending = int(lines["SigPnd"], 16) | int(lines["ShdPnd"], 16)
    return lines["State"][0] in "ZX" or bool(pending & _SIGKILL_BIT)
