"""Control groups: where they are mounted, the folders and files of jobs in them, and a group for a command of Punctual."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from punctual.core.ids import JobId

#: Folder around the groups of all jobs, in each hierarchy.
FOLDER = "punctual"
#: Suffix of the names of commands' groups, after the command's process id. A supervisor, which imports nothing of the
#: package, has it too.
COMMAND_GROUP = "command"
#: End of the path of the group that `command_group` makes.
_COMMAND_GROUP = re.compile(rf"/{FOLDER}/\d+-{COMMAND_GROUP}$")


def group_name(job: JobId) -> str:
    """Return a unique folder name for the job; begins with the id of this process, see `remove_abandoned`."""
    return f"{os.getpid()}-{file_name(job)}-{secrets.token_hex(3)}"


def file_name(job: JobId) -> str:
    """Return the job's name in a form that is valid as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", job)[:64]


def write(file: Path, text: str) -> None:
    """Write to a file of the kernel, which refuses some texts only when they are written; the `OSError` names the file."""
    try:
        file.write_text(text)
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def bring_to(file: Path, text: str) -> None:
    """Write to a file of the kernel unless it says the same already."""
    if words(file) != text.split():
        write(file, text)


def words(file: Path) -> list[str]:
    """Return the words in a file; none if it is not there."""
    return file.read_text().split() if file.exists() else []


def folder_with(folders: Iterable[Path], *names: str) -> Path | None:
    """Return the first of these folders that has a file of one of these names; None: none has."""
    return next((folder for folder in folders if any((folder / name).exists() for name in names)), None)


@contextmanager
def group_to_try(parent: Path) -> Iterator[Path]:
    """Make a group below `parent` and remove it afterwards; raises `OSError` if that is refused."""
    folder = parent / FOLDER / group_name(JobId("try"))
    try:
        make_dir(folder)
        yield folder
    finally:
        remove_dir(folder)
        remove_dir(folder.parent)


def make_dir(folder: Path) -> None:
    """Make `folder` and its parent, which another job's end may remove at any moment."""
    for _ in range(5):
        try:
            folder.mkdir(parents=True)
        except FileNotFoundError:
            continue
        return
    folder.mkdir(parents=True)


def remove_abandoned(parent: Path) -> None:
    """Remove empty groups under `parent` whose steering process and supervisor were both killed."""
    for folder in groups_in(parent):
        if maker_is_gone(folder):
            remove_dir(folder)
    remove_dir(parent)


def maker_is_gone(group: Path) -> bool:
    """Whether the process that made the group has ended; its id is the first part of the group's name."""
    pid = group.name.partition("-")[0]
    return pid.isdigit() and not Path(f"/proc/{pid}").exists()


def groups_in(parent: Path) -> list[Path]:
    """Return the groups under `parent`; none if it is not there, or has just been removed: any process removes an empty one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [folder for folder in parent.iterdir() if folder.is_dir()]
    return []


def remove_dir(folder: Path) -> None:
    """Remove a control group unless it is in use."""
    with suppress(OSError):  # processes or groups in it, or gone already
        folder.rmdir()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of control groups.

    * `mount`: folder at which it is mounted.
    * `own`: the folder of this process's group, or the one around the group that Punctual has made for this command;
      `mount` itself if that lies outside what is mounted.
    """

    mount: Path
    own: Path


def hierarchy(controller: str, mountinfo: str | None = None, membership: str | None = None) -> Hierarchy | None:
    """Return the hierarchy of a version 1 controller (``cpu``, ``cpuacct``), or of version 2 (``""``), if mounted.

    `mountinfo`, `membership`: texts of /proc/self/mountinfo and /proc/self/cgroup; read if not given.
    """
    if mountinfo is None and not os.path.lexists("/proc/self"):
        return None
    mountinfo = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    membership = Path("/proc/self/cgroup").read_text() if membership is None else membership
    for line in mountinfo.splitlines():
        place, _, kind = line.partition(" - ")
        filesystem, _, options = kind.split(" ", 2)
        if filesystem == "cgroup2" if not controller else filesystem == "cgroup" and controller in options.split(","):
            root, mount = (
                re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word) for word in place.split()[3:5]
            )
            return Hierarchy(Path(mount), _inside(Path(mount), root, _own_group(controller, membership)))
    return None


def _own_group(controller: str, membership: str) -> str:
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return _COMMAND_GROUP.sub("", group) or "/"
    return "/"


def _inside(mount: Path, root: str, group: str) -> Path:
    """Return the folder of `group`; a container may see only the part of the tree from `root` on."""
    relative = os.path.relpath(group, root)
    return mount if relative.startswith("..") else mount / PurePosixPath(relative)


@contextmanager
def command_group() -> Iterator[None]:
    """Run this process and its children in a group that precedes those of jobs, if it may make one.

    Jobs weigh more than other programs, and together they may hold all cores. A command that is to steer them, to stop one,
    or to start another would then wait for many seconds. Version 1 only: the weights of version 2 concern siblings, and a
    command may not leave its place there.
    """
    base = _writable_folder()
    group = None if base is None else _entered_group(base)
    try:
        yield
    finally:
        if base is not None and group is not None:
            leave_command_group(os.getpid())
            remove_dir(group)
            remove_abandoned(group.parent)


def leave_command_group(pid: int) -> None:
    """Move a process that a command has started out of its group, to outlive it; another one stays where it is."""
    base = _writable_folder()
    with suppress(OSError):  # it has ended, or there are no such groups
        if base is not None and f"-{COMMAND_GROUP}\n" in Path(f"/proc/{pid}/cgroup").read_text():
            (base / "cgroup.procs").write_text(str(pid))


def _writable_folder() -> Path | None:
    tree = hierarchy("cpu")
    return tree.own if tree is not None and os.access(tree.own, os.W_OK) else None


def _entered_group(base: Path) -> Path | None:
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
