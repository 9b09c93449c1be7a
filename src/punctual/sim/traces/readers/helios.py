"""SenseTime's Helios clusters of 2020, `cluster_log.csv`: the accounting of Slurm."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import TableReader
from punctual.sim.traces.rows import Row


class Helios(TableReader):
    """Real jobs of four Helios clusters, April to September 2020, jobs without devices included.

    Failed and cancelled jobs are jobs. Those cancelled before they ran lasted 0 s and are bad rows.
    """

    columns = "job_id user vc gpu_num cpu_num node_num state submit_time start_time end_time duration queue"
    optional_columns = "jobname"

    def job(self, row: Row) -> TraceJob:
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=row.at("submit_time"),
            n_gpus=row.count("gpu_num"),
            duration_s=row.number("duration"),
            cores=row.number("cpu_num"),
            user=row.optional_text("user") or row.optional_text("vc"),
        )
