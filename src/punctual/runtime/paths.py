"""The folders of this user in which runs live.

What lasts as long as the run (control socket, records of its processes) is in the user's runtime folder;
what stays (the journal, and the record of its jobs) is in the user's state folder. With `PUNCTUAL_HOME` set, both are
below that folder.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE

from punctual.core.errors import InvalidSpec

HOME_VARIABLE = "PUNCTUAL_HOME"


def runtime_root() -> Path:
    """The folder of all live runs; made, for its owner only, if it is missing."""
    return _private(_root("runtime") / "live")


def state_root() -> Path:
    """The folder of all runs' journals; made, for its owner only, if it is missing."""
    return _private(_root("state") / "runs")


def _root(kind: str) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home).absolute() / kind
    import platformdirs

    # Without a login session there is no runtime folder of the user's own, and the place shared by all (/tmp) would
    # have to be defended against the others.
    if kind == "runtime" and os.environ.get("XDG_RUNTIME_DIR"):
        return platformdirs.user_runtime_path("punctual")
    return platformdirs.user_state_path("punctual")


def _private(folder: Path) -> Path:
    """`folder`, made if missing, and nobody else's."""
    with refused_if_unwritable(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (folder.parent, folder):
            _check_owner(place, os.geteuid())
        # Who owns the folder above could put another in place of ours, whose files we would remove.
        _check_owner(folder.parent.parent, os.geteuid(), 0)
        if S_IMODE(folder.stat().st_mode) != 0o700:  # what is right already may lie where nothing can be changed
            folder.chmod(0o700)
    return folder


@contextmanager
def refused_if_unwritable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidSpec(
            "the folder must be one where files can be made",
            f"'{error.filename}': {error.strerror}",
            f"'{folder}'",
            f"Make room or give the right to, or set {HOME_VARIABLE} to another folder.",
        ) from error


def _check_owner(folder: Path, *users: int) -> None:
    for status in (folder.lstat(), folder.stat()):  # a link, and what it leads to
        if status.st_uid not in users:
            raise InvalidSpec(
                "the folder must belong to this user",
                f"one of user {status.st_uid}",
                f"'{folder}'",
                f"Remove it, or set {HOME_VARIABLE} to a folder of your own.",
            )
