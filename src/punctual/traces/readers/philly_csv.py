"""Microsoft's Philly clusters of 2017, as cleaned for the Pollux simulator: one row a job."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}


@dataclass(frozen=True, slots=True)
class PhillyCsv:
    """Real jobs of the Philly clusters, 2017: submission, run time, devices, virtual cluster.

    Jobs have no names in the file: a job is named by its line. Times of day are those of the clusters' time zone, so
    that the hour that the end of summer time repeats is there twice.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file, which is not that of submission."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        id=f"philly-{row.line}",
        submitted_at=row.at("timestamp"),
        n_gpus=row.count("num_gpus"),
        duration_s=row.number("duration"),
        user=row.text("cluster"),
    )
