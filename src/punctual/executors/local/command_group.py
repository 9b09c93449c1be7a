"""A control group for a command of Punctual, so that jobs cannot hold it up.

Jobs weigh more than other programs, and together they may hold all cores. A command that is to steer them, to stop one,
or to start another would then wait for many seconds. Version 1 only: the weights of version 2 concern siblings, and a
command may not leave its place there.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from punctual.executors.local.cgroup_files import (
    COMMAND_GROUP,
    FOLDER,
    hierarchy,
    make_dir,
    remove_abandoned,
    remove_dir,
)


@contextmanager
def command_group() -> Iterator[None]:
    """Run this process and its children in a group that precedes those of jobs, if it may make one."""
    base = _base()
    group = None if base is None else _entered(base)
    try:
        yield
    finally:
        if base is not None and group is not None:
            leave_command_group([os.getpid()])
            remove_dir(group)
            remove_abandoned(group.parent)


def leave_command_group(pids: Sequence[int]) -> None:
    """Move processes that a command has started out of its group, to outlive it; others stay where they are."""
    base = _base()
    for pid in pids:
        with suppress(OSError):  # it has ended, or there are no such groups
            if base is not None and f"-{COMMAND_GROUP}\n" in Path(f"/proc/{pid}/cgroup").read_text():
                (base / "cgroup.procs").write_text(str(pid))


def _base() -> Path | None:
    tree = hierarchy("cpu")
    return tree.own if tree is not None and os.access(tree.own, os.W_OK) else None


def _entered(base: Path) -> Path | None:
    group = base / FOLDER / f"{os.getpid()}-{COMMAND_GROUP}"
    try:
        make_dir(group)
        # Weight of a command; a job has 2048.
        (group / "cpu.shares").write_text(str(8192))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        remove_dir(group)
        return None
    return group
