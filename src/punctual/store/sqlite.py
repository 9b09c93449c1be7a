"""A journal in one SQLite file."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from punctual.core.errors import InvalidSpec
from punctual.core.protocols import Message
from punctual.store.codec import decode, encode, kind_of

#: Changes with every change of the table; kept in the file's `user_version`.
SCHEMA_VERSION = 1
#: Marks a file as ours in its `application_id`: "Pnct".
_APPLICATION_ID = 0x506E6374

_CREATE = (
    "CREATE TABLE message (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_APPEND = "INSERT INTO message (kind, body) VALUES (?, ?)"
_READ = "SELECT sequence, kind, body FROM message WHERE sequence >= ? ORDER BY sequence LIMIT ?"
_LAST = "SELECT coalesce(max(sequence), 0) FROM message"
#: Rows fetched at once, so that a slow reader holds no transaction open and the file can be tidied behind it.
_N_ROWS = 500
#: Pages of 4 KiB in the write-ahead file before it is folded into the database. That waits for the disk, so it is
#: made rare: runs of minutes come to it only when they close the journal.
_N_PAGES_AHEAD = 8000
#: How long a statement waits for another process's write, in seconds.
_BUSY_S = 10.0


class SqliteJournal:
    """A journal that survives its process, whenever that is killed, and can be read by others while it is written.

    A write is safe once `append` has returned, except that the last ones may be lost if the machine itself loses
    power: waiting for the disk at each message would cost more than it is worth to a training run.

    Parameters
    ----------
    path
        The file; made, with mode 0600, if it is missing.
    read_only
        Open what is there and never write; the file must exist.

    Raises
    ------
    InvalidSpec
        The file is missing, is no journal, or is one of another version.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._lock = Lock()
        self._connection = self._open(read_only)

    def append(self, messages: Iterable[Message]) -> int:
        rows = [(kind_of(message), encode(message)) for message in messages]
        with self._lock, self._connection:
            self._connection.executemany(_APPEND, rows)
            return self._last()

    def read_from(self, sequence: int) -> Iterator[tuple[int, Message]]:
        while rows := self._fetch(sequence):
            for number, kind, body in rows:
                yield number, decode(kind, body)
            sequence = rows[-1][0] + 1

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fetch(self, sequence: int) -> list[tuple[int, str, str]]:
        with self._lock:
            return self._connection.execute(_READ, (sequence, _N_ROWS)).fetchall()

    def _last(self) -> int:
        with closing(self._connection.execute(_LAST)) as cursor:
            return int(cursor.fetchone()[0])

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if read_only and not self._path.is_file():
            raise self._invalid("the journal must exist", "no such file", "Look at `punctual ps` for the known runs.")
        if not read_only:
            self._path.touch(mode=0o600)
        connection = self._connect(read_only)
        try:
            self._prepare(connection, read_only)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise self._invalid("the file must be a journal of Punctual", str(error), "Name another file.") from error
        except InvalidSpec:
            connection.close()
            raise
        return connection

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        mode = "ro" if read_only else "rw"
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False)

    def _prepare(self, connection: sqlite3.Connection, read_only: bool) -> None:
        if read_only:
            self._check(connection)
            return
        # The table and its marks appear together, also if two processes open a new file at once.
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in _CREATE:
                connection.execute(statement)
        connection.commit()
        self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_N_PAGES_AHEAD}")

    def _check(self, connection: sqlite3.Connection) -> None:
        if _pragma(connection, "application_id") != _APPLICATION_ID:
            raise self._invalid(
                "the file must be a journal of Punctual", "another SQLite database", "Name another file."
            )
        version = _pragma(connection, "user_version")
        if version != SCHEMA_VERSION:
            raise self._invalid(
                f"the journal must be of version {SCHEMA_VERSION}", f"version {version}",
                "Read it with the version of Punctual that wrote it.",
            )  # fmt: skip

    def _invalid(self, must: str, got: str, remedy: str) -> InvalidSpec:
        return InvalidSpec(must, got, f"file '{self._path}'", remedy)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
