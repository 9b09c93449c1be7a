"""Freezers, which pause a job: its processes get no CPU time, and keep their memory."""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from punctual.executors.local.cgroup_files import folder_with, group_to_try, hierarchy
from punctual.executors.local.job_signals import bit_of, mask_of, send
from punctual.executors.local.process_tree import state_of


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
        #: Files and texts whose writing resumes the job.
        self.lift = [[str(self._switch), self._texts[False]]]

    def freeze(self) -> None:
        """Begin to pause the processes, including those that they start meanwhile; raises `OSError`."""
        self._switch.write_text(self._texts[True])

    def is_frozen(self) -> bool:
        """Whether all processes stand still; raises `OSError`."""
        if self._is_v2:
            return "frozen 1" in self._events.read_text()
        return self._switch.read_text().strip() == "FROZEN"

    def was_frozen(self) -> bool:
        """Whether the processes stand still, even through another process's request. Raises `OSError`."""
        return self._switch.read_text().strip() != self._texts[False]

    def thaw(self) -> None:
        """Let the processes continue; running ones are not affected. Raises `OSError`."""
        self._switch.write_text(self._texts[False])


class SignalFreezer:
    """SIGSTOP for every process. `processes`: all processes of the job, parents before their children."""

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes
        self.lift: list[list[str]] = []  # its supervisor resumes all processes anyway

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


def freezer_of(folders: Iterable[Path], processes: Callable[[], list[int]]) -> CgroupFreezer | SignalFreezer:
    """Return the freezer of the job with these groups; one by signals to its `processes` where none can be frozen."""
    folder = folder_with(folders, "cgroup.freeze", "freezer.state")
    return SignalFreezer(processes) if folder is None else CgroupFreezer(folder)


def usable_freezer() -> Path | None:
    """Folder in which freezable groups may be made beside those of version 1 with quotas; None: there is none."""
    for controller in ("", "freezer"):
        tree = hierarchy(controller)
        if tree is not None and os.access(tree.own / "cgroup.procs", os.W_OK):
            with suppress(OSError), group_to_try(tree.own) as folder:  # the system's files do not show it
                freezer = CgroupFreezer(folder)
                freezer.freeze()
                freezer.thaw()
                return tree.own
    return None


def is_killed(pid: int) -> bool:
    """Whether the process has ended or is about to: a frozen group of version 1 delays SIGKILL."""
    return state_of(pid) in "ZX" or bool(mask_of(pid, "SigPnd", "ShdPnd") & bit_of(signal.SIGKILL))
