"""The traces of Gavel: tab-separated commands, no header."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._gavel_jobs import batch_size, is_gavel_like, model_name, slack_factor
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = (
    "job_type", "command", "workdir", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "priority",
    "slo", "arrival",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gavel:
    """Synthetic jobs whose sizes follow the Philly clusters; how fast they are stands in Gavel's tables.

    A job is named by its line. A limit on its time is a multiple of a run time that the trace does not say: it is kept
    as the parameter ``slack_factor``.
    """

    def recognises(self, head: Head) -> bool:
        """By the number of its columns and the command in the second."""
        return is_gavel_like(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad, separator="\t", columns=_COLUMNS), _job)


def _job(row: Row) -> TraceJob:
    factor = slack_factor(row)
    return TraceJob(
        id=f"gavel-{row.line}",
        submitted_at=row.number("arrival"),
        n_gpus=row.count("scale_factor"),
        work_steps=row.number("total_steps"),
        model_name=model_name(row),
        batch_size=batch_size(row),
        weight=row.number("priority"),
        parameters={} if factor is None else {"slack_factor": factor},
    )
