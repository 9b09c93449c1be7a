"""The traces of Muri: Philly jobs with the stages of an iteration, times in milliseconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import MS_PER_S, has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_PARAMETERS = {
    "iteration_time": "iteration_s",
    "resource_time_0": "storage_s",
    "resource_time_1": "cpu_s",
    "resource_time_2": "gpu_s",
}
_COLUMNS = {
    "job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration", "interval", "priority",
} | set(_PARAMETERS)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Muri:
    """Submissions, durations and devices of Philly; models with the time of each stage assigned by the authors.

    In the files named ``_pr`` all jobs are there at the start.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=row.number("submit_time") / MS_PER_S,
        n_gpus=row.count("num_gpu"),
        duration_s=row.number("duration") / MS_PER_S,
        work_steps=row.number("iterations"),
        model_name=row.text("model_name"),
        batch_size=row.count("batch_size"),
        parameters={name: row.number(column) / MS_PER_S for column, name in _PARAMETERS.items()},
    )
