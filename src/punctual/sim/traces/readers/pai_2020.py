"""Alibaba PAI, July and August 2020: `pai_job_table.csv` with `pai_task_table.csv` beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from punctual.core.errors import InvalidSpec
from punctual.core.units import GIB_BYTES
from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.rows import Row, jobs_of, reason_of, rows_of
from punctual.sim.traces.source import Head, Source

# The published tables have no header; these are the names of the `.header` files beside them.
_JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_ROLE_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
_ROLES_FILE = "pai_task_table.csv"
_STATUSES = {"Terminated", "Failed", "Running", "Waiting"}
_PERCENT = 100.0


@dataclass(slots=True)
class _Roles:
    """Total amount of one job's roles (workers, parameter servers, ...), and their time."""

    n_gpus: float = 0.0
    cores: float = 0.0
    memory_bytes: float = 0.0
    launched_at: float = float("inf")
    ended_at: float = float("-inf")
    devices: set[str] = field(default_factory=set)

    def add(self, row: Row) -> None:
        """Add one role, or nothing if one of its cells is invalid."""
        n_instances = _number(row, "inst_num", 1.0)
        n_gpus = n_instances * _number(row, "plan_gpu", 0.0) / _PERCENT
        cores = n_instances * _number(row, "plan_cpu", 0.0) / _PERCENT
        memory_bytes = n_instances * _number(row, "plan_mem", 0.0) * GIB_BYTES
        launched_at, ended_at = _number(row, "start_time", float("inf")), _number(row, "end_time", float("-inf"))
        self.n_gpus += n_gpus
        self.cores += cores
        self.memory_bytes += memory_bytes
        self.launched_at = min(self.launched_at, launched_at)
        self.ended_at = max(self.ended_at, ended_at)
        device = row.optional_text("gpu_type")
        if n_gpus and device:
            self.devices.add(device)


@dataclass(frozen=True, slots=True)
class Pai2020:
    """Real jobs of Alibaba's PAI; devices in shares of one.

    Read the job table; the other table must lie in the same folder, as the job table says neither devices nor when a job
    began to run. A job's duration is from the first launch of one of its roles to the last end; its devices, cores and
    memory are what its roles hold together. What the roles of all jobs hold is kept in memory, the jobs are not.
    """

    def recognises(self, head: Head) -> bool:
        """Whether the file has this format's statuses (it has no header), or an added header that fits."""
        return _is_table(head, _JOB_COLUMNS) or _is_table(head, _ROLE_COLUMNS)

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the job table."""
        roles = _roles_by_job(_role_table(source), bad)
        rows = rows_of(source, bad, columns=_JOB_COLUMNS)
        yield from jobs_of(source, bad, rows, partial(_job, roles))


def _number(row: Row, column: str, missing: float) -> float:
    number = row.optional_number(column)
    return missing if number is None else number


def _is_table(head: Head, columns: tuple[str, ...]) -> bool:
    present = head.columns()
    return present == columns or (len(present) == len(columns) and present[3] in _STATUSES)


def _role_table(source: Source) -> Source:
    beside = source.beside(_ROLES_FILE)
    if beside is None or len(source.head().columns()) != len(_JOB_COLUMNS):
        raise InvalidSpec(
            f"a PAI 2020 trace is read from its job table with {_ROLES_FILE} in the same folder", str(source), "a trace",
            "Put both tables into one folder and name the job table.",
        )  # fmt: skip
    return beside


def _roles_by_job(source: Source, bad: BadRows) -> Mapping[str, _Roles]:
    by_job: dict[str, _Roles] = {}
    for row in rows_of(source, bad, columns=_ROLE_COLUMNS):
        try:
            by_job.setdefault(row.text("job_name"), _Roles()).add(row)
        except InvalidSpec as error:
            bad.add(str(source), row.line, reason_of(error))
    return by_job


def _job(roles_by_job: Mapping[str, _Roles], row: Row) -> TraceJob:
    roles = roles_by_job.get(row.text("job_name"))
    if roles is None or roles.ended_at <= roles.launched_at:
        raise InvalidSpec(f"{_ROLES_FILE} must say when the job ran", "nothing", row.text("job_name"), "Skip it.")
    return TraceJob(
        id=row.text("job_name"),
        submitted_at=row.number("start_time"),
        n_gpus=roles.n_gpus,
        duration_s=roles.ended_at - roles.launched_at,
        device="|".join(sorted(roles.devices)) or None,
        cores=roles.cores,
        memory_bytes=roles.memory_bytes,
        user=row.optional_text("user"),
    )
