"""A journal in one SQLite file.

Three tables: the messages; the last two snapshots of the state that they lead to; facts about the file (its writer,
its clock, the extent of its thinning).
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, Self, TypeVar

from punctual.core.codec import decode, encode, kind_of
from punctual.core.commands import RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.lifecycle import about
from punctual.journal.boot import ClockRecord, clock_now, clock_shift
from punctual.journal.compaction import Row
from punctual.journal.errors import JournalBusy, JournalTaken, JournalUnusable, StoreUnreachable
from punctual.journal.file import (
    DELETE_MESSAGES,
    FACT,
    SET_FACT,
    damaged,
    open_to_read,
    open_to_write,
    place_of,
    pragma,
    readable,
)
from punctual.journal.owner import Owner, this_process

#: Messages that are acknowledged to a user or a program: written through to the disk before `append` returns. Of a
#: submission the row of its job is there before.
_ACKNOWLEDGED = frozenset(
    {
        "SpecChanged",
        "PauseRequested",
        "ResumeRequested",
        "StopRequested",
        "PolicyChanged",
        "NodeNoticed",
    }
)
_R = TypeVar("_R", ClockRecord, Owner)
#: Subjects of messages that may concern every job.
_ABOUT_ALL = ("NodeJoined", "NodeLost", "PolicyChanged", "SteeringResumed", "WarnUser")
#: Rows fetched at once, so that a slow reader holds no transaction open and the store can be tidied behind it.
_N_ROWS = 500
_APPEND = "INSERT INTO message (sequence, kind, body, subject) VALUES (?, ?, ?, ?)"
#: Kinds and subjects come as lists, because a query may have only so many conditions, and a run any number of jobs.
_READ = """
    SELECT sequence, kind, body FROM message WHERE sequence BETWEEN ? AND ?
        AND kind NOT IN (SELECT value FROM json_each(?)) AND (? OR kind IN (SELECT value FROM json_each(?)))
        ORDER BY sequence LIMIT ?
"""
#: Up to `:n` messages of some subjects numbered `:first` and above, and of the plans the last before each command about a
#: job, and the last of all: the next command may rest on it.
_LAST_PLAN = "SELECT max(sequence) FROM message AS plan WHERE subject = 'PlanProposed'"
_READ_OF = f"""
    WITH told AS (
        SELECT sequence, kind FROM message WHERE subject IN (SELECT value FROM json_each(:subjects)) AND sequence >= :first
        ORDER BY sequence LIMIT :n
    ), read AS (SELECT CASE count(*) WHEN :n THEN max(sequence) ELSE {2**63 - 1} END AS until FROM told)
    SELECT sequence, kind, body FROM message WHERE sequence IN (
        SELECT sequence FROM told
        UNION SELECT ({_LAST_PLAN} AND plan.sequence BETWEEN :first AND told.sequence)
            FROM told WHERE kind IN ('LaunchJob', 'ResizeJob')
        UNION SELECT ({_LAST_PLAN} AND plan.sequence BETWEEN :first AND read.until) FROM read
    ) ORDER BY sequence
"""  # noqa: S608
_LAST = "SELECT coalesce(max(sequence), 0) FROM message"
_SNAPSHOT = "SELECT checksum, state FROM snapshot WHERE sequence = ?"
_SAVE = "INSERT OR REPLACE INTO snapshot (sequence, checksum, state) VALUES (?, ?, ?)"
_KEEP_NEWEST = (
    "DELETE FROM snapshot WHERE sequence NOT IN (SELECT sequence FROM snapshot ORDER BY sequence DESC LIMIT ?)"
)


@dataclass(frozen=True, slots=True)
class About:
    """Filter of messages.

    * `kinds`: only these kinds; empty: all.
    * `but_kinds`: None of these kinds.
    * `until`: highest number.
    """

    kinds: tuple[str, ...] = ()
    but_kinds: tuple[str, ...] = ()
    until: int = 2**63 - 1


_ALL = About()


class SqliteJournal:
    """A journal that survives its process, whenever that is killed, and can be read by others while it is written.

    One process writes a journal at a time. Opening it for writing claims it until `close`; a claim whose process has
    ended is void. A process that has lost its claim cannot write any more: each write looks for the claim in the same
    transaction. Who takes the claim of a process that was stopped within one ends that, so that it need not wait.

    What a user is told was accepted is on the disk once `append` has returned. Other messages are safe from the end of
    the process; the last of them may be lost if the machine loses power: waiting for the disk at each would cost more
    than it is worth to a training run.

    * `path`: the file; made, with mode 0600, if it is missing.
    * `read_only`: open the existing file, and never write.
    * `take`: claim the journal also from a process that is still there: one that is stopped or hangs. It is killed if
      it hangs or was stopped within a write.
    * `now`: relation of instants to wall time, for tests; None: this machine's clocks.

    * `path`: the file.
    * `last_written`: number of the last message that was there when this was opened, or that `append` has taken since.

    * Raises `InvalidSpec`: the file is missing, is no journal, or is one of another version.
    * Raises `JournalTaken`: another process writes it, and `take` is not set.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, take: bool = False, now: ClockRecord | None = None
    ) -> None:
        self.path = path
        self._read_only, self._now = read_only, now
        self._owner = json.dumps(asdict(this_process()))
        self._lock = RLock()
        self._ending = ExitStack()
        if not read_only:
            open_ending_writer(path, partial(self._claim, take=take), lambda _: take)
            return
        with ExitStack() as failing:
            connection = open_to_read(path, failing)
            if connection is None:
                remedy = "Look at `punctual ps` for the known runs."
                raise InvalidSpec("the journal must exist", "no such file", self.place, remedy)
            self._connection = connection
            self.last_written = self.last_sequence
            self._ending = failing.pop_all()

    @property
    def place(self) -> str:
        """Place of the journal, for people."""
        return place_of(self.path)

    # Messages.

    def append(self, messages: Iterable[Message]) -> int:
        """Write `messages`, all or none; the sequence number of the last one.

        * Raises `JournalTaken`: another process writes the journal.
        * Raises `sqlite3.Error`: the disk is full, or cannot be written.
        """
        numbered = enumerate(messages, start=self.last_written + 1)
        rows = [(number, kind_of(message), encode(message), subject_of(message)) for number, message in numbered]
        with self.writing(is_durable=not _ACKNOWLEDGED.isdisjoint([row[1] for row in rows])):
            self._connection.executemany(_APPEND, rows)
        self.last_written += len(rows)
        return self.last_written

    def read_from(self, sequence: int, wanted: About = _ALL) -> Iterator[tuple[int, Message]]:
        """Messages numbered `sequence` and above, in order; numbers are missing where the journal was thinned out.

        Only those `wanted`; the others are not even fetched.
        """
        while rows := self.rows_from(sequence, _N_ROWS, wanted):
            for number, kind, body in rows:
                yield number, self._message(number, kind, body)
            sequence = rows[-1][0] + 1

    def read_of(self, jobs: Sequence[JobId], sequence: int = 1) -> Iterator[tuple[int, Message]]:
        """Yield messages from number `sequence` on that may concern one of `jobs`, in order.

        Of plans only those that led to a command about one of the jobs, and now and then another one.
        """
        subjects = json.dumps((*jobs, *_ABOUT_ALL))
        wanted = {*jobs, None}
        while rows := self._rows(_READ_OF, {"subjects": subjects, "first": sequence, "n": _N_ROWS}):
            for number, kind, body in rows:
                if about(message := self._message(number, kind, body)) in wanted:
                    yield number, message
            sequence = rows[-1][0] + 1

    def rows_from(self, sequence: int, n_rows: int, wanted: About = _ALL) -> list[Row]:
        """Return up to `n_rows` messages from `sequence` on: number, kind and text; filtered by `wanted`."""
        kinds, but_kinds = json.dumps(wanted.kinds), json.dumps(wanted.but_kinds)
        return self._rows(_READ, (sequence, wanted.until, but_kinds, not wanted.kinds, kinds, n_rows))

    def _rows(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Return all rows of a query; raises `JournalUnusable` if the file is damaged, and `StoreUnreachable` if it cannot be read now."""
        with self._lock, readable(self.path):
            return self._connection.execute(query, values).fetchall()

    @property
    def last_sequence(self) -> int:
        """Number of the last message; 0 without messages."""
        return int(self._rows(_LAST)[0][0])

    def _message(self, number: int, kind: str, body: str) -> Message:
        try:
            return decode(kind, body)
        except InvalidSpec as error:
            where = f"message {number} of {self.place}"
            raise JournalUnusable(error.must, error.got, where, error.remedy) from error

    # Snapshots.

    def save_snapshot(self, sequence: int, state: bytes) -> None:
        """Keep `state`, to which the messages up to number `sequence` lead; the one before is kept as well.

        Raises `JournalTaken`: another process writes the journal.
        """
        with self.writing():
            self._connection.execute(_SAVE, (sequence, _checksum(sequence, state), state))
            # The one before stays, in case the newest is damaged.
            self._connection.execute(_KEEP_NEWEST, (2,))
            self._record_clock()

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot that is not damaged, and the number of its last message; None: begin with message 1.

        Raises `JournalUnusable`: all snapshots are damaged, and the messages before them do not all exist any more.
        """
        for sequence in reversed(self.snapshot_sequences()):
            with suppress(sqlite3.DatabaseError), self._lock:
                for checksum, state in self._connection.execute(_SNAPSHOT, (sequence,)).fetchall():
                    if isinstance(state, bytes) and _checksum(sequence, state) == checksum:
                        return sequence, state
        if self.compacted_until > self.begun_after:
            raise damaged(self.path, "none of the last two snapshots that is")
        return None

    def snapshot_sequences(self) -> list[int]:
        """Numbers of the last messages of the snapshots, damaged or not, the oldest first."""
        return [sequence for (sequence,) in self._rows("SELECT sequence FROM snapshot ORDER BY sequence")]

    # Beginnings.

    def reset(self) -> None:
        """Begin another state than that to which the messages lead: one without jobs, when all have ended.

        Removed jobs are forgotten.

        Raises `JournalTaken`: another process writes the journal.
        """
        with readable(self.path), self.writing():
            self._connection.execute(f"{DELETE_MESSAGES} AND subject IN (SELECT id FROM job WHERE is_removed)")  # noqa: S608
            self._connection.execute("DELETE FROM job WHERE is_removed")
            if not (begun_after := self.last_written):
                return
            self._connection.execute("DELETE FROM snapshot")
            self._set_fact("begun_after", begun_after)
            self._set_fact("beginnings", json.dumps(sorted({*self._beginnings(), begun_after})))

    @property
    def begun_after(self) -> int:
        """Number of the last message before the present state began; 0: it began with the journal."""
        return self._number("begun_after")

    def period_of(self, job: JobId) -> tuple[int, int]:
        """Return the numbers of the first and last message of the state that had the job."""
        ((at,),) = self._rows("SELECT min(sequence) FROM message WHERE subject = ?", (job,))
        bounds = sorted({0, *self._beginnings(), 2**63 - 1})
        first = max(begun_after for begun_after in bounds[:-1] if begun_after < (at or 1))
        return first + 1, bounds[bounds.index(first) + 1]

    def _beginnings(self) -> list[int]:
        with readable(self.path):
            return [int(number) for number in json.loads(self._fact("beginnings") or "[]")]

    # Upkeep.

    def thin(self, sequences: Sequence[int], until: int) -> None:
        """Remove the messages of those numbers; `until` is what `compacted_until` says from now on.

        The last message stays, whose number would be given again.
        """
        with self.writing():
            removed = [(sequence,) for sequence in sequences if sequence < self.last_written]
            self._connection.executemany("DELETE FROM message WHERE sequence = ?", removed)
            self._set_fact("compacted_until", until)

    def give_back(self, free_pages: int, n_pages: int) -> bool:
        """Give `n_pages` back to the file system if more than `free_pages`, and a quarter of all, hold nothing."""
        with self._lock:
            n_free, n_all = pragma(self._connection, "freelist_count"), pragma(self._connection, "page_count")
        if n_free <= max(free_pages, n_all // 4):
            return False
        with self.writing():
            for _ in range(n_pages):  # Python takes one step of this statement, and a step is a page
                self._connection.execute("PRAGMA incremental_vacuum(1)")
        return True

    # Facts.

    @property
    def clock(self) -> ClockRecord | None:
        """Clock of the last writer; None before the first."""
        return self._record("clock", ClockRecord)

    @property
    def owner(self) -> Owner | None:
        """Process that writes the journal; None: the last writer has closed it."""
        return self._record("owner", Owner)

    @property
    def compacted_until(self) -> int:
        """Number up to which messages may be missing; 0: none is."""
        return self._number("compacted_until")

    def _number(self, name: str) -> int:
        told = self._fact(name) or 0
        if not isinstance(told, int | str) or not str(told).isdecimal():
            raise damaged(self.path, f"`{name}` that is {told!r}")
        return int(told)

    def _record(self, name: str, kind: type[_R]) -> _R | None:
        """A fact that has fields; raises `JournalUnusable` if it has others."""
        text = self._fact(name)
        try:
            return None if text is None else kind(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, f"`{name}` that is {text!r}"[:200]) from error

    def _fact(self, name: str) -> Any:
        rows = self._rows(FACT, (name,))
        return rows[0][0] if rows else None

    def _set_fact(self, name: str, value: str | int) -> None:
        self._connection.execute(SET_FACT, (name, value))

    def _record_clock(self) -> None:
        now = self._now or clock_now()
        shift_s = clock_shift(self.clock, now)
        self._set_fact("clock", json.dumps(asdict(replace(now, shift_s=shift_s))))

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
    def writing(self, *, is_durable: bool = False, claims: bool = False) -> Iterator[None]:
        """A transaction of the process that has claimed the journal; raises `JournalTaken` for any other, unless it `claims`."""
        execute = self._connection.execute
        with self._lock:
            try:
                if is_durable:
                    execute("PRAGMA synchronous = FULL")
                execute("BEGIN IMMEDIATE")
                if not claims and execute(FACT, ("owner",)).fetchone() != (self._owner,):
                    raise self._taken(self.owner)  # noqa: TRY301 -- what has begun is rolled back
                yield
                execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
            finally:
                if is_durable:
                    execute("PRAGMA synchronous = NORMAL")

    def _claim(self, connection: sqlite3.Connection, *, take: bool) -> None:
        self._connection = connection
        with self.writing(claims=True):
            owner = self.owner
            if owner is not None and owner.may_live():
                if not take:
                    raise self._taken(owner)
                if not owner.is_stopped():  # of one that hangs, other threads go on, and would take its jobs back
                    owner.kill()
            self._set_fact("owner", self._owner)
            self._record_clock()
            self.last_written = self.last_sequence

    def _taken(self, owner: Owner | None) -> JournalTaken:
        got = "one that was closed" if owner is None else f"one of process {owner.pid} on '{owner.machine}'"
        return JournalTaken(
            "a journal must be written by the process that claimed it last", got, self.place,
            "Let that process steer the jobs, or end it first.",
        )  # fmt: skip

    def close(self) -> None:
        """Release the journal; it has no owner until it is opened again."""
        try:
            # The claim ends with this process where it cannot be voided: the disk is full, or another has taken it.
            if not self._read_only:
                with suppress(sqlite3.Error, JournalTaken, StoreUnreachable), self.writing():
                    self._connection.execute("DELETE FROM fact WHERE name = 'owner'")
        finally:
            self._connection.close()
            self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ending_writer(
    path: Path, begin: Callable[[sqlite3.Connection], object], may_end: Callable[[Owner], bool]
) -> sqlite3.Connection:
    """Open the file as `open_to_write` does; a writer that keeps it locked is killed first, if `may_end` says so.

    A process that was stopped within a write keeps the lock until it goes on.
    """
    try:
        return open_to_write(path, begin)
    except JournalBusy:
        with SqliteJournal(path, read_only=True) as reader:
            owner = reader.owner
        if owner is None or not may_end(owner):
            raise
        owner.kill()
        return open_to_write(path, begin)


def subject_of(message: Message) -> str | None:
    """Return the job that `message` or its timer concerns, else the message's kind; None for no subject."""
    if isinstance(message, RequestPlan):  # there are many
        return None
    job = about(message) or getattr(getattr(message, "timer", None), "job", None)
    return job or kind_of(message)


def _checksum(sequence: int, state: bytes) -> bytes:
    return blake2b(state, digest_size=16, key=str(sequence).encode()).digest()
