"""What the formats of Gavel and Shockwave have in common: tab-separated commands without a header."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from punctual.traces.bad_rows import BadRows
from punctual.traces.job import TraceJob
from punctual.traces.rows import Row, jobs_of, rows_of
from punctual.traces.source import Head, Source

#: A model, and where it stands in the name the batch size: ``ResNet-50 (batch size 64)``.
_JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<batch>[0-9]+)\))?")

#: The commands that these traces run.
_INTERPRETERS = ("python3 ", "python ")


class GavelReader(ABC):
    """Reads a format that is recognised by the number of its columns and its commands; a job is named by its line.

    Attributes
    ----------
    columns
        Their names, separated by blanks.
    """

    __slots__ = ()

    name: ClassVar[str]
    columns: ClassVar[str]

    def recognises(self, head: Head) -> bool:
        """By the number of its columns and the command."""
        present, columns = head.columns("\t"), self.columns.split()
        return len(present) == len(columns) and present[columns.index("command")].startswith(_INTERPRETERS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad, separator="\t", columns=self.columns.split()), self._job)

    def _job(self, row: Row) -> TraceJob:
        job_type = _JOB_TYPE.fullmatch(row.text("job_type"))
        assert job_type is not None  # any text has a model
        # How many times its run time a job may take, waiting included; not above zero: any time.
        factor = row.number("slo")
        return TraceJob(
            id=f"{self.name}-{row.line}",
            submitted_at=row.number("arrival"),
            n_gpus=row.count("scale_factor"),
            work_steps=row.number("total_steps"),
            model_name=job_type["model"],
            batch_size=int(job_type["batch"]) if job_type["batch"] else None,
            weight=row.number("priority"),
            **self.limits(row, factor if factor > 0 else None),
        )

    @abstractmethod
    def limits(self, row: Row, slack_factor: float | None) -> dict[str, Any]:
        """What follows for a job from the limit on its time; None: there is none."""
