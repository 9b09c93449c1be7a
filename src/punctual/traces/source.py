"""The lines of a trace file, plain or compressed, never all at once."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from punctual.core.errors import InvalidSpec

_GZIP_MAGIC = b"\x1f\x8b"

#: Formats are told by this much of a file; enough for a first record that spans lines.
_N_HEAD_CHARACTERS = 65_536


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a file, without their ends."""

    lines: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first line that is not blank; empty if there is none."""
        return next((line for line in self.lines if line.strip()), "")

    def columns(self, separator: str = ",") -> tuple[str, ...]:
        """The fields of the first line, which may be column names."""
        return tuple(cell.strip().strip('"') for cell in self.first.split(separator))


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read from, as often as needed."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def head(self) -> Head:
        """What the file begins with; its last line may be cut."""
        return Head(tuple(next(self.pieces(_N_HEAD_CHARACTERS), "").splitlines()))

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines, numbered from 1, with their ends.

        Raises
        ------
        InvalidSpec
            When the file cannot be opened or ends in the middle of its compressed content.
        """
        with self._reading() as text:
            yield from enumerate(text, start=1)

    def pieces(self, n_characters: int) -> Iterator[str]:
        """The text in pieces of `n_characters`; raises as `lines` does."""
        with self._reading() as text:
            while piece := text.read(n_characters):
                yield piece

    def beside(self, name: str) -> "Source | None":
        """The file `name`, or its compressed form, in the same folder; None if there is none."""
        here = (self.path.with_name(name), self.path.with_name(f"{name}.gz"))
        return next((Source(path) for path in here if path.is_file()), None)

    @contextmanager
    def _reading(self) -> Iterator[TextIO]:
        try:
            with self._open() as text:
                yield text
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidSpec(
                "a trace must be a readable, whole file", f"{type(error).__name__}: {error}", str(self),
                "Check the path and the permissions; fetch a compressed file again.",
            ) from error  # fmt: skip

    def _open(self) -> TextIO:
        with self.path.open("rb") as start:
            compressed = start.read(2) == _GZIP_MAGIC
        # A name that is not UTF-8 is a name all the same.
        if compressed:
            return gzip.open(self.path, "rt", encoding="utf-8-sig", errors="replace")
        return self.path.open(encoding="utf-8-sig", errors="replace")
