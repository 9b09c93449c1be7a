"""Folder of a run: one host, its jobs, and the records that this user's other processes read."""

import fcntl
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobState
from punctual.daemon.control_socket import is_answered
from punctual.daemon.paths import agent_roots, refused_if_unwritable, remove_tree, runtime_root, state_root
from punctual.distribution import __version__
from punctual.executors.json_files import read_object, write_json
from punctual.executors.local.job_files import being_written, has_left, read_end, takeover_socket_of
from punctual.executors.local.job_log import times_of
from punctual.executors.local.output import ProcessSettings, StartFacts, earlier_log, logs_of
from punctual.journal.boot import boot_id
from punctual.journal.errors import JournalUnusable
from punctual.journal.job_records import JobRecords, JobRow, NewJob
from punctual.journal.owner import start_ticks
from punctual.journal.sqlite import SqliteJournal

#: Record of the process that steers a run, and suffix of the records of its jobs' supervisors.
_PROCESS, _SUPERVISOR = "run.json", ".supervisor.json"
#: Field: in a process's record, whether it is a service; in a run's, whether a service ever had it.
SERVICE = "is_service"


def process_record(pid: int) -> dict[str, Any]:
    """Return the identity of process `pid`: no later process with its number, nor any other machine's, has the same."""
    return {
        "pid": pid,
        "start_ticks": start_ticks(pid),
        "boot": boot_id(),
        "machine": os.uname().nodename,
        "namespace": _pid_namespace(),
    }


def is_alive(record: Mapping[str, Any]) -> bool:
    """Whether the recorded process runs; False if the record is damaged, or of another machine, boot or PID namespace."""
    pid, ticks = record.get("pid"), record.get("start_ticks")
    # Written down of a process that had just ended, the start is unknown: as it is of every process that is gone.
    if not isinstance(pid, int) or not isinstance(ticks, int):
        return False
    if not is_of_this_boot(record) or not _is_of_this_namespace(record):
        return False
    return start_ticks(pid) == ticks


def is_of_this_boot(record: Mapping[str, Any]) -> bool:
    """Whether the record is of this machine since its last start."""
    return bool(record.get("boot", boot_id()) == boot_id())


def _is_of_this_namespace(record: Mapping[str, Any]) -> bool:
    """Whether processes of the record have the numbers here that they have there: in another container they do not."""
    return bool(record.get("namespace", _pid_namespace()) == _pid_namespace())


@cache
def _pid_namespace() -> int:
    """Number of this process's PID namespace; 0: this system does not tell."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths and records of one run. `name`: name of its host; an earlier run of the same name is kept as ``name.1``."""

    name: str
    runtime_dir: Path
    state_dir: Path

    @property
    def socket(self) -> Path:
        return self.runtime_dir / "control.sock"

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal.db"

    def read_journal(self) -> SqliteJournal:
        """Open the journal for reading, whoever writes it; raises `InvalidSpec` if it is missing or unreadable."""
        return SqliteJournal(self.journal, read_only=True)

    @property
    def records(self) -> JobRecords:
        """Records of the jobs, in the journal's file."""
        return JobRecords(self.journal)

    def record(self, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts about the run, which are read if not given, and the record of its process; empty: none."""
        return {**(self.facts() if facts is None else facts), **read_object(self.runtime_dir / _PROCESS)}

    def is_live(self) -> bool:
        """Whether the process that steers this run's jobs still runs."""
        return self.daemon_pid() is not None

    def daemon_pid(self) -> int | None:
        """Return the process that steers this run's jobs, if it still runs."""
        return _pid_of_living(self.runtime_dir / _PROCESS)

    def machine(self, facts: Mapping[str, Any] | None = None) -> str | None:
        """Name of the other machine, or container, that has or had this run in a shared folder; None: it is this machine's.

        A run of a container whose processes do not listen any more is this machine's. `facts`: the run's, if just read.
        """
        record = self.record(facts)
        there = record.get("machine", os.uname().nodename)
        if is_of_this_boot(record):
            sockets = () if _is_of_this_namespace(record) else filter(Path.is_socket, self.runtime_dir.glob("*"))
            return f"{there}, in a container" if any(map(is_answered, sockets)) else None
        return None if there == os.uname().nodename else there

    # Its jobs.

    def rows(self) -> list[JobRow]:
        """Return the run's jobs in order of submission, as last recorded; a killed host's may have ended since.

        With those that run and that it lacks because it is missing or damaged: their supervisors are there.

        Raises `InvalidSpec`: the journal cannot be read now.
        """
        rows: list[JobRow] = []
        with suppress(JournalUnusable):
            rows = self.records.rows()
        known = {row.id for row in rows}
        return rows + [JobRow(job, job, "running") for job in self.supervised_jobs(but=known)]

    def jobs(self) -> dict[JobId, JobState]:
        """Return the states of the jobs in `rows`."""
        return {row.id: row.state for row in self.rows()}

    def removed_jobs(self) -> set[JobId]:
        """Return the removed jobs whose ids are not free yet; empty if they cannot be read."""
        with suppress(InvalidSpec):
            return self.records.removed()
        return set()

    def open_jobs(self) -> list[JobId]:
        """Return the jobs that are not known to have ended."""
        return [job for job, state in self.jobs().items() if state not in ENDED]

    def is_stopping(self, job: JobId) -> bool:
        """Whether its user has asked the supervisor to end the job."""
        return self.jobs().get(job) == "stopping"

    def record_job(self, job: JobId, state: JobState) -> None:
        """Record a job's state; the cost does not depend on the number of jobs."""
        self.records.set_state(job, state)

    def record_submitted(self, jobs: Sequence[NewJob]) -> None:
        """Record that jobs are queued, with what they need to start, all or none; returns once the disk has it.

        Raises `InvalidSpec`: there is no room for it.
        """
        with refused_if_unwritable(self.state_dir):
            self.records.add(jobs)

    def supervisor_pid(self, job: JobId) -> int | None:
        """Process id of the job's supervisor, if it runs; it outlives the process that steers the job."""
        return _pid_of_living(self._supervisor_record(job))

    def record_supervisor(self, job: JobId, pid: int) -> None:
        """Record the job's supervisor, to be found if the host is killed."""
        write_json(self._supervisor_record(job), process_record(pid))

    def supervised_jobs(self, *, but: Collection[JobId] = ()) -> list[JobId]:
        """Return the jobs that still run, steered or not; `but`: jobs to leave out."""
        names: list[str] = []
        with suppress(FileNotFoundError):  # its last job may just have ended
            names = sorted(os.listdir(self.runtime_dir))  # noqa: PTH208 -- a path's `glob` may fail where the folder goes meanwhile
        jobs = (JobId(name.removesuffix(_SUPERVISOR)) for name in names if name.endswith(_SUPERVISOR))
        return [job for job in jobs if job not in but and self.supervisor_pid(job) is not None]

    def takeover_socket(self, job: JobId) -> Path:
        """Path of the socket of the job's supervisor."""
        return takeover_socket_of(self.runtime_dir, job)

    def end_file(self, job: JobId) -> Path:
        """Path of the file in which the job's supervisor records the job's end."""
        return self.state_dir / f"{job}.end.json"

    def end_record(self, job: JobId) -> dict[str, Any] | None:
        """Return the record of an open job's end if its supervisor is gone; None: none, or it only made room."""
        last = read_end(self.end_file(job)) if self.supervisor_pid(job) is None else None
        return None if has_left(last) else last

    def forget_end(self, job: JobId) -> None:
        """Remove a supervisor's record of the end once the journal has it, or if it does not concern the job's state."""
        self.end_file(job).unlink(missing_ok=True)

    def _supervisor_record(self, job: JobId) -> Path:
        return self.runtime_dir / f"{job}{_SUPERVISOR}"

    def log(self, job: JobId) -> Path:
        """Path of the job's output; earlier output is beside it, with ``.1``. Both stay after the job's end."""
        return self.state_dir / f"{job}.log"

    def log_of(self, job: JobId, *, of_errors: bool = False) -> Path:
        """Path of the job's output, or of its standard error alone, which only some jobs have."""
        return logs_of(self.log(job), ProcessSettings(is_split=True))[of_errors]

    def outputs(self, job: JobId) -> list[Path]:
        """Return the paths of all output of the job that there may be, and of the times noted beside it."""
        logs = [
            file for log in logs_of(self.log(job), ProcessSettings(is_split=True)) for file in (log, earlier_log(log))
        ]
        return [*logs, *(Path(times_of(str(log))) for log in logs)]

    # What a job needs to be started.

    def start_facts(self, job: JobId) -> StartFacts | None:
        """Return the facts with which the job's process starts; None: it has ended."""
        if (start := self.records.start_of(job)) is None:
            return None
        settings = ProcessSettings.from_fields(start.get("streams") or {})
        return StartFacts(environment=start.get("environment", {}), argv=start.get("argv"), settings=settings)

    def submission(self, job: JobId) -> str | None:
        """Return the text of the job's submission, which may not be among the messages; None: the job has ended."""
        return (self.records.start_of(job) or {}).get("message")

    def record_end(self, job: JobId, state: JobState, facts: Mapping[str, Any] | None = None) -> None:
        """Record that a job has ended, with `facts` about it; forget what only an open job needs."""
        self.records.end(job, state, facts)
        for file in (self._supervisor_record(job), self.end_file(job), being_written(self.end_file(job))):
            file.unlink(missing_ok=True)

    def end_facts(self, job: JobId) -> dict[str, Any]:
        """Return the recorded facts of an ended job; empty: there are none."""
        return self.records.facts_of(job)

    def all_end_facts(self) -> dict[JobId, dict[str, Any]]:
        """Return the recorded facts of each ended job; empty if they cannot be read."""
        with suppress(InvalidSpec):
            return self.records.facts()
        return {}

    def forget(self, jobs: Sequence[JobId]) -> None:
        """Remove all that there is of ended jobs, their output first."""
        for job in jobs:
            for file in self.outputs(job):
                file.unlink(missing_ok=True)
        self.records.forget(jobs)

    # Its process.

    def record_steering(self, *, is_service: bool = False) -> None:
        """Record that this process steers the run from now on, in place of the one that has died or left.

        `is_service`: it stays when the jobs have ended.
        """
        with refused_if_unwritable(self.runtime_dir.parent):
            self.runtime_dir.mkdir(mode=0o700, exist_ok=True)  # the machine may have been started again
            write_json(self.runtime_dir / _PROCESS, {**process_record(os.getpid()), SERVICE: is_service})
        with refused_if_unwritable(self.state_dir):
            self.record_facts(version=__version__, **({SERVICE: True} if is_service else {}))

    def has_service(self) -> bool:
        """Whether a service steers this run."""
        record = read_object(self.runtime_dir / _PROCESS)
        return is_alive(record) and bool(record.get(SERVICE))

    def is_of_service(self) -> bool:
        """Whether a service steers this run, or did: no command waits for its jobs."""
        return bool(self.facts().get(SERVICE))

    def record_facts(self, **facts: Any) -> None:
        """Record facts about the host for other processes (JSON values)."""
        self.records.record_run_facts(facts)

    def facts(self) -> dict[str, Any]:
        """Return the recorded facts of the host: its options, and those that `record_facts` was given.

        Empty if they cannot be read.
        """
        with suppress(InvalidSpec):
            return self.records.run_facts()
        return {}

    def is_steered_here(self) -> bool:
        """Whether this process is recorded as the one that steers the run."""
        return self.daemon_pid() == os.getpid()

    def record_left(self) -> None:
        """Record that this process steers the run no more, and that another one may."""
        record = read_object(self.runtime_dir / _PROCESS)
        write_json(self.runtime_dir / _PROCESS, {**record, "pid": None})

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Show other processes that this one waits for jobs of the run, and will steer them if no other does."""
        with ExitStack() as closing:
            with suppress(FileNotFoundError):  # all its jobs have ended
                file = os.open(self._followers_file, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600)
                closing.callback(os.close, file)
                fcntl.flock(file, fcntl.LOCK_SH)
            yield

    def is_followed(self) -> bool:
        """Whether any process is within `followed`."""
        try:
            file = os.open(self._followers_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    @property
    def _followers_file(self) -> Path:
        return self.runtime_dir / "followers"

    def remove_live_places(self) -> None:
        """Remove files that only a live run needs; the journal stays."""
        remove_tree(self.runtime_dir)

    def remove(self) -> None:
        """Remove all files, the journal too."""
        self.remove_live_places()
        remove_tree(self.state_dir)


def new_job(
    job: JobId,
    message: str,
    environment: Mapping[str, str],
    argv: Sequence[str] | None = None,
    settings: ProcessSettings | None = None,
    *,
    name: str = "",
    request_key: str | None = None,
    request_digest: str | None = None,
) -> NewJob:
    """Return the row of a job that is submitted.

    * `message`: the text of its submission, in case this process is killed before that is among the messages.
    * `environment`: variables from its user's shell.
    * `argv`: its whole command line, if it has secrets in it.
    * `settings`: settings of the job's process; None: the host chooses.
    * `name`: name that it was given; empty: its id.
    * `request_key`, `request_digest`: as `NewJob` has them.
    """
    start = {
        "message": message,
        "environment": dict(environment),
        "argv": None if argv is None else list(argv),
        "streams": None if settings is None else asdict(settings),
    }
    return NewJob(id=job, name=name or job, start=start, request_key=request_key, request_digest=request_digest)


def run_named(name: str) -> RunFolder:
    """Return the places of a run of this name, which may not exist."""
    return RunFolder(name, runtime_root() / name, state_root() / name)


def free_name(name: str, *, is_new: bool = False) -> str:
    """Return `name` if a new run can have it, otherwise `name` with the least free number.

    `is_new`: no run that has ended has it either.
    """
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    free = (run for run in map(run_named, names) if _taken(run) is None)
    return next(run.name for run in free if not (is_new and run.state_dir.exists()))


def agent_run(name: str) -> RunFolder:
    """Return the places of a node's agent and its jobs, made if they are missing; no messages are in its journal."""
    live, state = agent_roots()
    run = RunFolder(name, live / name, state / name)
    with refused_if_unwritable(live):
        for folder in (run.runtime_dir, run.state_dir):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not run.journal.exists():
            run.records.create({})
    return run


def create_run(name: str, facts: Mapping[str, Any] | None = None, *, continues: bool = False) -> RunFolder:
    """Make the places of a new run of this process.

    * `name`: name of the run; valid as a file's name.
    * `facts`: facts about the run, beside its process (JSON values): command line, wall time.
    * `continues`: use the journal of an earlier run of this name, with the jobs that have ended; else that is kept
      under the name with a number added.

    Raises `InvalidSpec`: a run of this name has jobs that have not ended, or nothing can be written where runs live.
    """
    run = run_named(name)
    record = {**(facts or {}), "name": name, "version": __version__, **process_record(os.getpid())}
    with refused_if_unwritable(run.runtime_dir.parent):
        _claim(run, {**process_record(os.getpid()), SERVICE: bool(record.get(SERVICE))})
    with ExitStack() as failing, refused_if_unwritable(run.state_dir.parent):
        failing.callback(run.remove_live_places)
        if not continues:
            _keep_earlier(run.state_dir)
            failing.callback(remove_tree, run.state_dir)  # an empty journal would be told as a damaged one
        run.state_dir.mkdir(mode=0o700, exist_ok=continues)
        run.records.create(record)
        failing.pop_all()
    return run


def _claim(run: RunFolder, process: Mapping[str, Any]) -> None:
    """Move the runtime folder with this process's record into place in one step: of two processes one gets the name."""
    prepared = Path(tempfile.mkdtemp(prefix=".new-", dir=run.runtime_dir.parent))
    try:
        write_json(prepared / _PROCESS, process)
        _check_free(run)
        while not _renamed(prepared, run.runtime_dir):
            _check_free(run)
            remove_tree(run.runtime_dir)
    finally:
        remove_tree(prepared)


def _check_free(run: RunFolder) -> None:
    """Raise if the name belongs to a run that is live, has open jobs, or is another machine's."""
    if (taken := _taken(run)) is not None:
        raise taken


def _taken(run: RunFolder) -> InvalidSpec | None:
    """Return the error to raise because of the run that has the name; None: the name is free."""
    if run.is_live() or run.supervised_jobs():
        return _not_free(run.name, "", f"Choose another name, or end that one first (`punctual stop {run.name}`).")
    if run.machine() is not None and run.runtime_dir.exists():
        remedy = f"Choose another name, or remove '{run.runtime_dir}' if it has ended."
        return _not_free(run.name, f", a run of machine '{run.machine()}'", remedy)
    return interrupted(run.name) if run.open_jobs() else None


def interrupted(name: str) -> InvalidSpec:
    """Return the error to raise because a job that was interrupted has the name."""
    remedy = f"Resume it (`punctual attach {name}`), give it up (`punctual stop {name}`), or choose another name."
    return _not_free(name, ", which was interrupted", remedy)


def _not_free(name: str, whose: str, remedy: str) -> InvalidSpec:
    return InvalidSpec("`name` must not be that of a live run", f"'{name}'{whose}", f"job '{name}'", remedy)


def _renamed(source: Path, target: Path) -> bool:
    """Move `source` over `target`; return False if `target` is not empty."""
    try:
        source.rename(target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True


def _keep_earlier(folder: Path) -> None:
    number = 1
    while folder.exists():
        kept = folder.with_name(f"{folder.name}.{number}")
        if not kept.exists():
            folder.rename(kept)
        number += 1


def _pid_of_living(record: Path) -> int | None:
    read = read_object(record)
    return read["pid"] if is_alive(read) else None
