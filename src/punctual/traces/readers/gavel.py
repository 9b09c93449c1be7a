"""The traces of Gavel: tab-separated commands, no header."""

from typing import Any

from punctual.traces.readers._gavel_jobs import GavelReader
from punctual.traces.rows import Row


class Gavel(GavelReader):
    """Synthetic jobs whose sizes follow the Philly clusters; how fast they are stands in Gavel's tables.

    A limit on a job's time is a multiple of a run time that the trace does not say: it is kept as the parameter
    ``slack_factor``.
    """

    name = "gavel"
    columns = "job_type command workdir num_steps_arg needs_data_dir total_steps scale_factor priority slo arrival"

    def limits(self, row: Row, slack_factor: float | None) -> dict[str, Any]:
        return {} if slack_factor is None else {"parameters": {"slack_factor": slack_factor}}
