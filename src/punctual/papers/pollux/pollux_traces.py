"""The workloads of Pollux and of Sia, which took the format over."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import TableReader
from punctual.sim.traces.rows import Row


class Pollux(TableReader):
    """Arrivals sampled from real clusters; applications, replicas and batch sizes chosen by the authors.

    How much work a job is stands in the profile of its application, not in the trace.
    """

    columns = "name time application num_replicas batch_size"

    def job(self, row: Row) -> TraceJob:
        return TraceJob(
            id=row.text("name"),
            submitted_at=row.number("time"),
            n_gpus=row.count("num_replicas"),
            model_name=row.text("application"),
            batch_size=row.count("batch_size"),
        )
