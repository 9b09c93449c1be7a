"""Database of the service beside its runs: tokens as digests, the job of each idempotency key, and notices."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from punctual.core.errors import InvalidSpec

#: Changes with every change of a table; kept in the file's `user_version`.
SCHEMA_VERSION = 3

_CREATE = """
    CREATE TABLE IF NOT EXISTS token (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, digest BLOB NOT NULL, created_at REAL NOT NULL, expires_at REAL
    );
    CREATE TABLE IF NOT EXISTS submission_key (
        caller TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, job TEXT NOT NULL, at REAL NOT NULL,
        is_accepted INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (caller, key)
    );
    CREATE TABLE IF NOT EXISTS notice (
        run TEXT NOT NULL, job TEXT NOT NULL, kind TEXT, at REAL NOT NULL, PRIMARY KEY (run, job)
    );
    CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value);
"""
#: Test for a column that version 1 lacks. Its keys count as accepted: no job is run a second time.
_HAS_ACCEPTED = "SELECT 1 FROM pragma_table_info('submission_key') WHERE name = 'is_accepted'"
_ADD_ACCEPTED = "ALTER TABLE submission_key ADD COLUMN is_accepted INTEGER NOT NULL DEFAULT 1"
_FILE = "service.db"
#: SQLite's codes for a damaged file; the lowest byte of a code is its kind.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB}
#: Seconds that a statement waits for another process's write.
_BUSY_S = 10.0


class ServiceDatabase:
    """One SQLite file that only its user can read; the service and the command line may have it open at once.

    May be used by any thread.

    Parameters
    ----------
    folder
        Folder of the file, which is made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / _FILE
        path.touch(mode=0o600)
        self._lock = RLock()
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        with self._checked():
            self._connection.executescript(_CREATE)
        with self.writing() as connection:
            if not connection.execute(_HAS_ACCEPTED).fetchall():
                connection.execute(_ADD_ACCEPTED)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of `query`."""
        with self._lock, self._checked():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction."""
        with self._lock, self._checked():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Raise `InvalidSpec` if the file is found to be damaged."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                raise
            raise InvalidSpec(
                "the database of the service must be whole",
                str(error),
                f"'{self.folder / _FILE}'",
                "Move it away, and start the service again: it makes another one. Then make new tokens (`punctual token create`).",
            ) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()
