"""Alibaba's GPU cluster of 2023, `openb_pod_list_*.csv`: Kubernetes pods."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import MIB, TableReader
from punctual.sim.traces.rows import Row

_PER_MILLE = 1_000


class Pai2023(TableReader):
    """Real pods of a production cluster, training and inference alike, many with a share of a device.

    Pods that were never scheduled are bad rows.
    """

    columns = (
        "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time deletion_time scheduled_time"
    )

    def job(self, row: Row) -> TraceJob:
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
