"""Standard output and standard error, also when nobody reads them any more, or their disk is full."""

import sys
from typing import TextIO

from punctual.executors.local.output import discard


def write_out(text: str) -> None:
    """Write to standard output, at once; where that fails, nothing more is written there."""
    _write(sys.stdout, 1, text)


def write_error(text: str) -> None:
    """Write to standard error, at once; where that fails, nothing more is written there."""
    _write(sys.stderr, 2, text)


def _write(stream: TextIO, fd: int, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        discard(fd, error)
