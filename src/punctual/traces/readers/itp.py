"""Microsoft's ITP clusters of 2021, published with ElasticFlow: raw, and with models and deadlines made up."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_RAW = {"job_id", "submission_time", "duration", "num_gpu"}
_MADE_UP = {"num_iteration", "model_name", "deadline", "batch_size"}


@dataclass(frozen=True, slots=True)
class Itp:
    """Real submissions, durations and devices of ten clusters, March to May 2021.

    In the files with models, those, their batch sizes, iterations and deadlines were drawn by the authors.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _RAW) or has_columns(head, _RAW | _MADE_UP)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    submitted_at, deadline_at = row.number("submission_time"), row.optional_number("deadline")
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=submitted_at,
        n_gpus=row.count("num_gpu"),
        duration_s=row.number("duration"),
        work_steps=row.optional_number("num_iteration"),
        model_name=row.optional_text("model_name"),
        batch_size=row.count("batch_size") if "batch_size" in row.cells else None,
        deadline_s=None if deadline_at is None else deadline_at - submitted_at,
    )
