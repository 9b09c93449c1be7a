"""The traces of Chronus: Philly jobs with deadlines, times in minutes."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.core.units import MINUTE_S
from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {
    "job_id", "user", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval", "expect_time_list",
    "expect_value_list", "best_effort", "job_type",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chronus:
    """Two weeks of Philly jobs; models, iterations and deadlines drawn by the authors.

    A strict job has one deadline. A soft one has several, each worth less: the first, at which it is worth most, is
    kept. The number that stands there for a best-effort job is its submission and no deadline.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file, which is not that of submission."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    best_effort = bool(row.count("best_effort"))
    return TraceJob(
        id=row.text("job_id"),
        submitted_at=row.number("submit_time") * MINUTE_S,
        n_gpus=row.count("num_gpu"),
        duration_s=row.number("duration") * MINUTE_S,
        work_steps=row.number("iterations"),
        model_name=row.text("model_name"),
        deadline_s=None if best_effort else _first_deadline_s(row),
        user=row.text("user"),
        best_effort=best_effort,
    )


def _first_deadline_s(row: Row) -> float:
    first = row.text("expect_time_list").split("-")[0]
    return Row(row.line, {"expect_time_list": first}).number("expect_time_list") * MINUTE_S
