"""SenseTime's Helios clusters of 2020, `cluster_log.csv`: the accounting of Slurm."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {
    "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time",
    "duration", "queue",
}  # fmt: skip
_OPTIONAL = {"jobname"}


@dataclass(frozen=True, slots=True)
class Helios:
    """Real jobs of four Helios clusters, April to September 2020, jobs without devices included.

    Failed and cancelled jobs are jobs. Those cancelled before they ran lasted 0 s and are bad rows.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS, _OPTIONAL)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=row.at("submit_time"),
        n_gpus=row.count("gpu_num"),
        duration_s=row.number("duration"),
        cores=row.number("cpu_num"),
        user=row.optional_text("user") or row.optional_text("vc"),
    )
