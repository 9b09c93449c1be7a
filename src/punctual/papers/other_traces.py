"""Readers of traces published by papers that have no folder here."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from punctual.core.units import MINUTE_S
from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.readers._base import MS_PER_S, TableReader
from punctual.sim.traces.rows import Row, jobs_of, rows_of
from punctual.sim.traces.source import Head, Source

#: Model, and perhaps its batch size, of Gavel and Shockwave: ``ResNet-50 (batch size 64)``.
_JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<batch>[0-9]+)\))?")

#: Commands that the traces of Gavel and Shockwave run.
_INTERPRETERS = ("python3 ", "python ")

_HYDRA_COLUMNS = {"job_name", "norm_job_submit_time", "ddl"}
_HYDRA_INDEX = ""

_MURI_PARAMETERS = {
    "iteration_time": "iteration_s",
    "resource_time_0": "storage_s",
    "resource_time_1": "cpu_s",
    "resource_time_2": "gpu_s",
}


_TEXTS, _COUNTS, _TIMES = (
    {"id", "model_name", "device", "user"},
    {"n_gpus", "batch_size"},
    {"submitted_at", "duration_s"},
)


def traced(row: Row, fields: str, unit_s: float = 1.0, per_s: float = 1.0) -> dict[str, Any]:
    """Return fields of a job, written as ``field`` or ``field=column``; submissions and durations are in units of `unit_s`, or `per_s` in a second."""

    def value(field: str, column: str) -> str | float | None:
        if field in _TEXTS:
            return row.text(column)
        if field in _TIMES:
            return row.number(column) / per_s * unit_s
        return row.count(column) if field in _COUNTS else row.number(column)

    pairs = (text.partition("=") for text in fields.split())
    return {field: value(field, column or field) for field, _, column in pairs}


class Arena(TableReader):
    """Arrivals and devices of real clusters; models (family and size), iterations and deadlines by the authors.

    How long a job runs follows from the iteration times published beside the traces.
    """

    columns = "job_id submission_time num_iteration model_name deadline batch_size num_gpu gpu_type"

    def job(self, row: Row) -> TraceJob:
        fields = traced(
            row,
            "id=job_id submitted_at=submission_time n_gpus=num_gpu work_steps=num_iteration model_name batch_size device=gpu_type",
        )
        return TraceJob(**fields, deadline_s=row.number("deadline") - fields["submitted_at"])


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
        columns = "id=job_id submitted_at=submit_time n_gpus=num_gpu duration_s=duration work_steps=iterations model_name user"
        fields = traced(row, columns, MINUTE_S)
        return TraceJob(**fields, deadline_s=None if best_effort else _first_deadline_s(row), best_effort=best_effort)


def _first_deadline_s(row: Row) -> float:
    first = row.text("expect_time_list").split("-")[0]
    return Row(row.line, {"expect_time_list": first}).number("expect_time_list") * MINUTE_S


class GavelReader(ABC):
    """Reads a format that is recognised by the number of its columns and its commands; a job is named by its line."""

    name: ClassVar[str]
    columns: ClassVar[str]  # Their names, separated by blanks.

    def recognises(self, head: Head) -> bool:
        """Whether the number of columns and the command fit."""
        present, columns = head.columns("\t"), self.columns.split()
        return len(present) == len(columns) and present[columns.index("command")].startswith(_INTERPRETERS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        return jobs_of(source, bad, rows_of(source, bad, separator="\t", columns=self.columns.split()), self._job)

    def _job(self, row: Row) -> TraceJob:
        job_type = _JOB_TYPE.fullmatch(row.text("job_type"))
        assert job_type is not None  # any text has a model
        # Limit of a job's time in multiples of its run time, waiting included; not above zero: no limit.
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
        """Return the fields of a job that follow from the limit on its time; None: no limit."""


class Gavel(GavelReader):
    """Synthetic jobs whose sizes follow the Philly clusters; how fast they are stands in Gavel's tables.

    A limit on a job's time is a multiple of a run time that the trace does not say: it is kept as the parameter
    ``slack_factor``.
    """

    name = "gavel"
    columns = "job_type command workdir num_steps_arg needs_data_dir total_steps scale_factor priority slo arrival"

    def limits(self, row: Row, slack_factor: float | None) -> dict[str, Any]:
        return {} if slack_factor is None else {"parameters": {"slack_factor": slack_factor}}


class Hydra(TableReader):
    """Jobs of one device each that are all there at the start; run times per kind of device, some with a deadline."""

    def recognises(self, head: Head) -> bool:
        """Whether the header fits: every further column is a kind of device."""
        columns = set(head.columns())
        return columns >= _HYDRA_COLUMNS and bool(_devices(columns))

    def job(self, row: Row) -> TraceJob:
        deadline_s = row.number("ddl")
        return TraceJob(
            id=row.text("job_name"),
            submitted_at=row.number("norm_job_submit_time"),
            n_gpus=1.0,
            deadline_s=None if deadline_s == float("inf") else deadline_s,
            device_durations_s={device: row.number(device) for device in _devices(set(row.cells))},
        )


def _devices(columns: set[str]) -> list[str]:
    return sorted(columns - _HYDRA_COLUMNS - {_HYDRA_INDEX})


class Muri(TableReader):
    """Submissions, durations and devices of Philly; models with the time of each stage assigned by the authors.

    In the files named ``_pr`` all jobs are there at the start.
    """

    columns = (
        "job_id num_gpu submit_time iterations model_name batch_size duration interval priority iteration_time "
        "resource_time_0 resource_time_1 resource_time_2"
    )

    def job(self, row: Row) -> TraceJob:
        columns = "id=job_id submitted_at=submit_time n_gpus=num_gpu duration_s=duration work_steps=iterations model_name batch_size"
        fields = traced(row, columns, per_s=MS_PER_S)
        parameters = {name: row.number(column) / MS_PER_S for column, name in _MURI_PARAMETERS.items()}
        return TraceJob(**fields, parameters=parameters)


class Rubick(TableReader):
    """Arrivals and devices of a real cluster; models, plans and steps assigned by the authors.

    The execution plan, the bandwidth and the mark of tenants with a guarantee are not kept.
    """

    columns = "name submission_time duration application num_gpus num_cpus bandwidth exec_plan steps is_sla"

    def job(self, row: Row) -> TraceJob:
        columns = "id=name submitted_at=submission_time n_gpus=num_gpus duration_s=duration work_steps=steps model_name=application"
        return TraceJob(**traced(row, f"{columns} cores=num_cpus"))


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
