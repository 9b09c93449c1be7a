"""The cases of Hydra: PAI jobs with deadlines and a run time on each kind of device."""

from punctual.traces.job import TraceJob
from punctual.traces.readers._base import TableReader
from punctual.traces.rows import Row
from punctual.traces.source import Head

_COLUMNS = {"job_name", "norm_job_submit_time", "ddl"}
_INDEX = ""


class Hydra(TableReader):
    """Jobs of one device each that are all there at the start; run times per kind of device, some with a deadline."""

    def recognises(self, head: Head) -> bool:
        """By its header: every further column is a kind of device."""
        columns = set(head.columns())
        return columns >= _COLUMNS and bool(_devices(columns))

    def job(self, row: Row) -> TraceJob:
        deadline_s = row.number("ddl")
        return TraceJob(
            id=row.text("job_name"),
            submitted_at=row.number("norm_job_submit_time"),
            n_gpus=1.0,
            deadline_s=None if deadline_s == float("inf") else deadline_s,
            device_durations_s={device: row.number(device) for device in _devices(set(row.cells))},
        )


def _devices(columns: set[str]) -> list[str]:
    return sorted(columns - _COLUMNS - {_INDEX})
