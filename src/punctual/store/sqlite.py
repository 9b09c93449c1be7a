"""A journal in one SQLite file.

Four tables: the messages; the last two snapshots of the state that they lead to; one row of facts about the file
(who writes it, in which time, how far it has been thinned out).
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

from punctual.core.errors import InvalidSpec
from punctual.core.protocols import Message
from punctual.store.boot import ClockRecord, clock_now, shift_between
from punctual.store.codec import decode, encode, kind_of
from punctual.store.owner import Owner, this_process

#: Changes with every change of a table or of the messages; kept in the file's `user_version`.
SCHEMA_VERSION = 2
#: Marks a file as ours in its `application_id`: "Pnct".
_APPLICATION_ID = 0x506E6374

_CREATE = (
    "CREATE TABLE message (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE snapshot (sequence INTEGER PRIMARY KEY, checksum BLOB NOT NULL, state BLOB NOT NULL)",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_APPEND = "INSERT INTO message (kind, body) VALUES (?, ?)"
_READ = "SELECT sequence, kind, body FROM message WHERE sequence >= ? ORDER BY sequence LIMIT ?"
_LAST = "SELECT coalesce(max(sequence), 0) FROM message"
_SAVE = "INSERT OR REPLACE INTO snapshot (sequence, checksum, state) VALUES (?, ?, ?)"
_KEEP_NEWEST = (
    "DELETE FROM snapshot WHERE sequence NOT IN (SELECT sequence FROM snapshot ORDER BY sequence DESC LIMIT ?)"
)
_SET_FACT = "INSERT OR REPLACE INTO fact (name, value) VALUES (?, ?)"
_FACT = "SELECT value FROM fact WHERE name = ?"

#: The one before stays, in case the newest is damaged.
_N_SNAPSHOTS = 2
#: Rows fetched at once, so that a slow reader holds no transaction open and the file can be tidied behind it.
_N_ROWS = 500
#: Pages of 4 KiB in the write-ahead file before the writer itself folds it into the database, for which it waits for the
#: disk. `punctual.store.upkeep` does it earlier, and from another thread.
_N_PAGES_AHEAD = 4000
#: What the write-ahead file is cut down to when it is begun anew.
WAL_BYTES_MAX = 1 << 20
#: How long a statement waits for another process's write, in seconds.
_BUSY_S = 10.0


class JournalTaken(InvalidSpec):
    """Another process writes the journal; what was to be written was not."""


class SqliteJournal:
    """A journal that survives its process, whenever that is killed, and can be read by others while it is written.

    A write is safe once `append` has returned, except that the last ones may be lost if the machine itself loses
    power: waiting for the disk at each message would cost more than it is worth to a training run.

    One process writes a journal at a time. Opening it for writing claims it until `close`; a claim whose process has
    ended is void. A process that has lost its claim cannot write any more.

    Parameters
    ----------
    path
        The file; made, with mode 0600, if it is missing.
    read_only
        Open what is there and never write; the file must exist.
    take
        Claim the journal also from a process that is still there: one that is stopped or hangs.
    now
        For tests: what relates instants to wall time; None: this machine's clocks.

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
        self._path = path
        self._lock = RLock()
        self._owner = json.dumps(asdict(this_process()))
        self._now = now
        self._read_only = read_only
        self._connection = self._open(read_only)
        if not read_only:
            try:
                self._claim(take)
            except sqlite3.OperationalError as error:
                self._connection.close()
                raise self._unwritable(error) from error
            except BaseException:
                self._connection.close()
                raise
        #: Number of the last message that was there when this was opened, or that `append` has written since.
        self.last_written = self.last_sequence

    @property
    def path(self) -> Path:
        return self._path

    # Messages.

    def append(self, messages: Iterable[Message]) -> int:
        """Write `messages`, all or none; the sequence number of the last one. Raises `JournalTaken`."""
        rows = [(kind_of(message), encode(message)) for message in messages]
        with self.writing() as connection:
            number = 0
            for row in rows:
                number = connection.execute(_APPEND, row).lastrowid or 0
        self.last_written = number or self.last_written
        return number or self.last_sequence

    def read_from(self, sequence: int) -> Iterator[tuple[int, Message]]:
        """Messages numbered `sequence` and above, in order; numbers are missing where the journal was thinned out."""
        while rows := self.rows_from(sequence, _N_ROWS):
            for number, kind, body in rows:
                yield number, decode(kind, body)
            sequence = rows[-1][0] + 1

    def rows_from(self, sequence: int, n_rows: int) -> list[tuple[int, str, str]]:
        """Up to `n_rows` messages from `sequence` on: number, kind and text."""
        with self._lock:
            return self._connection.execute(_READ, (sequence, n_rows)).fetchall()

    @property
    def last_sequence(self) -> int:
        """Number of the last message; 0: there is none."""
        with self._lock:
            return self._last()

    # Snapshots.

    def save_snapshot(self, sequence: int, state: bytes) -> None:
        """Keep `state`, to which the messages up to number `sequence` lead; the one before is kept as well.

        Raises
        ------
        JournalTaken
            Another process writes the journal.
        """
        with self.writing() as connection:
            connection.execute(_SAVE, (sequence, _checksum(sequence, state), state))
            connection.execute(_KEEP_NEWEST, (_N_SNAPSHOTS,))
            self._record_clock()

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot that is not damaged, and the number of its last message; None: begin with message 1.

        Raises
        ------
        InvalidSpec
            All snapshots are damaged, and the messages before them do not all exist any more.
        """
        for sequence in reversed(self.snapshot_sequences()):
            state = self._state(sequence)
            if state is not None:
                return sequence, state
        if self.thinned_until:
            raise self._invalid(
                "one of the last two snapshots must be whole", "none that is", "Restore the file from a backup."
            )
        return None

    def snapshot_sequences(self) -> list[int]:
        """Numbers of the last messages of the snapshots, damaged or not, the oldest first."""
        with self._lock:
            rows = self._connection.execute("SELECT sequence FROM snapshot ORDER BY sequence").fetchall()
        return [sequence for (sequence,) in rows]

    def _state(self, sequence: int) -> bytes | None:
        """The snapshot of that number; None: it is damaged."""
        try:
            with self._lock:
                checksum, state = self._connection.execute(
                    "SELECT checksum, state FROM snapshot WHERE sequence = ?", (sequence,)
                ).fetchone()
        except sqlite3.DatabaseError:
            return None
        return state if isinstance(state, bytes) and _checksum(sequence, state) == checksum else None

    # Facts.

    @property
    def clock(self) -> ClockRecord | None:
        """The clock of whoever wrote last; None: nobody has written."""
        text = self._fact("clock")
        return None if text is None else ClockRecord(**json.loads(text))

    @property
    def owner(self) -> Owner | None:
        """Who writes the journal; None: whoever wrote it last has closed it."""
        text = self._fact("owner")
        return None if text is None else Owner(**json.loads(text))

    @property
    def thinned_until(self) -> int:
        """Up to this number, messages may be missing; 0: all are there."""
        return int(self._fact("thinned_until") or 0)

    def thin(self, sequences: Sequence[int], until: int) -> None:
        """Remove the messages of those numbers; `until` is what `thinned_until` says from now on.

        The last message stays, whose number would be given again.
        """
        with self.writing() as connection:
            last = self._last()
            rows = [(sequence,) for sequence in sequences if sequence < last]
            connection.executemany("DELETE FROM message WHERE sequence = ?", rows)
            connection.execute(_SET_FACT, ("thinned_until", until))

    def give_back(self, free_pages: int, n_pages: int) -> bool:
        """Give `n_pages` back to the file system if more than `free_pages`, and a quarter of all, hold nothing.

        Whether it did, and may have to do it again.
        """
        with self._lock:
            n_free, n_all = _pragma(self._connection, "freelist_count"), _pragma(self._connection, "page_count")
        if n_free <= max(free_pages, n_all // 4):
            return False
        with self.writing() as connection:
            for _ in range(n_pages):  # Python takes one step of this statement, and a step is a page
                connection.execute("PRAGMA incremental_vacuum(1)")
        return True

    def _fact(self, name: str) -> Any:
        with self._lock, closing(self._connection.execute(_FACT, (name,))) as cursor:
            row = cursor.fetchone()
        return None if row is None else row[0]

    def _record_clock(self) -> None:
        now = self._now or clock_now()
        shift_s = shift_between(self.clock, now)
        self._connection.execute(_SET_FACT, ("clock", json.dumps(asdict(replace(now, shift_s=shift_s)))))

    # Writing.

    def has_claim(self) -> bool:
        """Whether this process may still write: no other has claimed the journal meanwhile."""
        try:
            return bool(self._fact("owner") == self._owner)
        except sqlite3.ProgrammingError:  # it is closed
            return False

    def check_claim(self) -> None:
        """Raise `JournalTaken` unless this process may still write."""
        if not self.has_claim():
            raise self._taken(self.owner)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction of the process that has claimed the journal; raises `JournalTaken` for any other."""
        with self._lock, self._transaction():
            self.check_claim()
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _claim(self, take: bool) -> None:
        with self._lock, self._transaction():
            owner = self.owner
            if owner is not None and owner.may_live() and not take:
                raise self._taken(owner)
            self._connection.execute(_SET_FACT, ("owner", self._owner))
            self._record_clock()

    def _taken(self, owner: Owner | None) -> JournalTaken:
        got = "one that was closed" if owner is None else f"one of process {owner.pid} on '{owner.machine}'"
        return JournalTaken(
            "a journal must be written by the process that claimed it last", got, f"file '{self._path}'",
            "Let that process steer the jobs, or end it first.",
        )  # fmt: skip

    def close(self) -> None:
        """Give the journal up; nobody has it until it is opened again."""
        if not self._read_only:
            try:
                with self.writing() as connection:
                    connection.execute("DELETE FROM fact WHERE name = 'owner'")
            except (JournalTaken, sqlite3.Error):  # another has it, or the disk is full: its owner ends with us anyway
                pass
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The file.

    def _last(self) -> int:
        with closing(self._connection.execute(_LAST)) as cursor:
            return int(cursor.fetchone()[0])

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if read_only and not self._path.is_file():
            raise self._invalid("the journal must exist", "no such file", "Look at `punctual ps` for the known runs.")
        if not read_only:
            self._path.touch(mode=0o600)
        connection = connect(self._path, "ro" if read_only else "rw")
        try:
            self._prepare(connection, read_only)
        except sqlite3.OperationalError as error:
            connection.close()
            raise self._unwritable(error) from error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise self._invalid("the file must be a journal of Punctual", str(error), "Name another file.") from error
        except InvalidSpec:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, read_only: bool) -> None:
        if read_only:
            self._check(connection)
            return
        if _is_empty(connection):
            # Before anything is in the file: what is deleted can be given back to the file system bit by bit.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The tables and the file's marks appear together, also if two processes open a new file at once.
        connection.execute("BEGIN IMMEDIATE")
        if _is_empty(connection):
            for statement in _CREATE:
                connection.execute(statement)
        connection.execute("COMMIT")
        self._check(connection)
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
        if version < SCHEMA_VERSION:
            raise self._invalid(
                f"the journal must be of version {SCHEMA_VERSION}", f"version {version}, of an earlier Punctual",
                "Read it with the version of Punctual that wrote it, or remove the run (`punctual clean`).",
            )  # fmt: skip
        if version != SCHEMA_VERSION:
            raise self._invalid(
                f"the journal must be of version {SCHEMA_VERSION}", f"version {version}",
                "Read it with the version of Punctual that wrote it.",
            )  # fmt: skip

    def _unwritable(self, error: sqlite3.OperationalError) -> InvalidSpec:
        return self._invalid(
            "the journal must be one that can be opened", str(error), "Make room, or give the right to."
        )

    def _invalid(self, must: str, got: str, remedy: str) -> InvalidSpec:
        return InvalidSpec(must, got, f"file '{self._path}'", remedy)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to an existing file, in mode `ro` or `rw`, without transactions of its own accord."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)


def _checksum(sequence: int, state: bytes) -> bytes:
    return blake2b(state, digest_size=16, key=str(sequence).encode()).digest()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
