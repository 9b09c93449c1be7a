"""The traces of Shockwave: Gavel's with a mode and a duration."""

from typing import Any

from punctual.traces.readers._gavel_jobs import GavelReader
from punctual.traces.rows import Row


class Shockwave(GavelReader):
    """Synthetic jobs whose batch size changes while they train; `batch_size` is the first one.

    The rule by which the batch size changes (the column `mode`) is not kept.
    """

    name = "shockwave"
    columns = "job_type command workdir num_steps_arg needs_data_dir total_steps scale_factor mode priority slo duration arrival"

    def limits(self, row: Row, slack_factor: float | None) -> dict[str, Any]:
        duration_s = row.number("duration")
        return {
            "duration_s": duration_s,
            "deadline_s": None if slack_factor is None else slack_factor * duration_s,
        }
