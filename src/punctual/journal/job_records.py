"""Records in the journal's database: the run, its jobs' states, and what each job needs to start."""

import errno
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobState
from punctual.journal.file import DELETE_MESSAGES, FACT, SET_FACT, open_to_read, open_to_write, readable
from punctual.journal.owner import Owner
from punctual.journal.sqlite import open_ending_writer

#: Name of the fact that holds the facts about a run.
_RUN = "run"
_ADD = """
    INSERT INTO job (id, name, state, start, request_key, request_digest) VALUES (?, ?, 'queued', ?, ?, ?) ON CONFLICT (id)
        DO UPDATE SET state = 'queued', start = excluded.start, request_key = excluded.request_key,
            request_digest = excluded.request_digest
"""
_SET_STATE = (
    "INSERT INTO job (id, name, state) VALUES (:job, :job, :state) ON CONFLICT (id) DO UPDATE SET state = :state"
)
#: Number of the last message that may be missing: it lies before the last beginning, or the journal was thinned out there.
_UNUSED = "(SELECT max(CAST(value AS INTEGER)) FROM fact WHERE name IN ('begun_after', 'compacted_until'))"
_END = """
    INSERT INTO job (id, name, state, facts, ended_at) VALUES (:job, :job, :state, :facts, :at) ON CONFLICT (id)
        DO UPDATE SET state = :state, facts = coalesce(:facts, facts), ended_at = :at, start = NULL, pause = NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job that is submitted.

    * `name`: name that it was given; a later job of the same name has another id.
    * `start`: all that is needed to start it (JSON values), secrets too; it goes with the job's end.
    * `request_key`, `request_digest`: key that its caller chose for the request, and digest of the request; None: the
      caller chose none.
    """

    id: JobId
    name: str
    start: Mapping[str, Any]
    request_key: str | None = None
    request_digest: str | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, the name that it was given, and its last recorded state.

    * `ended_at`: wall time of its end, in seconds since 1970; None: it has not ended.
    * `pause`: by whom it was paused and why, in words; None: by no user.
    """

    id: JobId
    name: str
    state: JobState
    ended_at: float | None = None
    pause: str | None = None


class JobRecords:
    """Records of a run's jobs; for any thread, and any process of this user. Each call opens and closes the file.

    What is read of a missing file is empty.

    * Raises `JournalUnusable`, `StoreUnreachable`: in a method that reads: the file is damaged or no file, or cannot be
      read now.
    * Raises `OSError`: in a method that writes: the file is missing, cannot be written, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, facts: Mapping[str, Any]) -> None:
        """Make the file if it is missing, and replace all recorded facts about the run.

        Raises `JournalUnusable` if there is one that is damaged, or of another version.
        """
        with readable(self.path):
            open_to_write(self.path).close()
        with self._writing(is_durable=True) as connection:
            connection.execute(SET_FACT, (_RUN, json.dumps(facts)))

    # The jobs.

    def rows(self) -> list[JobRow]:
        """Return the jobs with their last recorded states, in order of submission."""
        return [
            JobRow(*row)
            for row in self._rows(
                "SELECT id, name, state, ended_at, pause FROM job WHERE NOT is_removed ORDER BY rowid"
            )
        ]

    def removed(self) -> set[JobId]:
        """Return the removed jobs whose ids are not free yet: the present state may have known them."""
        return {JobId(job) for (job,) in self._rows("SELECT id FROM job WHERE is_removed")}

    def add(self, jobs: Iterable[NewJob]) -> None:
        """Add submitted jobs, all or, if it raises, none; returns once the disk has them."""
        with self._writing(is_durable=True) as connection:
            rows = [(job.id, job.name, json.dumps(job.start), job.request_key, job.request_digest) for job in jobs]
            connection.executemany(_ADD, rows)

    def requested_by(self, key: str) -> tuple[JobId, str] | None:
        """Return the job that a request with this key led to, and the digest of that request; None: the key is new."""
        rows = self._rows("SELECT id, request_digest FROM job WHERE request_key = ?", key)
        return rows[0] if rows else None

    def set_state(self, job: JobId, state: JobState) -> None:
        """Record a job's state."""
        with self._writing() as connection:
            connection.execute(_SET_STATE, {"job": job, "state": state})

    def start_of(self, job: JobId) -> dict[str, Any] | None:
        """Return what the job needs to start; None: it has ended."""
        return self._json("SELECT start FROM job WHERE id = ?", job)

    def set_pause(self, job: JobId, told: str | None) -> None:
        """Record in words by whom the job was paused and why; None: it was resumed."""
        with self._writing() as connection:
            connection.execute("UPDATE job SET pause = ? WHERE id = ?", (told, job))

    def end(self, job: JobId, state: JobState, facts: Mapping[str, Any] | None) -> None:
        """Record that the job has ended, with `facts` about it, and forget what only an open job needs."""
        told = json.dumps(facts) if facts else None
        with self._writing() as connection:
            connection.execute(_END, {"job": job, "state": state, "facts": told, "at": time.time()})

    def facts_of(self, job: JobId) -> dict[str, Any]:
        """Return the facts about an ended job; empty: there are none."""
        return self._json("SELECT facts FROM job WHERE id = ?", job) or {}

    def facts(self) -> dict[JobId, dict[str, Any]]:
        """Return the facts about ended jobs, without those that have none."""
        rows = self._rows("SELECT id, facts FROM job WHERE facts IS NOT NULL")
        with readable(self.path):
            return {job: json.loads(facts) for job, facts in rows}

    def forget(self, jobs: Sequence[JobId]) -> None:
        """Remove ended jobs, with their messages as far as no state is made of these any more.

        Their ids, and all other messages, go when the next state begins. The jobs go a hundred at a time, so
        that others can write between: what is deleted is overwritten, which takes seconds for thousands of jobs.
        """
        ended = f"SELECT id FROM job WHERE state IN {tuple(ENDED)} AND id IN (SELECT value FROM json_each(?))"  # noqa: S608
        emptied = "is_removed = 1, facts = NULL, request_key = NULL, request_digest = NULL"
        for begin in range(0, len(jobs), 100):
            if begin:
                time.sleep(0.02)
            wanted = json.dumps(jobs[begin : begin + 100])
            with self._writing() as connection:
                connection.execute(f"{DELETE_MESSAGES} AND subject IN ({ended}) AND sequence <= {_UNUSED}", (wanted,))
                connection.execute(f"UPDATE job SET {emptied} WHERE id IN ({ended})", (wanted,))  # noqa: S608

    # The run.

    def run_facts(self) -> dict[str, Any]:
        """Return the facts about the run."""
        return self._json(FACT, _RUN) or {}

    def record_run_facts(self, facts: Mapping[str, Any]) -> None:
        """Record facts about the run beside those that there are; returns once the disk has them."""
        with self._writing(is_durable=True) as connection:
            row = connection.execute(FACT, (_RUN,)).fetchone()
            known = json.loads(row[0]) if row else {}
            connection.execute(SET_FACT, (_RUN, json.dumps({**known, **facts})))

    # The file.

    def _json(self, query: str, value: str) -> dict[str, Any] | None:
        rows = self._rows(query, value)
        with readable(self.path):
            told: dict[str, Any] | None = json.loads(rows[0][0]) if rows and rows[0][0] is not None else None
        return told

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with readable(self.path), ExitStack() as ending:
            connection = open_to_read(self.path, ending)
            return [] if connection is None else connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self, *, is_durable: bool = False) -> Iterator[sqlite3.Connection]:
        def begin(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            connection.execute("PRAGMA secure_delete = ON")  # a job's secrets go with its end
            connection.execute("BEGIN IMMEDIATE")

        if not self.path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self.path))
        try:
            with closing(open_ending_writer(self.path, begin, Owner.is_stopped)) as connection:
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, InvalidSpec) as error:
            is_full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
            raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error), str(self.path)) from error
