"""The stored output of a job: an earlier file and the present one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from punctual.executors.local.job_log import times_of
from punctual.executors.local.output import MISSING, Receive, earlier_log, open_log

#: Bytes read at once.
PIECE_BYTES = 65_536


class LogPlace(NamedTuple):
    """Position in a log: the file's inode, the bytes read of it, and a checksum of the last of these."""

    inode: int = 0
    position: int = 0
    tail: int = 0


class LogSnapshot:
    """Stored output of a job: an earlier file and the present one, with their sizes at construction.

    `log`: path of the present file; may be missing.
    """

    def __init__(self, log: Path) -> None:
        self._files = ExitStack()
        fds = _opened(log, self._files)
        paths = [earlier_log(log), log][2 - len(fds) :]
        self._opened = [(path, fd, os.fstat(fd)) for path, fd in zip(paths, fds, strict=True)]
        self.n_bytes = sum(status.st_size for _, _, status in self._opened)

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `begin` to before `end`."""
        with self._files:
            for _, fd, status in self._opened:
                size = status.st_size
                at, until = min(begin, size), min(end, size)
                while at < until and (piece := os.pread(fd, min(PIECE_BYTES, until - at), at)):
                    at += len(piece)
                    yield piece
                begin, end = max(0, begin - size), max(0, end - size)

    def n_bytes_before(self, wall_s: float) -> int:
        """Return the bytes before the first line that was written, or may have been, after `wall_s`, seconds since 1970."""
        n_bytes = before = 0
        for path, fd, status in self._opened:
            noted = [*_times(path), (status.st_mtime, status.st_size)]
            known = [n for noted_s, n in noted if noted_s <= wall_s and 0 <= n <= status.st_size]
            if known:
                n_bytes = before + (_line_start(fd, known[-1]) if known[-1] < status.st_size else status.st_size)
            before += status.st_size
        return n_bytes

    def close(self) -> None:
        """Close the files; a second call, or one after all pieces, does nothing."""
        self._files.close()


def n_bytes_before(log: Path, wall_s: float) -> int:
    """Return `LogSnapshot.n_bytes_before` of what is stored of the log now."""
    with closing(LogSnapshot(log)) as kept:
        return kept.n_bytes_before(wall_s)


def skipping(receive: Receive, n_bytes: int) -> Receive:
    """Return a function that passes on all bytes after the first `n_bytes`."""
    n_left = n_bytes

    def pass_on(output: bytes) -> None:
        nonlocal n_left
        rest, n_left = output[n_left:], max(0, n_left - len(output))
        if rest:
            receive(rest)

    return pass_on


def read_on(log: Path, place: LogPlace, n_bytes: int) -> tuple[bytes, LogPlace, bool]:
    """Read up to `n_bytes` of a job's log after `place`.

    If the file of `place` is not kept any more, or may not be, `MISSING` comes first, and then the oldest that is kept.

    Returns the output, the place behind it, and whether there is more.
    """
    with ExitStack() as files:
        fds = _opened(log, files)
        if not fds:
            return b"", place, False
        sizes = [os.fstat(fd).st_size for fd in fds]
        known = [i for i, fd in enumerate(fds) if _has(fd, place)]
        first, begin = (known[0], place.position) if known else (0, 0)
        is_first_file = place == LogPlace() and not _has_bytes(earlier_log(log))
        output = b"" if known or is_first_file else MISSING
        for i in range(first, len(fds)):
            piece = os.pread(fds[i], max(0, n_bytes - len(output)), begin)
            output, begin = output + piece, begin + len(piece)
            place = LogPlace(os.fstat(fds[i]).st_ino, begin, _tail(fds[i], begin))
            if begin < sizes[i]:
                return output, place, True
            begin = 0
        return output, place, False


def _line_start(fd: int, position: int) -> int:
    """Position of the start of the line to which the byte at `position` belongs, if that is not too long."""
    begin = max(0, position - PIECE_BYTES)
    i_line_end = os.pread(fd, position - begin, begin).rfind(b"\n")
    return begin + i_line_end + 1 if i_line_end >= 0 or not begin else position


def _times(log: Path) -> Iterator[tuple[float, int]]:
    """Yield since when the log had how many bytes, in order; nothing of a job whose times were not noted."""
    with suppress(OSError):
        if (fd := open_log(Path(times_of(str(log))))) is None:
            return
        with os.fdopen(fd, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError):  # one that was cut: the disk was full
                    wall_s, n_bytes = line.split(" ")
                    yield float(wall_s), int(n_bytes)


def _has_bytes(log: Path) -> bool:
    return log.exists() and log.stat().st_size > 0


def _has(fd: int, place: LogPlace) -> bool:
    """Whether `place` is in this file."""
    status = os.fstat(fd)
    is_same = status.st_ino == place.inode and status.st_size >= place.position
    return is_same and _tail(fd, place.position) == place.tail


def _tail(fd: int, position: int) -> int:
    # A place in a log is known again by so many bytes before it: the number of a file that is gone is soon that of
    # another.
    begin = max(0, position - 64)
    return crc32(os.pread(fd, position - begin, begin))


def _opened(log: Path, files: ExitStack) -> list[int]:
    """Open the earlier and the present file, if they exist; again if one was renamed meanwhile."""
    while True:
        with ExitStack() as opening:
            fds = [fd for path in (log, earlier_log(log)) if (fd := _open(path, opening)) is not None]
            identities = {(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in fds}
            if len(identities) == len(fds):
                files.push(opening.pop_all())
                return fds[::-1]


def _open(path: Path, files: ExitStack) -> int | None:
    fd = open_log(path)
    if fd is not None:
        files.callback(os.close, fd)
    return fd
