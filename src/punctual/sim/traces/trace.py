"""Detect a trace file's format, and read its jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.sim.traces.bad_rows import BadRows, OnBad
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.limits import UNPACKED_GIB_MAX
from punctual.sim.traces.source import Head, Source

#: The family of plug-ins: one file, one format.
FAMILY = "traces.readers"


class Reader(Protocol):
    """Knows one file format."""

    def recognises(self, head: Head) -> bool:
        """Whether a file that begins like this is of the format."""
        ...

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """Yield the jobs of the file, in its order, and report invalid rows to `bad`."""
        ...


@dataclass(slots=True)
class Trace:
    """The jobs of a file, in its order; each iteration reads the file again.

    Attributes
    ----------
    format
        Registered name of the reader.
    bad
        The rows left out by the last iteration, as far as it went.
    """

    source: Source
    format: str
    reader: Reader
    on_bad: OnBad = "skip"
    bad: BadRows = field(default_factory=BadRows)

    def __iter__(self) -> Iterator[TraceJob]:
        self.bad = BadRows(self.on_bad)
        return self.reader.read(self.source, self.bad)


def read(path: str | Path, on_bad: OnBad = "skip", unpacked_gib_max: float = UNPACKED_GIB_MAX) -> Trace:
    """Open a trace file; its content determines the format.

    Parameters
    ----------
    path
        Plain or gzip-compressed text.
    on_bad
        Rows that cannot be used are skipped and counted in the result's `bad`, or raise `InvalidSpec`.
    unpacked_gib_max
        Limit of a compressed file's contents, in GiB; reading more raises `InvalidSpec`.

    Raises
    ------
    InvalidSpec
        The file cannot be read, or is of no known format.
    """
    source = Source(Path(path), unpacked_gib_max)
    head = source.head()
    for name in registry.each(FAMILY):
        reader = registry.load(FAMILY, name)()
        if reader.recognises(head):
            return Trace(source, name, reader, on_bad, BadRows(on_bad))
    raise InvalidSpec(
        f"a trace must be of a known format ({', '.join(formats())})",
        f"a file that begins with {head.first[:120]!r}" if head.first.strip() else "an empty file", str(source),
        "Take a file that holds jobs, with its header line as it was published.",
    )  # fmt: skip


def formats() -> list[str]:
    """The registered names of the formats that can be read."""
    return registry.names(FAMILY)
