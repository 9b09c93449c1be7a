"""Database of the service beside its runs: tokens as digests, and notices."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

from punctual.journal.file import check_allowed, damaged, readable

_CREATE = """
    CREATE TABLE IF NOT EXISTS token (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, digest BLOB NOT NULL, created_at REAL NOT NULL, expires_at REAL
    );
    CREATE TABLE IF NOT EXISTS notice (
        run TEXT NOT NULL, job TEXT NOT NULL, kind TEXT, at REAL NOT NULL, PRIMARY KEY (run, job)
    );
    CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value);
"""
_WHAT = "the database of the service"
_LOST = (
    "Move it away, and start the service again: it makes another one. Then make new tokens (`punctual token create`)."
)
#: Seconds that a statement waits for another process's write.
_BUSY_S = 2.0


class ServiceDatabase:
    """One SQLite file that only its user can read; the service and the command line may have it open at once.

    May be used by any thread.

    `folder`: folder of the file, which is made if it is missing.

    Raises `InvalidSpec`, here and in all that is read or written: the file is damaged, or cannot be used now.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "service.db"
        check_allowed(path, read_only=False, what=_WHAT)
        path.touch(mode=0o600)
        self._lock = RLock()
        self._checked = partial(readable, path, _WHAT, _LOST)
        with self._checked():
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
        try:
            with self._checked():
                self._connection.executescript(_CREATE)
            self._check_whole(path)
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

    def _check_whole(self, path: Path) -> None:
        ((outcome,),) = self.rows("PRAGMA quick_check(1)")
        if outcome != "ok":
            raise damaged(path, outcome, _WHAT, _LOST)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
