"""Standard output and standard error, also when nobody reads them any more, or their disk is full."""

import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from punctual.executors.local.output import discard


def write_out(text: str) -> None:
    """Write to standard output, at once; where that fails, nothing more is written there."""
    _write(sys.stdout, 1, text)


def write_error(text: str) -> None:
    """Write to standard error, at once; where that fails, nothing more is written there."""
    _write(sys.stderr, 2, text)


class LastingOutput:
    """Standard output as a file, for a library that writes to one; where that fails, nothing more is written there."""

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding

    def write(self, text: str) -> None:
        write_out(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of as many cells as `head` has, each column as wide as its longest cell."""
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        typer.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _write(stream: TextIO, fd: int, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        discard(fd, error)
