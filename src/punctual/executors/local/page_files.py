"""Memory of pages, through which trainings report. It has no name in any folder, and is freed by its last holder."""

import fcntl
import mmap
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from punctual.channel import PAGE_BYTES, Page

#: Name of the memory that the kernel shows beside the file descriptors of its holders.
MEMORY_NAME = "punctual-page"


def new_page() -> tuple[Page, int, Callable[[], object]]:
    """Make a page; return it, the descriptor of its memory, and a function that closes that descriptor early.

    Raises `OSError` where there is no room.
    """
    fd = os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Not only its length: where memory is full, writing to a page that has none yet ends the process (SIGBUS).
        os.posix_fallocate(fd, 0, PAGE_BYTES)
        # Whoever has it open, the job too, would end (SIGBUS) at the next look at a page that has become shorter.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        page = Page.made(mmap.mmap(fd, PAGE_BYTES))
    except BaseException:
        os.close(fd)
        raise
    return page, fd, weakref.finalize(page, os.close, fd)


def page_path(pid: int, fd: int) -> Path:
    """Path at which this user's processes find the page that process `pid` holds as `fd`."""
    return Path(f"/proc/{pid}/fd/{fd}")
