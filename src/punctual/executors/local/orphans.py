"""End jobs whose supervisor was killed, perhaps with the process that steered them."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from punctual.executors.local.cgroup_files import FOLDER, groups_in, hierarchy, maker_is_gone, remove_abandoned
from punctual.executors.local.job_signals import send, stat_of

#: Tells the processes of one job from those of every other: where the job's supervisor can be talked to.
SUPERVISOR_VARIABLE = "PUNCTUAL_KEEPER"

#: End of a supervisor's path, in any installation.
_SUPERVISOR = b"/executors/local/supervisor.py"

#: The files of a group that hold its processes back, and what they say when they do not.
_LIFTED = (
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.max", "max"),
    ("cgroup.freeze", "0"),
    ("freezer.state", "THAWED"),
)


def end_orphans(parents: Iterable[Path] | None = None) -> list[int]:
    """End every process of a job that no supervisor looks after, and remove its control groups.

    Such a job cannot be taken over; it is started again from its checkpoint, and must not run twice.

    `parents`: folders around the groups of jobs; None: those that this process would use.

    Returns the processes that were ended.
    """
    ended = []
    for parent in list(_parents() if parents is None else parents):
        remove_abandoned(parent)
        for group in groups_in(parent):
            if maker_is_gone(group) and (members := _orphans_in(group)):
                _lift(group)
                for pid in members:
                    send(pid, signal.SIGKILL)
                ended += members
    return sorted(set(ended))


def processes_of(*addresses: Path) -> list[int]:
    """Return this user's processes of jobs whose supervisors listen, or listened, at `addresses`."""
    wanted = {os.fsencode(f"{SUPERVISOR_VARIABLE}={address}") for address in addresses}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()] if wanted else []
    return [pid for pid in pids if not wanted.isdisjoint(_file_of(pid, "environ").split(b"\0"))]


def end_left(find: Callable[[], list[int]], grace_s: float = 0.0) -> None:
    """End the processes that a killed supervisor has left; return when they are gone, or cannot be ended.

    The kernel has sent SIGTERM to the job's own process. All are released from quotas and freezes, and killed after `grace_s`.
    """
    kill_at, released = time.monotonic() + grace_s, set[int]()
    # Seconds that a killed process may take to end.
    while (members := find()) and time.monotonic() < kill_at + 5.0:
        for pid in members:
            if pid not in released:
                # Lift limits and freezes of the job's groups that hold a process, and resume it.
                membership = _file_of(pid, "cgroup").decode(errors="replace")
                for controller in ("", "cpu", "freezer"):
                    tree = hierarchy(controller, membership=membership)
                    # A job's group, among others or in a scope of its own; any other may be somebody else's.
                    if tree is not None and (tree.own.parent.name == FOLDER or tree.own.match("*.scope/job")):
                        _lift(tree.own)
                send(pid, signal.SIGCONT)
                released.add(pid)
            if time.monotonic() >= kill_at:
                send(pid, signal.SIGKILL)
        time.sleep(0.02)


def _parents() -> Iterator[Path]:
    trees = [tree for controller in ("", "cpu", "cpuacct", "freezer", "memory") if (tree := hierarchy(controller))]
    yield from dict.fromkeys(base / FOLDER for tree in trees for base in (tree.own, tree.mount))


def _orphans_in(group: Path) -> list[int]:
    """Return the processes of a group without a supervisor; empty if one has a supervisor or another PID namespace (0)."""
    try:
        members = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:  # it has just been removed
        return []
    return [] if any(not pid or _is_kept(pid) for pid in members) else members


def _is_kept(pid: int) -> bool:
    while pid > 1:
        if any(word.endswith(_SUPERVISOR) for word in _file_of(pid, "cmdline").split(b"\0")):
            return True
        stat = stat_of(pid)
        pid = int(stat[1]) if stat else 0
    return False


def _file_of(pid: int, name: str) -> bytes:
    """Read a file of a process in `/proc`; empty: it has ended, or is another user's."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _lift(group: Path) -> None:
    """Lift limits and freezes: frozen processes do not end."""
    for name, text in _LIFTED:
        file = group / name
        with suppress(OSError):  # it is another user's, or has just been removed
            if file.exists():
                file.write_text(text)
