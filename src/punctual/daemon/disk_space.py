"""Check before a job starts that the disks have room for its output."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from punctual.channel import CHECKPOINT_VARIABLE
from punctual.core.units import format_bytes
from punctual.daemon.paths import state_root
from punctual.request.submission import Submission

#: Free bytes of a disk below which a training is likely to fill it before it ends.
FREE_WARNING_BYTES = 1 << 30


def check_room(submissions: Iterable[Submission]) -> Iterator[str]:
    """Yield warnings about disks on which jobs will write: journals and logs, checkpoints."""
    yield from _short(state_root(), "the journal and what jobs write", "Make room: `punctual clean --older-than 1d`.")
    folders = {s.program.environment.get(CHECKPOINT_VARIABLE): s.spec.id for s in submissions}
    for folder, job in folders.items():
        if folder is not None:
            yield from _short(Path(folder), f"the checkpoints of job '{job}'", "Make room, or name another folder.")
            yield from _too_large(Path(folder))


def _short(folder: Path, what: str, remedy: str) -> Iterator[str]:
    free_bytes = free_in(folder)
    if free_bytes < FREE_WARNING_BYTES:
        yield f"only {format_bytes(free_bytes)} are free for {what}, in '{folder}'. {remedy}"


def _too_large(folder: Path) -> Iterator[str]:
    """Yield a warning if the disk lacks room for another checkpoint: the present one stays until that is written."""
    largest_bytes = max(map(_bytes_of, _entries(folder)), default=0)
    free_bytes = free_in(folder)
    if free_bytes < largest_bytes:
        yield (
            f"{format_bytes(free_bytes)} are free in '{folder}', and a checkpoint there has {format_bytes(largest_bytes)}: the next one will "
            "not fit beside it. Make room, or name another folder."
        )


def free_in(folder: Path) -> int:
    """Bytes that this user may still write to the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(_nearest(folder)).free


def _nearest(folder: Path) -> Path:
    """Return the folder, or its nearest ancestor that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it is not there yet
        return []


def _bytes_of(entry: Path) -> int:
    """Size of a checkpoint in bytes: a file, or all files of a folder."""
    try:
        if not entry.is_dir():
            return entry.stat().st_size
        files = (Path(place, name) for place, _, names in os.walk(entry) for name in names)
        # Files of a checkpoint whose sizes are read, at most.
        return sum(path.lstat().st_size for path, _ in zip(files, range(10_000), strict=False))
    except OSError:  # it has just been removed
        return 0
