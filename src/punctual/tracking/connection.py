"""Find and claim the page. Only the first process of a job reports; its siblings and children stay silent."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from punctual.channel import BLOCK_VARIABLE, Declaration, PageError, SharedBlock, process_number
from punctual.tracking.complaint import warn


def connect() -> SharedBlock | None:
    """Return the job's page, claimed by this process; None if there is none to claim.

    Of several processes that torchrun has started here it is the first, which makes the checkpoints in most scripts.
    """
    path = os.environ.get(BLOCK_VARIABLE)
    if not path or os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    try:
        with _locked(path):
            page = SharedBlock.open(path)
            if _is_alive(page.declaration().pid):
                page.close()
                return None
            page.declare(Declaration(pid=process_number()))
            page.publish_phases([])
            return page
    except (OSError, PageError) as error:
        warn(f"`{BLOCK_VARIABLE}` must name a page of Punctual", f"{error}", f"process {os.getpid()}",
             "Training goes on without a deadline. Start it with `punctual run`; in a container, or with process numbers of "
             "its own (`unshare --pid`), have its output read (`--progress-regex auto`, with `--steps`).")  # fmt: skip
        return None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the page's claim: processes that start together, as distributed training does, must not all find it free."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_alive(pid: int) -> bool:
    """Whether another process holds this id; a program that replaced itself by `exec` keeps its own."""
    if pid in {0, process_number()}:
        return False
    if os.path.exists("/proc"):  # noqa: PTH110 -- pathlib takes long to load
        return os.path.exists(f"/proc/{pid}")  # noqa: PTH110 -- the same
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
