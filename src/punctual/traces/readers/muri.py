"""The traces of Muri: Philly jobs with the stages of an iteration, times in milliseconds."""

from punctual.traces.job import TraceJob
from punctual.traces.readers._base import MS_PER_S, TableReader
from punctual.traces.rows import Row

_PARAMETERS = {
    "iteration_time": "iteration_s",
    "resource_time_0": "storage_s",
    "resource_time_1": "cpu_s",
    "resource_time_2": "gpu_s",
}


class Muri(TableReader):
    """Submissions, durations and devices of Philly; models with the time of each stage assigned by the authors.

    In the files named ``_pr`` all jobs are there at the start.
    """

    columns = (
        "job_id num_gpu submit_time iterations model_name batch_size duration interval priority iteration_time "
        "resource_time_0 resource_time_1 resource_time_2"
    )

    def job(self, row: Row) -> TraceJob:
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=row.number("submit_time") / MS_PER_S,
            n_gpus=row.count("num_gpu"),
            duration_s=row.number("duration") / MS_PER_S,
            work_steps=row.number("iterations"),
            model_name=row.text("model_name"),
            batch_size=row.count("batch_size"),
            parameters={name: row.number(column) / MS_PER_S for column, name in _PARAMETERS.items()},
        )
