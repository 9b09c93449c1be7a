"""The workloads of Rubick: large models with an execution plan."""

from punctual.traces.job import TraceJob
from punctual.traces.readers._base import TableReader
from punctual.traces.rows import Row


class Rubick(TableReader):
    """Arrivals and devices of a real cluster; models, plans and steps assigned by the authors.

    The execution plan, the bandwidth and the mark of tenants with a guarantee are not kept.
    """

    columns = "name submission_time duration application num_gpus num_cpus bandwidth exec_plan steps is_sla"

    def job(self, row: Row) -> TraceJob:
        return TraceJob(
            id=row.text("name"),
            submitted_at=row.number("submission_time"),
            n_gpus=row.count("num_gpus"),
            duration_s=row.number("duration"),
            work_steps=row.number("steps"),
            model_name=row.text("application"),
            cores=row.number("num_cpus"),
        )
