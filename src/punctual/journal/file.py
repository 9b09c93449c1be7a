"""The SQLite file of a journal: its tables, how it is opened, and what is said where it cannot be."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from punctual.core.errors import InvalidSpec
from punctual.journal.errors import JournalBusy, JournalUnusable, StoreUnreachable

#: Changes with every change of a table or of the messages; kept in the file's `user_version`.
SCHEMA_VERSION = 6
#: Marks a file as ours in its `application_id`: "Pnct".
_APPLICATION_ID = 0x506E6374

_CREATE = (
    "CREATE TABLE message (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, subject TEXT)",
    "CREATE INDEX message_subject ON message (subject) WHERE subject IS NOT NULL",
    "CREATE TABLE snapshot (sequence INTEGER PRIMARY KEY, checksum BLOB NOT NULL, state BLOB NOT NULL)",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    """CREATE TABLE job (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, ended_at REAL, start TEXT, pause TEXT, facts TEXT,
        request_key TEXT UNIQUE, request_digest TEXT, is_removed INTEGER NOT NULL DEFAULT 0
    )""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
SET_FACT = "INSERT OR REPLACE INTO fact (name, value) VALUES (?, ?)"
#: All but the last message, whose number would be given again.
DELETE_MESSAGES = "DELETE FROM message WHERE sequence < (SELECT max(sequence) FROM message)"
FACT = "SELECT value FROM fact WHERE name = ?"

#: Size to which the write-ahead file is cut when it restarts.
WAL_BYTES_MAX = 1 << 20
#: Errors that say nothing about the file; the lowest byte of a code says what kind it is.
_FOR_NOW = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
#: Remedy for a journal that cannot be read.
_LOST = (
    "restore it from a backup; or give up the jobs that are open (`punctual stop JOB`), and remove it with all else that has "
    "ended (`punctual clean --all`)."
)
#: Longest wait of a statement for another process's write, in seconds.
_BUSY_S = 10.0


#: Things that may be in the place of a file.
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link to no file",
}


def no_file_at(path: Path) -> str:
    """Describe what is at `path` if that is no file; empty: a file, or nothing."""
    try:
        there = path.stat() if path.exists() else path.lstat()
    except OSError:
        return ""
    return "" if stat.S_ISREG(there.st_mode) else _KINDS.get(stat.S_IFMT(there.st_mode), "a device")


def _is_there(path: Path) -> bool:
    """Whether the file exists; raises `JournalUnusable` if something else is in its place.

    Raises `StoreUnreachable` if this user may not read it.
    """
    check_allowed(path, read_only=True)
    if kind := no_file_at(path):
        remedy = f"Move it away. If there was a journal of jobs: {_LOST}"
        raise JournalUnusable("the journal must be a file", kind, place_of(path), remedy)
    return path.is_file()


def open_to_read(path: Path, ending: ExitStack) -> sqlite3.Connection | None:
    """Open the file until `ending` closes; None: there is none. Raises as `open_to_write` does."""
    if not _is_there(path):
        return None
    # A reader makes a file beside it, which it cannot on a file system that is read only, and which has the mode of the journal:
    # one that nobody may write would stay in the way of writers.
    has_place = all(os.access(place, os.W_OK) for place in (path.parent, path))
    connection = ending.enter_context(closing(connect(path if has_place else _copied(path, ending), "ro")))
    with _refused(path):
        _check(connection, path)
    return connection


def open_to_write(path: Path, begin: Callable[[sqlite3.Connection], object] = lambda _: None) -> sqlite3.Connection:
    """Open the file; make it, with mode 0600, if it is missing. `begin`: called with the connection, which it may refuse.

    * Raises `InvalidSpec`: the file cannot be opened.
    * Raises `StoreUnreachable`: this user may not use it.
    * Raises `JournalUnusable`: it is no journal, one of another version, or no file.
    """
    check_allowed(path, read_only=False)
    _is_there(path)  # raises if something else is
    path.touch(mode=0o600)
    with ExitStack() as failing:
        connection = failing.enter_context(closing(connect(path, "rw")))
        with _refused(path):
            _prepare(connection, path)
            begin(connection)
        failing.pop_all()
    return connection


def check_allowed(path: Path, *, read_only: bool, what: str = "a journal") -> None:
    """Raise `StoreUnreachable` if this user may not read the file or, unless `read_only`, write it and files beside it.

    `what`: the file, in words.
    """
    rights, verb = (os.R_OK, "read") if read_only else (os.R_OK | os.W_OK, "write")
    # A file that is missing is none that may not be used; it cannot be looked for in a folder that may not be.
    folder_rights = os.X_OK if read_only else os.X_OK | os.W_OK
    for place, needed, bits in ((path.parent, folder_rights, "rwx"), (path, rights, "rw")):
        if not os.access(place, os.F_OK) or os.access(place, needed):
            continue
        there, is_read_only = place.stat(), bool(os.statvfs(place).f_flag & os.ST_RDONLY)
        got = f"one of user {there.st_uid}, mode {stat.S_IMODE(there.st_mode):o}"
        remedy = f"Take the right to (`chmod u+{bits} {place}`), or set PUNCTUAL_HOME to another folder."
        if is_read_only:
            got, remedy = "one on a read-only file system", "Make it writable, or set PUNCTUAL_HOME to another folder."
        elif there.st_uid != os.geteuid():
            remedy = f"Have it given back to user {os.geteuid()} (`chown`), or set PUNCTUAL_HOME to another folder."
        where = f"folder '{place}'" if place == path.parent else place_of(place)
        raise StoreUnreachable(f"{what}, with its folder, must be one that this user may {verb}", got, where, remedy)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to an existing file, in mode `ro` or `rw`, without transactions of its own accord."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return a number that the database has about itself."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _unwritable(path: Path, error: sqlite3.OperationalError) -> InvalidSpec:
    """Return the error to raise where SQLite could not open or write the file."""
    must = "the journal must be one that can be opened"
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:  # the lowest byte says what kind it is
        remedy = "Let the process go on that is just writing it, or end it: it may have been stopped then."
        return JournalBusy(must, str(error), place_of(path), remedy)
    return InvalidSpec(must, str(error), place_of(path), "Make room, or give the right to.")


@contextmanager
def readable(path: Path, what: str = "a journal", lost: str = _LOST) -> Iterator[None]:
    """Raise `JournalUnusable` if the file is found to be damaged inside, and `StoreUnreachable` if it cannot be used now.

    * `what`: the file, in words.
    * `lost`: remedy where it is damaged.
    """
    try:
        yield
    except (InvalidSpec, sqlite3.ProgrammingError, sqlite3.IntegrityError):  # it is said already, or it is closed
        raise
    except sqlite3.DatabaseError as error:
        # Errors that Python itself raises, for invalid text say, have no code.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FOR_NOW:
            remedy = "Try again; if it goes on, make room on its disk, and see what keeps the file locked."
            raise StoreUnreachable(
                f"{what} must be one that can be read and written", str(error), place_of(path), remedy
            ) from error
        raise damaged(path, str(error), what, lost) from error
    except (ValueError, RecursionError) as error:  # no JSON
        raise damaged(path, str(error), what, lost) from error


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Raise `InvalidSpec` if the file cannot be opened, or is found to be no journal."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _unwritable(path, error) from error
    except sqlite3.DatabaseError as error:
        raise _no_journal(path, str(error)) from error


def damaged(path: Path, got: str, what: str = "a journal", lost: str = _LOST) -> JournalUnusable:
    """Return the error to raise where a part of the file is not what Punctual has written."""
    return JournalUnusable(f"{what} must be whole", got, place_of(path), f"{lost[0].upper()}{lost[1:]}")


def place_of(path: Path) -> str:
    """Return the file's location as text for people."""
    return f"file '{path}'"


def _copied(path: Path, ending: ExitStack) -> Path:
    """A copy of the journal with what its write-ahead file adds; removed when `ending` closes."""
    folder = Path(ending.enter_context(TemporaryDirectory(prefix="punctual-")))
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            shutil.copyfile(file, folder / file.name)
    return folder / path.name


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if _is_empty(connection):
        # Before anything is in the file: what is deleted can be given back to the file system bit by bit.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The tables and the file's marks appear together, also if two processes open a new file at once.
        connection.execute("BEGIN IMMEDIATE")
        for statement in _CREATE if _is_empty(connection) else ():
            connection.execute(statement)
        connection.execute("COMMIT")
    _check(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    # Pages of 4 KiB in the write-ahead file before the writer itself folds it into the database, for which it waits for the
    # disk. `punctual.journal.maintenance` does it earlier, and from another thread.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if pragma(connection, "application_id") != _APPLICATION_ID:
        raise _no_journal(path, "another SQLite database" if path.stat().st_size else "an empty file")
    version = pragma(connection, "user_version")
    if version != SCHEMA_VERSION:
        raise JournalUnusable(
            f"the journal must be of version {SCHEMA_VERSION}",
            f"version {version}, of {'an earlier' if version < SCHEMA_VERSION else 'a later'} Punctual",
            place_of(path),
            "Use the version that wrote it, also to end its jobs (`punctual stop JOB`): some may still run. Once they have "
            "ended, `punctual clean --all` removes it.",
        )


def _no_journal(path: Path, got: str) -> JournalUnusable:
    remedy = f"Name another file. If it was a journal of jobs: {_LOST}"
    return JournalUnusable("the file must be a journal of Punctual", got, place_of(path), remedy)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
