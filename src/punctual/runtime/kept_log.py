"""What is kept of a job's output."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from punctual.executors.local.output import earlier_log

#: So much is read at once.
PIECE_BYTES = 65_536


class KeptLog:
    """What is kept of a job's output: an earlier file and the present one, as they are when this is made.

    Parameters
    ----------
    log
        The present file; may be missing.
    """

    def __init__(self, log: Path) -> None:
        self._files = ExitStack()
        self._fds = _opened(log, self._files)
        self._sizes = [os.fstat(fd).st_size for fd in self._fds]
        self.n_bytes = sum(self._sizes)

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        """The bytes from `begin` to before `end`."""
        with self._files:
            for fd, size in zip(self._fds, self._sizes, strict=True):
                at, until = min(begin, size), min(end, size)
                while at < until and (piece := os.pread(fd, min(PIECE_BYTES, until - at), at)):
                    at += len(piece)
                    yield piece
                begin, end = max(0, begin - size), max(0, end - size)

    def close(self) -> None:
        """Close the files; a second time, or after all pieces, do nothing."""
        self._files.close()


def _opened(log: Path, files: ExitStack) -> list[int]:
    """The earlier file and the present one, as far as they are there; opened again if one was renamed meanwhile."""
    while True:
        with ExitStack() as opening:
            fds = [fd for path in (log, earlier_log(log)) if (fd := _open(path, opening)) is not None]
            identities = {(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in fds}
            if len(identities) == len(fds):
                files.push(opening.pop_all())
                return fds[::-1]


def _open(path: Path, files: ExitStack) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    files.callback(os.close, fd)
    return fd
