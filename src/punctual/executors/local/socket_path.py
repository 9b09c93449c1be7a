"""Addresses of Unix sockets, of which the kernel limits the length."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_enough(path: Path) -> Iterator[str]:
    """Yield an address of `path` that the kernel accepts, even if the path itself is too long."""
    # Greatest length of a socket's path that the kernel accepts, in bytes.
    if len(os.fsencode(path)) <= 107:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
