"""The traces of Chronus: Philly jobs with deadlines, times in minutes."""

from punctual.core.units import MINUTE_S
from punctual.traces.job import TraceJob
from punctual.traces.readers._base import TableReader
from punctual.traces.rows import Row


class Chronus(TableReader):
    """Two weeks of Philly jobs; models, iterations and deadlines drawn by the authors.

    A strict job has one deadline. A soft one has several, each worth less: the first, at which it is worth most, is
    kept. The number that stands there for a best-effort job is its submission and no deadline.
    """

    columns = (
        "job_id user num_gpu submit_time iterations model_name duration interval expect_time_list "
        "expect_value_list best_effort job_type"
    )

    def job(self, row: Row) -> TraceJob:
        best_effort = bool(row.count("best_effort"))
        return TraceJob(
            id=row.text("job_id"),
            submitted_at=row.number("submit_time") * MINUTE_S,
            n_gpus=row.count("num_gpu"),
            duration_s=row.number("duration") * MINUTE_S,
            work_steps=row.number("iterations"),
            model_name=row.text("model_name"),
            deadline_s=None if best_effort else _first_deadline_s(row),
            user=row.text("user"),
            best_effort=best_effort,
        )


def _first_deadline_s(row: Row) -> float:
    first = row.text("expect_time_list").split("-")[0]
    return Row(row.line, {"expect_time_list": first}).number("expect_time_list") * MINUTE_S
