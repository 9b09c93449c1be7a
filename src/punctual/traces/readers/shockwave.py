"""The traces of Shockwave: Gavel's with a mode and a duration."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._gavel_jobs import batch_size, is_gavel_like, model_name, slack_factor
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = (
    "job_type", "command", "workdir", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "mode",
    "priority", "slo", "duration", "arrival",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shockwave:
    """Synthetic jobs whose batch size changes while they train; `batch_size` is the first one.

    A job is named by its line. The rule by which the batch size changes (the column `mode`) is not kept.
    """

    def recognises(self, head: Head) -> bool:
        """By the number of its columns and the command in the second."""
        return is_gavel_like(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad, separator="\t", columns=_COLUMNS), _job)


def _job(row: Row) -> TraceJob:
    factor, duration_s = slack_factor(row), row.number("duration")
    return TraceJob(
        id=f"shockwave-{row.line}",
        submitted_at=row.number("arrival"),
        n_gpus=row.count("scale_factor"),
        duration_s=duration_s,
        work_steps=row.number("total_steps"),
        model_name=model_name(row),
        batch_size=batch_size(row),
        deadline_s=None if factor is None else factor * duration_s,
        weight=row.number("priority"),
    )
