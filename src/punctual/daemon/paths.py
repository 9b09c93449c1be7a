"""Folders of the user's runs.

What lasts as long as the run (control socket, records of its processes) and what stays (the journal, and the record of its
jobs) are in the user's state folder; with `PUNCTUAL_HOME` set, in folders of their own below that. The user's runtime
folder (`XDG_RUNTIME_DIR`) is not used: it goes at logout, which jobs outlive, and cron and `su` do not have it.
"""

import grp
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from stat import S_IMODE, S_ISVTX, S_IWGRP, S_IWOTH

from punctual.core.errors import InvalidSpec
from punctual.core.failures import cause_of, short_of

HOME_VARIABLE = "PUNCTUAL_HOME"


def runtime_root() -> Path:
    """Folder of all live runs; made, for its owner only, if it is missing."""
    return _private(_root("runtime") / "live")


def state_root() -> Path:
    """Folder of all runs' journals; made, for its owner only, if it is missing."""
    return _private(_root("state") / "runs")


def log_file() -> Path:
    """Path of the daemon's log."""
    return state_root().parent / "daemon.log"


def service_root() -> Path:
    """Folder of the service's own files; made, for its owner only, if it is missing."""
    return _private(_root("state") / "service")


def owner_token_file(folder: Path) -> Path:
    """Path of the file with the owner's token, in the `folder` of the service."""
    return folder / "token"


def service_socket() -> Path:
    """Path of the socket at which the service serves programs of its own user; makes its folder if it is missing.

    It has the machine's name: a folder may be shared by machines, and a socket leads to processes of one.
    """
    return _private(_root("runtime") / "service") / f"api-{os.uname().nodename}.sock"


def agent_roots() -> tuple[Path, Path]:
    """Folders of all agents of this machine: for files as long-lived as the agents, and for files that stay."""
    return _private(_root("runtime") / "agents" / "live"), _private(_root("state") / "agents" / "runs")


def user_home() -> Path:
    """Home folder of this user; the root folder for a user without one."""
    try:
        return Path.home()
    except RuntimeError:  # neither HOME nor an entry among the users of this machine
        return Path("/")


def _root(kind: str) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    if home and not Path(home).is_absolute():
        raise InvalidSpec(
            f"`{HOME_VARIABLE}` must be an absolute path",
            f"'{home}', which is another folder wherever a command is given",
            "the environment",
            f"Write `{HOME_VARIABLE}={Path(home).absolute()}`.",
        )
    if home:
        return Path(home) / kind
    import platformdirs

    try:
        return platformdirs.user_state_path("punctual")
    except RuntimeError as error:  # as in a container with another user's number
        raise InvalidSpec(
            "this user must have a home folder, where runs are kept",
            f"no variable HOME, and no entry for user {os.geteuid()} among the users of this machine",
            "this command",
            f"Set HOME, or {HOME_VARIABLE} to the folder for runs (`export {HOME_VARIABLE}=/tmp/punctual`).",
        ) from error


def remove_tree(folder: Path) -> None:
    """Remove a run's folder and its contents as far as possible; targets of links stay.

    What is removed is what lies in the folder above it as that is now: its place may be another's by the next call.
    """
    with suppress(OSError):
        above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(above).st_uid == os.geteuid():
                shutil.rmtree(folder.name, ignore_errors=True, dir_fd=above)
        finally:
            os.close(above)


def _private(folder: Path) -> Path:
    """Return `folder`, made if missing, and check that no other user can use it."""
    with refused_if_unwritable(folder):
        for place in (folder.parent.parent, folder.parent, folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner({os.geteuid()}, folder.parent, folder)
        if folder.is_symlink():
            raise InvalidSpec(
                "the folder of all runs must be none that a link leads to",
                f"a link to '{folder.readlink()}'",
                f"'{folder}'",
                f"Put the link in place of '{folder.parent}', or set {HOME_VARIABLE} to the folder that is meant.",
            )
        # Who may write to a folder above could put another in place of ours, whose files we would remove.
        _check_owner({os.geteuid(), 0}, folder.parent.parent)
        _check_above(folder)
        if S_IMODE(folder.stat().st_mode) != 0o700:  # what is right already may lie where nothing can be changed
            folder.chmod(0o700)
    return folder


@contextmanager
def refused_if_unwritable(folder: Path) -> Iterator[None]:
    """Turn errors of writing inside into an `InvalidSpec`; passing shortages are raised as they are."""
    try:
        yield
    except OSError as error:
        if short_of(error):
            raise
        raise InvalidSpec(
            "the folder must be one where files can be made",
            cause_of(error),
            f"'{folder}'",
            f"Make room or give the right to, or set {HOME_VARIABLE} to another folder.",
        ) from error


@lru_cache(maxsize=16)  # a command asks for its folders hundreds of times
def _check_above(folder: Path) -> None:
    """Check all parent folders of `folder`, including those of links on the way to it."""
    for above in {*folder.parents, *folder.resolve().parents}:
        _check_closed(above)


def _check_closed(folder: Path) -> None:
    """Raise `InvalidSpec` if another user than root may replace the contents of `folder`."""
    status = folder.stat()
    # Owner that a user namespace shows for files of users outside it, whoever they are.
    is_others = status.st_uid not in (os.geteuid(), 0, 65534)
    # In a folder like /tmp (its mode is "sticky") only the owner of a thing may replace it.
    written_by_others = not status.st_mode & S_ISVTX and (
        status.st_mode & S_IWOTH
        or (status.st_mode & S_IWGRP and (not _is_group_of_one(status.st_gid) or _has_list(folder)))
    )
    if is_others or written_by_others:
        got = f"one of user {status.st_uid}" if is_others else f"one of mode {S_IMODE(status.st_mode):o}"
        raise InvalidSpec(
            "a folder above those of runs must be one that only this user may write to",
            got,
            f"'{folder}'",
            f"Set {HOME_VARIABLE} to a folder of your own."
            if is_others
            else f"Take the right to write from others (`chmod go-w {folder}`), or set {HOME_VARIABLE} to another folder.",
        )


def _is_group_of_one(group: int) -> bool:
    """Whether a group has only this user and root: root's own, or the one that many systems give each user."""
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
        return entry.gr_name in (user, "root") and not set(entry.gr_mem) - {user, "root"}
    return False


def _has_list(folder: Path) -> bool:
    """Whether a folder has an access control list: the group's bits are then the upper limit of all named users."""
    try:
        os.getxattr(folder, "system.posix_acl_access")
    except OSError:  # it has none, or the file system knows none
        return False
    return True


def _check_owner(users: set[int], *folders: Path) -> None:
    for folder in folders:
        owners = {folder.lstat().st_uid, folder.stat().st_uid}  # of a link, and of what it leads to
        if not owners <= users:
            raise InvalidSpec(
                "the folder must belong to this user",
                f"one of user {max(owners - users)}",
                f"'{folder}'",
                f"Remove it, or set {HOME_VARIABLE} to a folder of your own.",
            )
