"""Microsoft's Philly clusters of 2017, as cleaned for the Pollux simulator: one row a job."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import TableReader
from punctual.sim.traces.rows import Row


class PhillyCsv(TableReader):
    """Real jobs of the Philly clusters, 2017: submission, run time, devices, virtual cluster.

    Jobs have no names in the file: a job is named by its line. Times of day are those of the clusters' time zone, so
    that the hour that the end of summer time repeats is there twice.
    """

    columns = "timestamp duration num_gpus gpu_time cluster"

    def job(self, row: Row) -> TraceJob:
        return TraceJob(
            id=f"philly-{row.line}",
            submitted_at=row.at("timestamp"),
            n_gpus=row.count("num_gpus"),
            duration_s=row.number("duration"),
            user=row.text("cluster"),
        )
