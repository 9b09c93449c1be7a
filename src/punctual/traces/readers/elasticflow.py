"""The job files of the ElasticFlow repository."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {"job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration"}
_OPTIONAL = {"real_iteration", "real_duration", "best_effort"}


@dataclass(frozen=True, slots=True)
class Elasticflow:
    """Submissions and durations of real clusters; models, iterations and deadlines drawn by the authors."""

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS, _OPTIONAL)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    submitted_at = row.number("submit_time")
    best_effort = bool(row.optional_number("best_effort"))
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=submitted_at,
        n_gpus=row.count("num_gpu"),
        duration_s=row.number("duration"),
        work_steps=row.number("iteration"),
        model_name=row.text("model_name"),
        batch_size=row.count("batch_size"),
        # A job without claim has a number there too, which means nothing.
        deadline_s=None if best_effort else row.number("ddl") - submitted_at,
        best_effort=best_effort,
    )
