"""The traces of Arena: large models on several kinds of devices, with deadlines."""

from punctual.traces.job import TraceJob
from punctual.traces.readers._base import TableReader
from punctual.traces.rows import Row


class Arena(TableReader):
    """Arrivals and devices of real clusters; models (family and size), iterations and deadlines by the authors.

    How long a job runs follows from the iteration times published beside the traces.
    """

    columns = "job_id submission_time num_iteration model_name deadline batch_size num_gpu gpu_type"

    def job(self, row: Row) -> TraceJob:
        submitted_at = row.number("submission_time")
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=submitted_at,
            n_gpus=row.count("num_gpu"),
            work_steps=row.number("num_iteration"),
            model_name=row.text("model_name"),
            batch_size=row.count("batch_size"),
            deadline_s=row.number("deadline") - submitted_at,
            device=row.text("gpu_type"),
        )
