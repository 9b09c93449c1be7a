"""Standard output and standard error, robust to a reader that is gone or a disk that is full."""

import sys
from collections.abc import Iterable, Sequence

import typer

from punctual.cli._words import visible
from punctual.daemon.logs import write_error
from punctual.executors.local.output import write_or_discard

__all__ = ["LastingOutput", "print_table", "table_lines", "write_error", "write_line", "write_lines", "write_out"]


def write_line(text: str, *, err: bool = False) -> None:
    """Write one line to standard output, or with `err` to standard error; raises `OSError` on failure."""
    write_lines([text], err=err)


def write_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Write any number of lines as `write_line` does."""
    for line in lines:
        typer.echo(visible(line), err=err)


def write_out(text: str) -> None:
    """Write coloured text or JSON to standard output at once, unchanged; after a failure later output is dropped."""
    write_or_discard(sys.stdout, 1, text)


class LastingOutput:
    """Standard output as a file for libraries; after a failure later output is dropped."""

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding

    def write(self, text: str) -> None:
        write_out(text)

    def flush(self) -> None:
        """Do nothing: output is not buffered."""

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of as many cells as `head` has, each column as wide as its longest cell."""
    write_lines(table_lines(head, rows))


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines that `print_table` prints."""
    table = [head, *([visible(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
