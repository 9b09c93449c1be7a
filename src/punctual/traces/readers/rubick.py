"""The workloads of Rubick: large models with an execution plan."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {
    "name", "submission_time", "duration", "application", "num_gpus", "num_cpus", "bandwidth", "exec_plan", "steps",
    "is_sla",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rubick:
    """Arrivals and devices of a real cluster; models, plans and steps assigned by the authors.

    The execution plan, the bandwidth and the mark of tenants with a guarantee are not kept.
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
        submitted_at=row.number("submission_time"),
        n_gpus=row.count("num_gpus"),
        duration_s=row.number("duration"),
        work_steps=row.number("steps"),
        model_name=row.text("application"),
        cores=row.number("num_cpus"),
    )
