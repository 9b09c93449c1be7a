"""The job files of the ElasticFlow repository."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import TableReader
from punctual.sim.traces.rows import Row


class Elasticflow(TableReader):
    """Submissions and durations of real clusters; models, iterations and deadlines drawn by the authors."""

    columns = "job_id submit_time iteration model_name ddl batch_size num_gpu duration"
    optional_columns = "real_iteration real_duration best_effort"

    def job(self, row: Row) -> TraceJob:
        submitted_at = row.number("submit_time")
        best_effort = bool(row.optional_number("best_effort"))
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=submitted_at,
            n_gpus=row.count("num_gpu"),
            duration_s=row.number("duration"),
            work_steps=row.number("iteration"),
            model_name=row.text("model_name"),
            batch_size=row.count("batch_size"),
            # A job without claim has a number there too, which means nothing.
            deadline_s=None if best_effort else row.number("ddl") - submitted_at,
            best_effort=best_effort,
        )
