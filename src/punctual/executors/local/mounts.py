"""Mounts: control groups and this process's place in them, and file systems in memory."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from punctual.executors.local.cgroup_files import COMMAND_GROUP, FOLDER

#: See `punctual.executors.local.command_group`.
_COMMAND_GROUP = re.compile(rf"/{FOLDER}/\d+-{COMMAND_GROUP}$")


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
