"""Alibaba's GPU cluster of 2023, `openb_pod_list_*.csv`: Kubernetes pods."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import MIB, has_columns
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

_COLUMNS = {
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
}  # fmt: skip
_PER_MILLE = 1_000


@dataclass(frozen=True, slots=True)
class Pai2023:
    """Real pods of a production cluster, training and inference alike, many with a share of a device.

    Pods that were never scheduled are bad rows.
    """

    def recognises(self, head: Head) -> bool:
        """By its header."""
        return has_columns(head, _COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The pods, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad), _job)


def _job(row: Row) -> TraceJob:
    n_gpus = row.count("num_gpu")
    return TraceJob(
        id=row.text("name"),
        submitted_at=row.number("creation_time"),
        # Only pods with one device share it.
        n_gpus=row.number("gpu_milli") / _PER_MILLE if n_gpus == 1 else n_gpus,
        duration_s=row.number("deletion_time") - row.number("scheduled_time"),
        device=row.optional_text("gpu_spec"),
        cores=row.number("cpu_milli") / _PER_MILLE,
        memory_bytes=row.number("memory_mib") * MIB,
        best_effort=row.optional_text("qos") == "BE",
    )
