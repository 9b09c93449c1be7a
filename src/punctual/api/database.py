"""Database of the service beside its runs: tokens as digests, and notices."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.journal.file import check_allowed

_CREATE = """
    CREATE TABLE IF NOT EXISTS token (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, digest BLOB NOT NULL, created_at REAL NOT NULL, expires_at REAL
    );
    CREATE TABLE IF NOT EXISTS notice (
        run TEXT NOT NULL, job TEXT NOT NULL, kind TEXT, at REAL NOT NULL, PRIMARY KEY (run, job)
    );
    CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value);
"""
_FILE = "service.db"
#: SQLite's codes for a damaged file; the lowest byte of a code is its kind.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB}
#: Seconds that a statement waits for another process's write.
_BUSY_S = 2.0


class ServiceDatabase:
    """One SQLite file that only its user can read; the service and the command line may have it open at once.

    May be used by any thread.

    `folder`: folder of the file, which is made if it is missing.

    Raises `InvalidSpec`: the file is damaged, or this user may not use it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / _FILE
        check_allowed(path, read_only=False, what="the database of the service")
        path.touch(mode=0o600)
        self._lock = RLock()
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
        try:
            with self._checked():
                self._connection.executescript(_CREATE)
            self._check_whole()
        except BaseException:
            self._connection.close()
            raise

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
            raise self._damage(str(error)) from error

    def _check_whole(self) -> None:
        ((outcome,),) = self.rows("PRAGMA quick_check(1)")
        if outcome != "ok":
            raise self._damage(outcome)

    def _damage(self, what: str) -> InvalidSpec:
        return InvalidSpec(
            "the database of the service must be whole",
            what,
            f"'{self.folder / _FILE}'",
            "Move it away, and start the service again: it makes another one. Then make new tokens (`punctual token create`).",
        )

    def close(self) -> None:
        with self._lock:
            self._connection.close()
