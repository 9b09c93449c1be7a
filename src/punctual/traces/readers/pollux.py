"""The workloads of Pollux and of Sia, which took the format over."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {"name", "time", "application", "num_replicas", "batch_size"}


@dataclass(frozen=True, slots=True)
class Pollux:
    """Arrivals sampled from real clusters; applications, replicas and batch sizes chosen by the authors.

    How much work a job is stands in the profile of its application, not in the trace.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        id=row.text("name"),
        submitted_at=row.number("time"),
        n_gpus=row.count("num_replicas"),
        model_name=row.text("application"),
        batch_size=row.count("batch_size"),
    )
