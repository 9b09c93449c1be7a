"""Folder of a run: one host, its jobs, and the records that this user's other processes read."""

import ctypes
import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobState
from punctual.daemon.paths import agent_roots, refused_if_unwritable, remove_tree, runtime_root, state_root
from punctual.daemon.process_record import is_alive, is_of_this_boot, process_record
from punctual.distribution import __version__
from punctual.executors.local.job_files import being_written, has_left, read_end, takeover_socket_of
from punctual.executors.local.output import Streams, logs_of
from punctual.journal.sqlite import SqliteJournal

_RECORD = "run.json"
#: A line for each time that a job came to stand otherwise: nothing is written again, however many jobs there are.
_JOBS = "jobs.jsonl"
#: More files than these are had on the disk by having all of it there.
_N_SYNCS_MAX = 32
#: Suffix of the file with all that is needed to start a job.
_START = ".start.json"
#: Field: in a process's record, whether it is a service; in a run's, whether a service ever had it.
SERVICE = "is_service"
#: Parts that are stored of a job until it ends.
_KEPT = ("environment", "argv", "streams", "submitted")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths and records of one run.

    Attributes
    ----------
    name
        Name of its host; an earlier run of the same name is kept as ``name.1``.
    """

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
    def record_file(self) -> Path:
        return self.state_dir / _RECORD

    def record(self) -> dict[str, Any]:
        """Return the record of the run's process; empty if there is none or it cannot be read."""
        return _read_json(self.runtime_dir / _RECORD) or _read_json(self.state_dir / _RECORD)

    def is_live(self) -> bool:
        """Whether the process that steers this run's jobs still runs."""
        return is_alive(_read_json(self.runtime_dir / _RECORD))

    def machine(self) -> str | None:
        """Name of the other machine that has, or had, this run in a shared folder; None: it is this machine's."""
        record = self.record()
        there = record.get("machine", os.uname().nodename)
        return None if is_of_this_boot(record) or there == os.uname().nodename else there

    # Its jobs.

    def jobs(self) -> dict[JobId, JobState]:
        """Return the run's jobs in order of submission, as last recorded; a killed host's may have ended since."""
        earlier = _read_json(self.state_dir / _RECORD).get("jobs", {})  # where earlier versions kept them
        jobs: dict[JobId, JobState] = dict(earlier) if isinstance(earlier, dict) else {}
        jobs.update(_read_pairs(self.state_dir / _JOBS))
        if not jobs:  # it was damaged: those that have not ended have left what they are started with
            jobs = {JobId(file.name.removesuffix(_START)): "queued" for file in self.state_dir.glob(f"*{_START}")}
        return jobs

    def open_jobs(self) -> list[JobId]:
        """Return the jobs that are not known to have ended."""
        return [job for job, state in self.jobs().items() if state not in ENDED]

    def is_stopping(self, job: JobId) -> bool:
        """Whether its user has asked the keeper to end the job."""
        return self.jobs().get(job) == "stopping"

    def record_job(self, job: JobId, state: JobState) -> None:
        """Record a job's state; the cost does not depend on the number of jobs."""
        _append_line(self.state_dir / _JOBS, json.dumps([job, state]))

    def sync_submissions(self, jobs: Sequence[JobId]) -> None:
        """Flush the stored submissions to the disk."""
        (self.state_dir / _JOBS).touch(mode=0o600)
        if len(jobs) > _N_SYNCS_MAX:  # each file waits for the disk by itself
            _sync(self.state_dir, with_all_of_its_disk=True)
            return
        for kept in (*map(self._start_file, jobs), self.state_dir):
            _sync(kept)

    def record_submitted(self, jobs: Sequence[JobId]) -> None:
        """Record that jobs are queued, all or, if it raises, none; returns once the disk has it."""
        _append_line(self.state_dir / _JOBS, "\n".join(json.dumps([job, "queued"]) for job in jobs), is_durable=True)

    def _compact_jobs(self) -> None:
        """Rewrite the record with one line a job; only while no other process records states."""
        file = self.state_dir / _JOBS
        if file.exists():
            lines = [json.dumps(pair) + "\n" for pair in _read_pairs(file).items()]
            _replace_file(file, "".join(lines), is_durable=True)

    def record_pause(self, job: JobId, told: str | None) -> None:
        """Record that a user has paused a job, by whom and why; None: it was resumed."""
        if told is None:
            self._pause_file(job).unlink(missing_ok=True)
        else:
            _write_json(self._pause_file(job), {"told": told})

    def pause(self, job: JobId) -> str | None:
        """Return in words by whom a job was paused and why; None: by no user."""
        return _read_json(self._pause_file(job)).get("told")

    def _pause_file(self, job: JobId) -> Path:
        return self.state_dir / f"{job}.paused.json"

    def keeper_pid(self, job: JobId) -> int | None:
        """Process id of the job's keeper, if it runs; it outlives the process that steers the job."""
        record = _read_json(self._keeper_record(job))
        return record["pid"] if is_alive(record) else None

    def is_looked_after(self, job: JobId) -> bool:
        """Whether the job's keeper runs, or else the keeper's guard, which then ends the job and clears up."""
        record = _read_json(self._keeper_record(job))
        return is_alive(record) or is_alive(record.get("guard", {}))

    def record_keeper(self, job: JobId, pid: int, guard_pid: int) -> None:
        """Record the job's keeper, to be found if the host is killed."""
        _write_json(self._keeper_record(job), {**process_record(pid), "guard": process_record(guard_pid)})

    def kept_jobs(self) -> list[JobId]:
        """Return the jobs that still run, steered or not."""
        return [job for job in self.jobs() if self.keeper_pid(job) is not None]

    def takeover_socket(self, job: JobId) -> Path:
        """Path of the socket of the job's keeper."""
        return takeover_socket_of(self.runtime_dir, job)

    def end_file(self, job: JobId) -> Path:
        """Path of the file in which the job's keeper records the job's end."""
        return self.state_dir / f"{job}.end.json"

    def end_record(self, job: JobId) -> dict[str, Any] | None:
        """Return the record of an open job's end if its keeper is gone; None: there is none, or it only made room."""
        last = read_end(self.end_file(job)) if self.keeper_pid(job) is None else None
        return None if has_left(last) else last

    def forget_end(self, job: JobId) -> None:
        """Remove a keeper's record of the end once the journal has it, or if it does not concern the job's state."""
        self.end_file(job).unlink(missing_ok=True)

    def _keeper_record(self, job: JobId) -> Path:
        return self.runtime_dir / f"{job}.keeper.json"

    def log(self, job: JobId) -> Path:
        """Path of the job's output; earlier output is beside it, with ``.1``. Both stay after the job's end."""
        return self.state_dir / f"{job}.log"

    def log_of(self, job: JobId, *, of_errors: bool = False) -> Path:
        """Path of the job's output, or of its standard error alone, which only some jobs have."""
        return logs_of(self.log(job), Streams(is_split=True))[of_errors]

    # What a job needs to be started, and must not be in the journal.

    def keep_submission(
        self,
        job: JobId,
        message: str,
        variables: Mapping[str, str],
        argv: Sequence[str] | None = None,
        streams: Streams | None = None,
    ) -> None:
        """Store all that is needed to start a job in one file: each costs the submission as much as the journal does.

        Parameters
        ----------
        message
            The text of its submission, in case this process is killed before that is in the journal.
        variables
            Variables from its user's shell; only this user can read them.
        argv
            Its whole command line, if it has secrets in it.
        streams
            Output streams of the job; None: the host chooses.
        """
        kept: dict[str, Any] = {"environment": dict(variables), "submitted": {"message": message}}
        if argv is not None:
            kept["argv"] = {"argv": list(argv)}
        if streams is not None:
            kept["streams"] = asdict(streams)
        with refused_if_unwritable(self.state_dir):
            _write_json(self._start_file(job), kept)

    def inherited(self, job: JobId) -> dict[str, str]:
        """Return the job's stored environment variables; empty if it has ended."""
        return self._kept(job, "environment")

    def start_variables(self, job: JobId) -> dict[str, str] | None:
        """Return the environment variables to start a job with; None: they are lost."""
        is_kept = _read_json(self._start_file(job)) or self._earlier_file(job, "environment").exists()
        return self.inherited(job) if is_kept else None

    def argv(self, job: JobId) -> list[str] | None:
        """Return the job's stored command line; None: there is none, or the job has ended."""
        return self._kept(job, "argv").get("argv")

    def streams(self, job: JobId) -> Streams | None:
        """Return the job's stored output streams; None: the host chooses."""
        kept = self._kept(job, "streams")
        return Streams.from_fields(kept) if kept else None

    def kept_submission(self, job: JobId) -> str | None:
        """Return the text of the job's submission, which may not be in the journal; None: the job has ended."""
        return self._kept(job, "submitted").get("message")

    def _kept(self, job: JobId, part: str) -> dict[str, Any]:
        kept: dict[str, Any] = _read_json(self._start_file(job)).get(part, {})
        return kept or _read_json(self._earlier_file(job, part))

    def _start_file(self, job: JobId) -> Path:
        return self.state_dir / f"{job}{_START}"

    def _earlier_file(self, job: JobId, part: str) -> Path:
        """Path of a part's own file, as earlier versions stored it."""
        return self.state_dir / f"{job}.{part}.json"

    def record_end(self, job: JobId, state: JobState, facts: Mapping[str, Any] | None = None) -> None:
        """Remove the files of an open job, and record that the job has ended, with `facts` about it.

        That it has ended is written last, in case of a kill.
        """
        if facts:
            _write_json(self._end_facts_file(job), facts)
        self.forget(job)
        self.record_job(job, state)

    def forget(self, job: JobId) -> None:
        """Remove the files that only an open job needs."""
        for file in (
            self._start_file(job),
            *(self._earlier_file(job, part) for part in _KEPT),
            self._pause_file(job),
            self._keeper_record(job),
            self.end_file(job),
            being_written(self.end_file(job)),
        ):
            file.unlink(missing_ok=True)

    def end_facts(self, job: JobId) -> dict[str, Any]:
        """Return the recorded facts of an ended job; empty: there are none."""
        facts = _read_json(self._end_facts_file(job))
        return facts or dict(_read_json(self.state_dir / _RECORD).get("ends", {}).get(job, {}))

    def _end_facts_file(self, job: JobId) -> Path:
        return self.state_dir / f"{job}.facts.json"

    # Its process.

    def record_steering(self, *, is_service: bool = False) -> None:
        """Record that this process steers the run from now on, in place of the one that has died or left.

        `is_service`: it stays when the jobs have ended.
        """
        with refused_if_unwritable(self.runtime_dir.parent):
            self.runtime_dir.mkdir(mode=0o700, exist_ok=True)  # the machine may have been started again
            process = {**process_record(os.getpid()), SERVICE: is_service}
            _write_json(self.runtime_dir / _RECORD, {**self.record(), **process})
            self.record_facts(version=__version__, **({SERVICE: True} if is_service else {}))
            self._compact_jobs()

    def has_service(self) -> bool:
        """Whether a service steers this run."""
        record = _read_json(self.runtime_dir / _RECORD)
        return is_alive(record) and bool(record.get(SERVICE))

    def is_of_service(self) -> bool:
        """Whether a service steers this run, or did: no command waits for its jobs."""
        return bool(self.facts().get(SERVICE))

    def record_facts(self, **facts: Any) -> None:
        """Record facts about the host for other processes (JSON values)."""
        record = _read_json(self.state_dir / _RECORD)
        _write_json(self.state_dir / _RECORD, {**record, **facts}, is_durable=True)

    def facts(self) -> dict[str, Any]:
        """Return the recorded facts of the host: its options, and those that `record_facts` was given."""
        return _read_json(self.state_dir / _RECORD)

    def is_steered_here(self) -> bool:
        """Whether this process is recorded as the one that steers the run."""
        return self.is_live() and bool(_read_json(self.runtime_dir / _RECORD)["pid"] == os.getpid())

    def record_left(self) -> None:
        """Record that this process steers the run no more, and that another one may."""
        record = _read_json(self.runtime_dir / _RECORD)
        _write_json(self.runtime_dir / _RECORD, {**record, "pid": None})

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Show other processes that this one waits for jobs of the run, and will steer them if no other does."""
        try:
            file = os.open(self._followers_file(), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # all its jobs have ended
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield
        finally:
            os.close(file)

    def is_followed(self) -> bool:
        """Whether any process is within `followed`."""
        try:
            file = os.open(self._followers_file(), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def _followers_file(self) -> Path:
        return self.runtime_dir / "followers"

    def remove_live_places(self) -> None:
        """Remove files that only a live run needs, and half-written files of killed processes; the journal stays."""
        for unfinished in self.state_dir.glob(".*.json.*"):
            unfinished.unlink(missing_ok=True)
        remove_tree(self.runtime_dir)

    def remove(self) -> None:
        """Remove all files, the journal too."""
        self.remove_live_places()
        remove_tree(self.state_dir)


def run_named(name: str) -> RunFolder:
    """Return the places of a run of this name, which may not exist."""
    return RunFolder(name, runtime_root() / name, state_root() / name)


def free_name(name: str) -> str:
    """Return `name` if a new run can have it, otherwise `name` with the least free number."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(name for name in names if _taken(run_named(name)) is None)


def agent_run(name: str) -> RunFolder:
    """Return the places of a node's agent and its jobs, made if they are missing; it has no journal."""
    live, state = agent_roots()
    run = RunFolder(name, live / name, state / name)
    with refused_if_unwritable(live):
        for folder in (run.runtime_dir, run.state_dir):
            folder.mkdir(mode=0o700, exist_ok=True)
    return run


def create_run(name: str, facts: Mapping[str, Any] | None = None) -> RunFolder:
    """Make the places of a new run of this process.

    The journal of an earlier run of the same name is kept under the name with a number added.

    Parameters
    ----------
    name
        Name of the run; valid as a file's name.
    facts
        Kept in the run's record beside process id and its start (JSON values): command line, wall time.

    Raises
    ------
    InvalidSpec
        A run of this name has jobs that have not ended, or nothing can be written where runs live.
    """
    run = run_named(name)
    record = {**(facts or {}), "name": name, "version": __version__, **process_record(os.getpid())}
    with refused_if_unwritable(run.runtime_dir.parent):
        _claim(run, record)
    with refused_if_unwritable(run.state_dir.parent):
        _keep_earlier(run.state_dir)
        run.state_dir.mkdir(mode=0o700)
        _write_json(run.state_dir / _RECORD, record, is_durable=True)
        _sync(run.state_dir.parent)
    return run


def _claim(run: RunFolder, record: Mapping[str, Any]) -> None:
    """Move the runtime folder, record included, into place in one step: of two processes one gets the name."""
    prepared = Path(tempfile.mkdtemp(prefix=".new-", dir=run.runtime_dir.parent))
    try:
        _write_json(prepared / _RECORD, record)
        _check_free(run)
        while not _renamed(prepared, run.runtime_dir):
            _check_free(run)
            remove_tree(run.runtime_dir)
    finally:
        remove_tree(prepared)


def _check_free(run: RunFolder) -> None:
    """Raise if the name belongs to a run that is live, has open jobs, or is another machine's."""
    if (taken := _taken(run)) is not None:
        got, remedy = taken
        raise InvalidSpec("`name` must not be that of a live run", got, f"job '{run.name}'", remedy)


def _taken(run: RunFolder) -> tuple[str, str] | None:
    """Describe the run that has the name, and the user's remedy; None: the name is free."""
    if run.is_live() or run.kept_jobs():
        return f"'{run.name}'", f"Choose another name, or end that one first (`punctual stop {run.name}`)."
    if run.machine() is not None and run.runtime_dir.exists():
        got = f"'{run.name}', a run of machine '{run.machine()}'"
        return got, f"Choose another name, or remove '{run.runtime_dir}' if it has ended."
    if run.open_jobs():
        remedy = f"Resume it (`punctual attach {run.name}`), give it up (`punctual stop {run.name}`), or choose another name."
        return f"'{run.name}', which was interrupted", remedy
    return None


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


def _write_json(path: Path, value: Mapping[str, Any], *, is_durable: bool = False) -> None:
    _replace_file(path, json.dumps(value), is_durable=is_durable)


def _replace_file(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Replace the file in one step, readable by this user only. Its folder is this user's alone.

    `is_durable`: if the machine loses power there is either what was there before or all of this.
    """
    prepared = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_whole(file, text.encode(), prepared)
            if is_durable:
                os.fsync(file)
        finally:
            os.close(file)
        prepared.replace(path)
    except OSError:  # the disk is full, say
        prepared.unlink(missing_ok=True)
        raise


def _read_json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if isinstance(value, dict) else {}
    return {}


def _sync(path: Path, *, with_all_of_its_disk: bool = False) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not with_all_of_its_disk or ctypes.CDLL(None).syncfs(file):
            os.fsync(file)
    finally:
        os.close(file)


def _append_line(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Append a line to a file of this user or, if it raises, nothing; with `is_durable`, returns once the disk has it.

    What a kill left half written before it is a line of its own.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        end = os.fstat(file).st_size
        line = f"{text}\n" if not end or os.pread(file, 1, end - 1) == b"\n" else f"\n{text}\n"
        try:
            _write_whole(file, line.encode(), path)
            if is_durable:
                os.fsync(file)
        except OSError:
            os.ftruncate(file, end)
            raise
    finally:
        os.close(file)


def _write_whole(file: int, text: bytes, path: Path) -> None:
    if os.write(file, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


#: Cache by path: the whole lines of a file of pairs, and the pairs. A run has a line for each job that it ever had.
_PAIRS: dict[Path, tuple[bytes, dict[Any, Any]]] = {}
_N_PAIRS_MAX = 64


def _read_pairs(path: Path) -> Mapping[Any, Any]:
    """Read a file of JSON pairs, a line each; the last value of a key holds, and an incomplete last line is left out.

    If the file has only grown since it was last read, only the new lines are parsed.
    """
    try:
        text = path.read_bytes()
    except OSError:
        return {}
    known, pairs = _PAIRS.get(path, (b"", {}))
    if not text.startswith(known):
        known, pairs = b"", {}
    lines = text[: text.rfind(b"\n") + 1]
    if new := lines[len(known) :].splitlines():
        pairs = {**pairs, **_pairs(new)}
        if len(_PAIRS) >= _N_PAIRS_MAX:
            _PAIRS.clear()
        _PAIRS[path] = lines, pairs
    return pairs


def _pairs(lines: Sequence[bytes]) -> dict[Any, Any]:
    try:
        return dict(json.loads(b"[%b]" % b",".join(lines)))
    except ValueError:
        return dict(pair for line in lines if (pair := _pair(line)) is not None)


def _pair(line: bytes) -> tuple[Any, Any] | None:
    with suppress(ValueError):
        key, value = json.loads(line)
        return key, value
    return None
