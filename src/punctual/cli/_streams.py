"""Standard output and standard error, robust to a reader that is gone or a disk that is full."""

import codecs
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from typing import Any, TextIO

import typer

from punctual.cli._words import visible
from punctual.daemon.logs import write_error
from punctual.executors.local.output import write_or_discard
from punctual.request.json_text import json_text

__all__ = [
    "LastingOutput", "print_table", "table_lines", "write_answer", "write_error", "write_json", "write_line", "write_lines",
    "write_out", "write_record",
]  # fmt: skip

#: Characters of ours, and ASCII for a terminal that does not have them.
_IN_ASCII = {
    **dict(zip("±…–─━│┃▒├⚑▸·", ("+-", "~", "-", "-", "=", "|", "|", "#", "[", "P", ">", "."), strict=True)),
    **dict(zip("✖▲●◌○‖✔✘✓■", "X^o?0=vxvs", strict=True)),
}


_ERRORS = "punctual"


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error(_ERRORS, _in_ascii)


def show_what_can_be_shown() -> None:
    """Make output of any encoding: what a terminal's encoding lacks is written in ASCII, or as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=_ERRORS)


def write_line(text: str, *, err: bool = False) -> None:
    """Write one line to standard output, or with `err` to standard error; raises `OSError` on failure."""
    write_lines([text], err=err)


def write_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Write any number of lines as `write_line` does."""
    for line in lines:
        typer.echo(_encodable(visible(line), sys.stderr if err else sys.stdout), err=err)


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Write a value as JSON, in one line or with `indent` in several, as `write_line` does."""
    write_lines(json_text(value, indent=indent).split("\n"))


def write_answer(value: Any, *lines: str, as_json: bool) -> None:
    """Write `value` as one JSON object, or `lines`."""
    write_lines([json_text(value)] if as_json else lines)


def write_record(kind: str, fields: Mapping[str, Any]) -> None:
    """Write one object; `type` comes first, so that lines can be told apart at a glance."""
    write_out(json_text({"type": kind, **fields}) + "\n")


def _encodable(text: str, stream: TextIO) -> str:
    """Return the text in the stream's encoding: `typer.echo` would write UTF-8 to a terminal that has ASCII alone."""
    encoding = stream.encoding or "utf-8"
    return text if text.isascii() else text.encode(encoding, _ERRORS).decode(encoding)


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
