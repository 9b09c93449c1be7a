"""Jobs whose Punctual, keeper and guard were all killed: what holds them back is taken away."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from punctual.executors.local import keeper
from punctual.executors.local.cgroup_files import FOLDER, remove_abandoned
from punctual.executors.local.mounts import hierarchy

#: The files of a group that hold its processes back, and what they say when they do not.
_LIFTED = (
    ("cpu.cfs_quota_us", "-1"),
    ("cpu.max", "max"),
    ("cgroup.freeze", "0"),
    ("freezer.state", "THAWED"),
)


def lift_orphan_quotas(parents: Iterable[Path] | None = None) -> list[Path]:
    """Lift the quota of every job that no keeper looks after any more, resume it if it is paused, and remove empty groups.

    Parameters
    ----------
    parents
        Folders around the groups of jobs; None: those that this process would use.

    Returns
    -------
    list of Path
        The files that were written.
    """
    written = []
    for parent in list(_parents() if parents is None else parents):
        remove_abandoned(parent)
        for group in parent.iterdir() if parent.is_dir() else ():
            if group.is_dir() and _is_orphaned(group):
                written += _lift(group)
    return written


def _parents() -> Iterator[Path]:
    trees = [tree for controller in ("", "cpu", "cpuacct", "freezer") if (tree := hierarchy(controller))]
    yield from dict.fromkeys(base / FOLDER for tree in trees for base in (tree.own, tree.mount))


def _is_orphaned(group: Path) -> bool:
    """Whether there are processes in the group, and none of them is below a keeper."""
    try:
        members = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:  # it has just been removed
        return False
    return bool(members) and not any(_is_kept(pid) for pid in members)


def _is_kept(pid: int) -> bool:
    while pid > 1:
        if keeper.__file__.encode() in _words_of(pid):
            return True
        pid = _parent_of(pid)
    return False


def _words_of(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def _parent_of(pid: int) -> int:
    """0: there is no such process."""
    with suppress(OSError):
        # The program's name stands in brackets and may hold brackets and blanks itself.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def _lift(group: Path) -> list[Path]:
    written = []
    for name, text in _LIFTED:
        file = group / name
        with suppress(OSError):  # it is another user's, or has just been removed
            if file.exists() and file.read_text().split()[:1] != [text]:
                file.write_text(text)
                written.append(file)
    return written
