"""Lines of a trace file, plain or compressed, read piece by piece."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from punctual.core.errors import InvalidSpec
from punctual.core.units import GIB_BYTES
from punctual.sim.traces.limits import N_LINE_CHARACTERS_MAX, UNPACKED_GIB_MAX

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a file, without their ends."""

    lines: tuple[str, ...]

    @property
    def first(self) -> str:
        """Return the first line that is not blank; empty if all are."""
        return next((line for line in self.lines if line.strip()), "")

    def columns(self, separator: str = ",") -> tuple[str, ...]:
        """The fields of the first line, which may be column names."""
        return tuple(cell.strip().strip('"') for cell in self.first.split(separator))


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read from, as often as needed.

    `unpacked_gib_max`: what a compressed file may hold, in GiB.
    """

    path: Path
    unpacked_gib_max: float = UNPACKED_GIB_MAX

    def __str__(self) -> str:
        return str(self.path)

    def head(self) -> Head:
        """Return the beginning of the file; its last line may be cut."""
        # Formats are told by this much of a file; enough for a first record that spans lines.
        return Head(tuple(next(self.pieces(65_536), "").splitlines()))

    def lines(self) -> Iterator[tuple[int, str]]:
        """The lines, numbered from 1, with their ends.

        Raises
        ------
        InvalidSpec
            The file cannot be opened, ends in the middle of its compressed content, holds more of it than it may, or
            has a line without end.
        """
        with self._reading() as text:
            for number, line in enumerate(iter(partial(text.readline, N_LINE_CHARACTERS_MAX), ""), start=1):
                if len(line) == N_LINE_CHARACTERS_MAX:
                    raise InvalidSpec(
                        f"a line of a trace must have less than {N_LINE_CHARACTERS_MAX:,} characters", "a longer one",
                        f"{self}, line {number}", "Take a file that holds jobs, as it was published.",
                    )  # fmt: skip
                yield number, line

    def pieces(self, n_characters: int) -> Iterator[str]:
        """Yield the text in pieces of `n_characters`; raises as `lines` does."""
        with self._reading() as text:
            while piece := text.read(n_characters):
                yield piece

    def beside(self, name: str) -> "Source | None":
        """Return the file `name`, or its compressed form, in the same folder; None if neither exists."""
        here = (self.path.with_name(name), self.path.with_name(f"{name}.gz"))
        return next((replace(self, path=path) for path in here if path.is_file()), None)

    @contextmanager
    def _reading(self) -> Iterator[TextIO]:
        try:
            with self._open() as text:
                yield text
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidSpec(
                "a trace must be a readable, whole file", _reason(error), str(self),
                "Check the path and the permissions; fetch a compressed file again.",
            ) from error  # fmt: skip

    def _open(self) -> TextIO:
        if not self.path.is_file():  # a pipe can be read only once, and nobody may ever write it
            from punctual.journal.file import no_file_at  # loads a database that studies have no use for

            if kind := no_file_at(self.path):
                raise InvalidSpec(
                    "a trace must be a file", kind, str(self), "Name a file; write to one what a pipe gives."
                )
        with self.path.open("rb") as start:
            compressed = start.read(2) == _GZIP_MAGIC
        # A name that is not UTF-8 is a name all the same.
        if compressed:
            unpacked = _Unpacked(self.path, self.unpacked_gib_max)
            return io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace")
        return self.path.open(encoding="utf-8-sig", errors="replace")


class _Unpacked(gzip.GzipFile):
    """The content of a compressed file, up to `gib_max`: a megabyte of it may hold a gigabyte of nothing."""

    def __init__(self, path: Path, gib_max: float) -> None:
        super().__init__(path, "rb")
        self._path, self._gib_max = path, gib_max

    def read1(self, size: int = -1) -> bytes:
        """Read some bytes; `TextIOWrapper` calls it.

        Raises
        ------
        InvalidSpec
            The contents exceed the limit.
        """
        content = super().read1(size)
        if self.tell() > self._gib_max * GIB_BYTES:
            raise InvalidSpec(
                f"a compressed trace must hold at most {self._gib_max:g} GiB", "more", str(self._path),
                "Take the file as it was published, or raise the limit: `--unpacked-gib-max`, `trace.unpacked_gib_max`.",
            )  # fmt: skip
        return content


def _reason(error: Exception) -> str:
    """Return a text that says why the file could not be read."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or "its end is missing"
