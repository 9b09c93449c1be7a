"""The cases of Hydra: PAI jobs with deadlines and a run time on each kind of device."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {"job_name", "norm_job_submit_time", "ddl"}
_INDEX = ""


@dataclass(frozen=True, slots=True)
class Hydra:
    """Jobs of one device each that are all there at the start; run times per kind of device, some with a deadline."""

    def recognises(self, head: Head) -> bool:
        """By its header: every further column is a kind of device."""
        columns = set(head.columns())
        return columns >= _COLUMNS and bool(_devices(columns))

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _devices(columns: set[str]) -> list[str]:
    return sorted(columns - _COLUMNS - {_INDEX})


def _job(row: Row) -> TraceJob:
    deadline_s = row.number("ddl")
    return TraceJob(
        id=row.text("job_name"),
        submitted_at=row.number("norm_job_submit_time"),
        n_gpus=1.0,
        deadline_s=None if deadline_s == float("inf") else deadline_s,
        device_durations_s={device: row.number(device) for device in _devices(set(row.cells))},
    )
