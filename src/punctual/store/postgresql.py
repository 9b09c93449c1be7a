"""A journal in a PostgreSQL database.

Each write is a transaction that first looks whether this process still has the claim, and keeps others from taking it
until the write is done. Beside the fact that names the owner stands a lock of the owner's connection: from another
machine it is the only sign that the owner lives. Whoever takes the journal has the server end that connection if it is
within a write, wherever its process is stopped.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from threading import RLock
from typing import Any, NoReturn

import psycopg
from alembic.util import CommandError
from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    NullPool,
    Select,
    create_engine,
    delete,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from punctual.core.errors import InvalidSpec
from punctual.store.boot import ClockRecord, boot_id
from punctual.store.owner import Owner
from punctual.store.place import StorePlace, passwords_of, shown_url
from punctual.store.stored import About, JournalUnusable, NewRow, StoredJournal, StoreUnreachable, rows_of_sql
from punctual.store.tables import FACT, MESSAGE, SNAPSHOT, VERSION, VERSION_TABLE
from punctual.store.thinning import Row

#: How long a connection may take, and an answer, before the store counts as unreachable.
_CONNECT_S, _ANSWER_S = 5, 10
#: How long a process that is stopped within a transaction may keep others from taking its place.
_IDLE_S = 4
#: Those of TCP make a connection fail, too, whose other end has gone without a word; here on the server's side.
_OPTIONS = (
    f"-c statement_timeout={_ANSWER_S}s -c lock_timeout={_ANSWER_S}s -c idle_in_transaction_session_timeout={_IDLE_S}s "
    f"-c tcp_keepalives_idle={_ANSWER_S} -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
#: And on this side.
_CONNECTING: dict[str, Any] = {
    "connect_timeout": _CONNECT_S,
    "keepalives_idle": _ANSWER_S,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": _ANSWER_S * 1000,
    "application_name": "punctual",
}
#: Errors as PostgreSQL numbers them.
_NO_RIGHT, _NO_DATABASE = "42501", "3D000"
_BAD_LOGIN = ("28000", "28P01")
#: Ends the connections that have one of the locks and are within a transaction. A server waits without any limit for the rest
#: of a message, and its locks stay, if the process was stopped while it sent it.
_END_WRITES = text("""
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datid = database AND datname = current_database()
        AND (classid::bigint << 32 | objid::bigint) = ANY(:numbers) AND state <> 'idle' AND pid <> pg_backend_pid()
""")
_READ_OF = text(rows_of_sql(MESSAGE.name, "journal = :journal", "subject = ANY(:subjects)"))
#: So that two processes do not make the tables at once.
_TABLES_LOCK = 0x506E6374


class PostgresJournal(StoredJournal):
    """A journal of a database of PostgreSQL, which may hold many.

    Once `append` has returned, what it was given is on the server's disk.

    Parameters
    ----------
    read_only
        Never write; the tables must be there.
    take
        Claim the journal also from a process that is still there: one that is stopped or hangs. The server ends its
        connection if it was stopped within a write.
    now
        As for `StoredJournal`.

    Raises
    ------
    StoreUnreachable
        The database cannot be connected to.
    InvalidSpec
        The URL is wrong, the tables cannot be made or are of another version, or rights are missing.
    JournalTaken
        Another process writes it, and `take` is not set.
    """

    #: Whether a write may be on the server's disk later, unless it must be at once.
    _may_be_late = False

    def __init__(
        self, place: StorePlace, *, read_only: bool = False, take: bool = False, now: ClockRecord | None = None
    ) -> None:
        super().__init__(read_only=read_only, now=now)
        self._place, self._key = place, place.journal
        self._engine = self._made_engine()
        self._lock = RLock()
        self._connection: Connection | None = None
        try:
            self._prepare()
            if take:
                self._end_writes()
            if not read_only:
                self._claim(take=take)
            self.last_written = self.last_sequence
        except BaseException:
            self._disconnect()
            raise

    @property
    def place(self) -> str:
        return self._place.shown

    def rows_from(self, sequence: int, n_rows: int, wanted: About | None = None) -> list[Row]:
        query = (
            select(MESSAGE.c.sequence, MESSAGE.c.kind, MESSAGE.c.body)
            .where(MESSAGE.c.journal == self._key, MESSAGE.c.sequence >= sequence)
            .order_by(MESSAGE.c.sequence)
            .limit(n_rows)
        )
        if wanted is not None:
            query = query.where(MESSAGE.c.sequence <= wanted.until, MESSAGE.c.kind.not_in(wanted.but_kinds))
            if wanted.kinds:
                query = query.where(MESSAGE.c.kind.in_(wanted.kinds))
        return self._rows(query)

    def _rows_of(self, subjects: Sequence[str], sequence: int, n_rows: int) -> list[Row]:
        asked = {"journal": self._key, "subjects": list(subjects), "first": sequence, "n": n_rows}
        return self._rows(_READ_OF.bindparams(**asked))

    def _rows(self, query: Executable) -> list[Row]:
        with self._connected() as connection:
            return [(number, kind, body) for number, kind, body in connection.execute(query)]

    @property
    def last_sequence(self) -> int:
        query = select(func.coalesce(func.max(MESSAGE.c.sequence), 0)).where(MESSAGE.c.journal == self._key)
        with self._connected() as connection:
            return int(connection.execute(query).scalar_one())

    def snapshot_sequences(self) -> list[int]:
        query = select(SNAPSHOT.c.sequence).where(SNAPSHOT.c.journal == self._key).order_by(SNAPSHOT.c.sequence)
        with self._connected() as connection:
            return list(connection.execute(query).scalars())

    def _snapshot(self, sequence: int) -> tuple[bytes, bytes] | None:
        query = select(SNAPSHOT.c.checksum, SNAPSHOT.c.state).where(
            SNAPSHOT.c.journal == self._key, SNAPSHOT.c.sequence == sequence
        )
        with self._connected() as connection:
            row = connection.execute(query).first()
        return None if row is None else (bytes(row[0]), bytes(row[1]))

    def remove(self) -> None:
        """Remove all that the database has of this journal; raises as `append` does."""
        with self.writing():
            for table in (MESSAGE, SNAPSHOT, FACT):
                self._execute(delete(table).where(table.c.journal == self._key))

    def _fact(self, name: str) -> str | None:
        query = self._fact_of(name)
        with self._connected() as connection:
            if name == "owner" and not self._read_only:
                query = query.with_for_update()
            value: str | None = connection.execute(query).scalar()
        return value

    def _fact_of(self, name: str) -> Select[Any]:
        return select(FACT.c.value).where(FACT.c.journal == self._key, FACT.c.name == name)

    def _insert(self, rows: Sequence[NewRow]) -> None:
        names = ("sequence", "kind", "body", "subject")
        values = [{"journal": self._key, **dict(zip(names, row, strict=True))} for row in rows]
        if values:  # some may be there: whether they were written was not heard when the connection broke
            self._execute(insert(MESSAGE).on_conflict_do_nothing(), values)

    def _delete(self, sequences: Sequence[int]) -> None:
        self._execute(delete(MESSAGE).where(MESSAGE.c.journal == self._key, MESSAGE.c.sequence.in_(sequences)))

    def _keep_snapshot(self, sequence: int, checksum: bytes, state: bytes, n_kept: int) -> None:
        saved = {"checksum": checksum, "state": state}
        of_journal = SNAPSHOT.c.journal == self._key
        self._execute(
            insert(SNAPSHOT)
            .values(journal=self._key, sequence=sequence, **saved)
            .on_conflict_do_update(index_elements=["journal", "sequence"], set_=saved)
        )
        newest = select(SNAPSHOT.c.sequence).where(of_journal).order_by(SNAPSHOT.c.sequence.desc()).limit(n_kept)
        self._execute(delete(SNAPSHOT).where(of_journal, SNAPSHOT.c.sequence.not_in(newest)))

    def _set_fact(self, name: str, value: str | int) -> None:
        statement = insert(FACT).values(journal=self._key, name=name, value=str(value))
        self._execute(statement.on_conflict_do_update(index_elements=["journal", "name"], set_={"value": str(value)}))

    def _forget_fact(self, name: str) -> None:
        self._execute(delete(FACT).where(FACT.c.journal == self._key, FACT.c.name == name))

    def _execute(self, statement: Any, values: Sequence[dict[str, Any]] | None = None) -> None:
        with self._connected() as connection:
            connection.execute(statement, values)

    # Claims.

    def _end_writes(self) -> None:
        # Without the right to it the claim is tried all the same: time ends most of them.
        with suppress(StoreUnreachable), self._connected() as connection:
            told = connection.execute(self._fact_of("owner")).scalar()  # without waiting for who writes it
            owners = [] if told is None else [Owner(**json.loads(told)).token]
            connection.execute(_END_WRITES, {"numbers": [_number(name) for name in (self._key, *owners)]})

    @contextmanager
    def _claiming(self) -> Iterator[None]:
        with self._transaction(is_durable=True):
            self._lock_until_end(_number(self._key))
            yield

    def _may_live(self, owner: Owner) -> bool:
        """One of this machine is looked for there; of one elsewhere there is only its connection's lock."""
        if owner.boot_id == boot_id() or not owner.may_live():
            return owner.may_live()
        with self._connected() as connection:
            is_free = connection.execute(select(func.pg_try_advisory_xact_lock(_number(owner.token)))).scalar_one()
        return not is_free

    def _lock_until_end(self, number: int) -> None:
        self._execute(select(func.pg_advisory_xact_lock(number)))

    # The connection.

    @contextmanager
    def _transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        with self._connected() as connection:
            if not is_durable and self._may_be_late:
                connection.execute(text("SET LOCAL synchronous_commit = off"))
            yield

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """The connection, in a transaction; within another one, in that. Raises `StoreUnreachable`."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._opened()
                if self._connection.in_transaction():
                    yield self._connection
                    return
                with self._connection.begin():
                    yield self._connection
            except SQLAlchemyError as error:
                self._drop()
                raise self._unreachable(error) from None

    def _opened(self) -> Connection:
        connection = self._engine.connect()
        if not self._read_only:
            with connection.begin():
                connection.execute(select(func.pg_try_advisory_lock(_number(self._process.token))))
        return connection

    def _drop(self) -> None:
        """Have the next statement make a connection of its own."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            with suppress(SQLAlchemyError):
                connection.close()

    def _break_off(self) -> None:
        """End the wait of another thread for an answer, with an error."""
        connection = self._connection
        with suppress(SQLAlchemyError, OSError, psycopg.Error):
            driver = None if connection is None else connection.connection.driver_connection
            if isinstance(driver, psycopg.Connection):
                with socket.socket(fileno=os.dup(driver.fileno())) as opened:
                    opened.shutdown(socket.SHUT_RDWR)

    def _disconnect(self) -> None:
        with self._lock:
            self._drop()
            self._engine.dispose()

    def _made_engine(self) -> Engine:
        try:
            url = make_url(self._place.url).set(drivername="postgresql+psycopg")
            options = url.query.get("options", "")
            options = " ".join(options) if isinstance(options, tuple) else options
            connecting = {**_CONNECTING, "options": f"{options} {_OPTIONS}".strip()}
            return create_engine(url, poolclass=NullPool, connect_args=connecting, hide_parameters=True)
        except (ArgumentError, ValueError) as error:
            raise self._refused("the URL of a store must be one of PostgreSQL", error, "Look at its parts.") from None

    # The tables.

    def _prepare(self) -> None:
        """Check that the tables are there; make them, or bring them to this version, if this is to be written."""
        try:
            version = self._version()
            if version != VERSION and not self._read_only:
                self._upgrade()
                version = self._version()
        except (SQLAlchemyError, CommandError) as error:
            self._drop()
            self._refuse(error)
        if version is None:
            raise self._invalid(
                "the database must hold journals of Punctual", "none", "Look at `--store` of the service."
            )
        if version != VERSION:
            raise self._other_version(version)

    def _version(self) -> str | None:
        """That of the tables; None: there are none."""
        with self._lock:
            connection = self._connection = self._connection or self._opened()
            with connection.begin():
                if connection.execute(select(func.to_regclass(VERSION_TABLE))).scalar() is None:
                    return None
                return str(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar())  # noqa: S608

    def _upgrade(self) -> None:
        from punctual.store.migrations import upgrade

        assert self._connection is not None
        with self._connection.begin():
            self._connection.execute(select(func.pg_advisory_xact_lock(_TABLES_LOCK)))
            upgrade(self._connection)

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise what a user can do something about; anything else is a server that is away."""
        if isinstance(error, CommandError):
            raise self._other_version(str(error)) from None
        state = _state_of(error)
        if state == _NO_RIGHT:
            remedy = "Give it the right to make tables (`GRANT CREATE, USAGE ON SCHEMA public TO …`), or name another."
            raise self._refused("the user of the database must have the right to its tables", error, remedy) from None
        if state in _BAD_LOGIN or "authentication failed" in str(error) or "no password supplied" in str(error):
            raise self._refused(
                "the database must know the user and the password", error, "Look at both in the URL of `--store`."
            ) from None
        if state == _NO_DATABASE or ('database "' in str(error) and "does not exist" in str(error)):
            raise self._refused("the database must be there", error, "Make it: createdb.") from None
        raise self._unreachable(error) from None

    def _other_version(self, got: str) -> InvalidSpec:
        return JournalUnusable(
            f"the tables of journals must be of version {VERSION}",
            f"version {got}" if got.isalnum() else got,
            self.place,
            "Use the version of Punctual that made them, or name another database (`--store`).",
        )

    def _unreachable(self, error: Exception) -> StoreUnreachable:
        return StoreUnreachable(
            "the store of the journal must be reachable",
            self._told(error),
            self.place,
            "Try again once it is back; jobs that run train on meanwhile.",
        )

    def _refused(self, must: str, error: Exception, remedy: str) -> InvalidSpec:
        return InvalidSpec(must, self._told(error), self.place, remedy)

    def _told(self, error: Exception) -> str:
        """What the driver says, in a line, without passwords."""
        said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        line = " ".join(str(said).split()).replace(self._place.url, shown_url(self._place.url))
        for password in passwords_of(self._place.url):
            line = line.replace(password, "***")
        return line[:300] or type(said).__name__


def _state_of(error: Exception) -> str | None:
    """The number of the error; None: the server did not say."""
    original = error.orig if isinstance(error, DBAPIError) else None
    return original.sqlstate if isinstance(original, psycopg.Error) else None


def _number(name: str) -> int:
    """The number by which PostgreSQL knows a lock of this name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
