"""A journal in one SQLite file.

Four tables: the messages; the last two snapshots of the state that they lead to; one row of facts about the file
(who writes it, in which time, how far it has been thinned out).
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.store.boot import ClockRecord
from punctual.store.stored import (
    About,
    JournalBusy,
    JournalTaken,
    JournalUnusable,
    NewRow,
    StoredJournal,
    StoreUnreachable,
    rows_of_sql,
)
from punctual.store.thinning import Row

__all__ = ["JournalTaken", "SqliteJournal"]

#: Changes with every change of a table or of the messages; kept in the file's `user_version`.
SCHEMA_VERSION = 2
#: Marks a file as ours in its `application_id`: "Pnct".
_APPLICATION_ID = 0x506E6374

_CREATE = (
    "CREATE TABLE message (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, subject TEXT DEFAULT '')",
    (_INDEX := "CREATE INDEX message_subject ON message (subject) WHERE subject IS NOT NULL"),
    "CREATE TABLE snapshot (sequence INTEGER PRIMARY KEY, checksum BLOB NOT NULL, state BLOB NOT NULL)",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
#: Files that an earlier version made have no subjects. It can still read and write those that have them.
_HAS_SUBJECTS = "SELECT 1 FROM pragma_table_info('message') WHERE name = 'subject'"
_ADD_SUBJECTS = ("ALTER TABLE message ADD COLUMN subject TEXT DEFAULT ''", _INDEX)
_AS_IF_SUBJECTS = "CREATE TEMP VIEW message AS SELECT sequence, kind, body, '' AS subject FROM main.message"
_APPEND = "INSERT INTO message (sequence, kind, body, subject) VALUES (?, ?, ?, ?)"
_READ = "SELECT sequence, kind, body FROM message WHERE sequence >= ? ORDER BY sequence LIMIT ?"
#: Kinds and subjects come as lists, because a query may have only so many conditions, and a run any number of jobs.
_READ_WANTED = """
    SELECT sequence, kind, body FROM message WHERE sequence BETWEEN ? AND ?
        AND kind NOT IN (SELECT value FROM json_each(?)) AND (? OR kind IN (SELECT value FROM json_each(?)))
        ORDER BY sequence LIMIT ?
"""
_READ_OF = rows_of_sql("message", "TRUE", "subject IN (SELECT value FROM json_each(:subjects))")
_LAST = "SELECT coalesce(max(sequence), 0) FROM message"
_SAVE = "INSERT OR REPLACE INTO snapshot (sequence, checksum, state) VALUES (?, ?, ?)"
_KEEP_NEWEST = (
    "DELETE FROM snapshot WHERE sequence NOT IN (SELECT sequence FROM snapshot ORDER BY sequence DESC LIMIT ?)"
)
_SET_FACT = "INSERT OR REPLACE INTO fact (name, value) VALUES (?, ?)"
_FACT = "SELECT value FROM fact WHERE name = ?"

#: Pages of 4 KiB in the write-ahead file before the writer itself folds it into the database, for which it waits for the
#: disk. `punctual.store.upkeep` does it earlier, and from another thread.
_N_PAGES_AHEAD = 4000
#: What the write-ahead file is cut down to when it is begun anew.
WAL_BYTES_MAX = 1 << 20
#: Errors that say nothing about the file; the lowest byte of a code says what kind it is.
_FOR_NOW = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
}
#: How long a statement waits for another process's write, in seconds.
_BUSY_S = 10.0


class SqliteJournal(StoredJournal):
    """A journal in a file.

    What a user is told was accepted is on the disk once `append` has returned. Other messages are safe from the end of
    the process; the last of them may be lost if the machine loses power: waiting for the disk at each would cost more
    than it is worth to a training run.

    Parameters
    ----------
    path
        The file; made, with mode 0600, if it is missing.
    read_only
        Open what is there and never write; the file must exist.
    take
        Claim the journal also from a process that is still there: one that is stopped or hangs. It is killed if it was
        stopped within a write.
    now
        As for `StoredJournal`.

    Raises
    ------
    InvalidSpec
        The file is missing, is no journal, or is one of another version.
    JournalTaken
        Another process writes it, and `take` is not set.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, take: bool = False, now: ClockRecord | None = None
    ) -> None:
        super().__init__(read_only=read_only, now=now)
        self.file = self._path = path
        self._lock = RLock()
        self._copies = ExitStack()
        try:
            self._begin(read_only, take)
        except JournalBusy:
            if not take:
                raise
            self._end_writes()
            self._begin(read_only, take)
        self.last_written = self.last_sequence

    def _begin(self, read_only: bool, take: bool) -> None:
        self._connection = self._open(read_only)
        if read_only:
            return
        try:
            self._claim(take=take)
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise self._unwritable(error) from error
        except BaseException:
            self._connection.close()
            raise

    def _end_writes(self) -> None:
        """Kill the owner: it keeps the file's lock as long as it is stopped within a write."""
        with suppress(InvalidSpec), SqliteJournal(self._path, read_only=True) as reader:
            if reader.owner is not None:
                reader.owner.kill()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def place(self) -> str:
        return f"file '{self._path}'"

    def rows_from(self, sequence: int, n_rows: int, wanted: About | None = None) -> list[Row]:
        query, conditions = _READ, list[str | int]()
        if wanted is not None:
            kinds, but_kinds = json.dumps(wanted.kinds), json.dumps(wanted.but_kinds)
            query, conditions = _READ_WANTED, [wanted.until, but_kinds, not wanted.kinds, kinds]
        with self._reading() as connection:
            return connection.execute(query, (sequence, *conditions, n_rows)).fetchall()

    def _rows_of(self, subjects: Sequence[str], sequence: int, n_rows: int) -> list[Row]:
        asked = {"subjects": json.dumps(subjects), "first": sequence, "n": n_rows}
        with self._reading() as connection:
            return connection.execute(_READ_OF, asked).fetchall()

    @property
    def last_sequence(self) -> int:
        with self._reading() as connection, closing(connection.execute(_LAST)) as cursor:
            return int(cursor.fetchone()[0])

    def snapshot_sequences(self) -> list[int]:
        with self._reading() as connection:
            rows = connection.execute("SELECT sequence FROM snapshot ORDER BY sequence").fetchall()
        return [sequence for (sequence,) in rows]

    def _snapshot(self, sequence: int) -> tuple[object, object] | None:
        try:
            with self._lock:
                row: tuple[object, object] = self._connection.execute(
                    "SELECT checksum, state FROM snapshot WHERE sequence = ?", (sequence,)
                ).fetchone()
        except sqlite3.DatabaseError:
            return None
        return row

    def give_back(self, free_pages: int, n_pages: int) -> bool:
        """Give `n_pages` back to the file system if more than `free_pages`, and a quarter of all, hold nothing."""
        with self._lock:
            n_free, n_all = _pragma(self._connection, "freelist_count"), _pragma(self._connection, "page_count")
        if n_free <= max(free_pages, n_all // 4):
            return False
        with self.writing():
            for _ in range(n_pages):  # Python takes one step of this statement, and a step is a page
                self._connection.execute("PRAGMA incremental_vacuum(1)")
        return True

    def has_claim(self) -> bool:
        try:
            return super().has_claim()
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def _fact(self, name: str) -> Any:
        with self._reading() as connection, closing(connection.execute(_FACT, (name,))) as cursor:
            row = cursor.fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection; raises `JournalUnusable` if the file is damaged, and `StoreUnreachable` if it cannot be read now."""
        with self._lock:
            try:
                yield self._connection
            except sqlite3.ProgrammingError:  # it is closed
                raise
            except sqlite3.DatabaseError as error:
                # What Python itself finds wrong, a text that is none, has no code.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FOR_NOW:
                    remedy = "Try again; if it goes on, look at the disk."
                    raise StoreUnreachable("a journal must be readable", str(error), self.place, remedy) from error
                raise self._damaged(str(error)) from error

    def _insert(self, rows: Sequence[NewRow]) -> None:
        for row in rows:
            self._connection.execute(_APPEND, row)

    def _delete(self, sequences: Sequence[int]) -> None:
        self._connection.executemany("DELETE FROM message WHERE sequence = ?", [(number,) for number in sequences])

    def _keep_snapshot(self, sequence: int, checksum: bytes, state: bytes, n_kept: int) -> None:
        self._connection.execute(_SAVE, (sequence, checksum, state))
        self._connection.execute(_KEEP_NEWEST, (n_kept,))

    def _set_fact(self, name: str, value: str | int) -> None:
        self._connection.execute(_SET_FACT, (name, value))

    def _forget_fact(self, name: str) -> None:
        self._connection.execute("DELETE FROM fact WHERE name = ?", (name,))

    @contextmanager
    def _transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        with self._lock, self._through_to_disk() if is_durable else nullcontext():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _through_to_disk(self) -> Iterator[None]:
        self._connection.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous = NORMAL")

    def _give_up(self) -> None:
        with suppress(sqlite3.Error):  # the disk is full
            super()._give_up()

    def _disconnect(self) -> None:
        self._connection.close()
        self._copies.close()

    # The file.

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if read_only and not self._path.is_file():
            raise self._invalid("the journal must exist", "no such file", "Look at `punctual ps` for the known runs.")
        if not read_only:
            self._path.touch(mode=0o600)
        # A reader needs to make a file beside it, and cannot on a file system that is read only.
        path = self._copied() if read_only and not os.access(self._path.parent, os.W_OK) else self._path
        with ExitStack() as failing:
            failing.callback(self._copies.close)
            connection = failing.enter_context(closing(connect(path, "ro" if read_only else "rw")))
            try:
                self._prepare(connection, read_only)
            except sqlite3.OperationalError as error:
                raise self._unwritable(error) from error
            except sqlite3.DatabaseError as error:
                must = "the file must be a journal of Punctual"
                raise self._invalid(must, str(error), "Name another file.") from error
            failing.pop_all()
        return connection

    def _copied(self) -> Path:
        """A copy of the journal with what its write-ahead file adds; removed when this is closed."""
        folder = Path(self._copies.enter_context(TemporaryDirectory(prefix="punctual-")))
        for file in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            if file.exists():
                shutil.copyfile(file, folder / file.name)
        return folder / self._path.name

    def _prepare(self, connection: sqlite3.Connection, read_only: bool) -> None:
        if read_only:
            self._check(connection)
            if not connection.execute(_HAS_SUBJECTS).fetchall():
                connection.execute(_AS_IF_SUBJECTS)
            return
        if _is_empty(connection):
            # Before anything is in the file: what is deleted can be given back to the file system bit by bit.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The tables and the file's marks appear together, also if two processes open a new file at once.
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in _CREATE:
                connection.execute(statement)
        self._check(connection)
        if not connection.execute(_HAS_SUBJECTS).fetchall():
            for statement in _ADD_SUBJECTS:
                connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_N_PAGES_AHEAD}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")

    def _check(self, connection: sqlite3.Connection) -> None:
        if _pragma(connection, "application_id") != _APPLICATION_ID:
            raise self._invalid(
                "the file must be a journal of Punctual", "another SQLite database", "Name another file."
            )
        version = _pragma(connection, "user_version")
        if version != SCHEMA_VERSION:
            raise JournalUnusable(
                f"the journal must be of version {SCHEMA_VERSION}",
                f"version {version}, of {'an earlier' if version < SCHEMA_VERSION else 'a later'} Punctual",
                self.place,
                "Use the version that wrote it, also to end its jobs (`punctual stop JOB`): some may still run. Once they have "
                "ended, `punctual clean --all` removes it.",
            )

    def _unwritable(self, error: sqlite3.OperationalError) -> InvalidSpec:
        must = "the journal must be one that can be opened"
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:  # the lowest byte says what kind it is
            remedy = "Let the process go on that is just writing it, or end it: it may have been stopped then."
            return JournalBusy(must, str(error), self.place, remedy)
        return self._invalid(must, str(error), "Make room, or give the right to.")


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to an existing file, in mode `ro` or `rw`, without transactions of its own accord."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
