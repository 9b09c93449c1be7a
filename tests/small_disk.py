"""A disk that is soon full, or read only."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size_bytes: int = 3 << 20) -> Iterator[Path]:
    """A new folder with room for so many bytes; skips the test where nothing can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def may_write(folder: Path, is_allowed: bool) -> None:
    """Make the disk mounted at `folder` writable or read only."""
    subprocess.run(["mount", "-o", f"remount,{'rw' if is_allowed else 'ro'}", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is, by the file that is returned; also what other processes give back meanwhile."""
    filler, more = folder / "filler", folder / "more"
    while True:
        with filler.open("ab", buffering=0) as file:
            for n_bytes in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"x" * n_bytes):
                        pass
        try:
            more.write_bytes(b"x" * 5000)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 -- it is repeated until it fails
            return filler
        finally:
            more.unlink()
