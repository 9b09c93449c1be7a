"""Microsoft's ITP clusters of 2021, published with ElasticFlow: raw, and with models and deadlines made up."""

from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import TableReader
from punctual.sim.traces.rows import Row
from punctual.sim.traces.source import Head

_MADE_UP = {"num_iteration", "model_name", "deadline", "batch_size"}


class Itp(TableReader):
    """Real submissions, durations and devices of ten clusters, March to May 2021.

    In the files with models, those, their batch sizes, iterations and deadlines were drawn by the authors.
    """

    columns = "job_id submission_time duration num_gpu"
    optional_columns = "num_iteration model_name deadline batch_size"

    def recognises(self, head: Head) -> bool:
        """Whether the file's header fits, with all of the invented columns or none."""
        return super().recognises(head) and len(_MADE_UP & set(head.columns())) in {0, len(_MADE_UP)}

    def job(self, row: Row) -> TraceJob:
        submitted_at, deadline_at = row.number("submission_time"), row.optional_number("deadline")
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=submitted_at,
            n_gpus=row.count("num_gpu"),
            duration_s=row.number("duration"),
            work_steps=row.optional_number("num_iteration"),
            model_name=row.optional_text("model_name"),
            batch_size=row.count("batch_size") if "batch_size" in row.cells else None,
            deadline_s=None if deadline_at is None else deadline_at - submitted_at,
        )
