"""The traces of Arena: large models on several kinds of devices, with deadlines."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {
    "job_id", "submission_time", "num_iteration", "model_name", "deadline", "batch_size", "num_gpu", "gpu_type",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arena:
    """Arrivals and devices of real clusters; models (family and size), iterations and deadlines by the authors.

    How long a job runs follows from the iteration times published beside the traces.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    submitted_at = row.number("submission_time")
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=submitted_at,
        n_gpus=row.count("num_gpu"),
        work_steps=row.number("num_iteration"),
        model_name=row.text("model_name"),
        batch_size=row.count("batch_size"),
        deadline_s=row.number("deadline") - submitted_at,
        device=row.text("gpu_type"),
    )
