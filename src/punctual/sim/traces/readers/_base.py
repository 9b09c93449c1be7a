"""Shared parts of readers: most formats are a table with a header and one job in a row."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.rows import Row, jobs_of, rows_of
from punctual.sim.traces.source import Head, Source

MIB = 2**20
MS_PER_S = 1_000


class TableReader(ABC):
    """Reads a format that is recognised by its header.

    Attributes
    ----------
    columns
        The header has all of these names, and none beyond them but those of `optional_columns`; separated by blanks.
    """

    columns: ClassVar[str]
    optional_columns: ClassVar[str] = ""

    def recognises(self, head: Head) -> bool:
        """Whether the file's header fits."""
        required, present = set(self.columns.split()), set(head.columns())
        return required <= present <= required | set(self.optional_columns.split())

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """Yield the jobs in the order of the file, which may differ from that of submission."""
        return jobs_of(source, bad, rows_of(source, bad), self.job)

    @abstractmethod
    def job(self, row: Row) -> TraceJob:
        """Return the job of a row; raise `InvalidSpec` if the row has none."""
