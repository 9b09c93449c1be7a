"""What a journal is, wherever it is stored: all but the statements of a database."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from punctual.core.codec import decode, encode, kind_of
from punctual.core.commands import RequestPlan, SetTimer
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.lifecycle import about
from punctual.core.protocols import Message
from punctual.store.boot import ClockRecord, clock_now, shift_between
from punctual.store.owner import Owner, this_process
from punctual.store.thinning import Row

#: What a user or a program is told was accepted: written through to the disk before `append` returns.
_ACKNOWLEDGED = frozenset(
    {"JobSubmitted", "SpecChanged", "PauseRequested", "ResumeRequested", "StopRequested", "PolicyChanged"}
)
R = TypeVar("R", ClockRecord, Owner)
#: The one before stays, in case the newest is damaged.
_N_SNAPSHOTS = 2
#: A message as it is written: number, kind, text, and what it is about.
NewRow = tuple[int, str, str, str | None]
#: Subjects of messages that may concern every job; and of those that an earlier version wrote, which may be about any.
_ABOUT_ALL, _NOT_KNOWN = ("NodeJoined", "NodeLost", "PolicyChanged", "SteeringResumed", "WarnUser"), ""
#: Rows fetched at once, so that a slow reader holds no transaction open and the store can be tidied behind it.
_N_ROWS = 500


class JournalTaken(InvalidSpec):
    """Another process writes the journal; what was to be written was not."""


class JournalUnusable(InvalidSpec):
    """The journal, or what is needed of it, is damaged or of another version of Punctual: to try again does not help."""


class JournalBusy(InvalidSpec):
    """Another process has been writing the journal for long: it was stopped meanwhile."""


class StoreUnreachable(InvalidSpec):
    """The store of the journal cannot be used now; what was to be written was not."""


@dataclass(frozen=True, slots=True)
class About:
    """Which messages are wanted.

    Attributes
    ----------
    kinds
        Those of these kinds; empty: of all.
    but_kinds
        None of these kinds.
    until
        None with a higher number.
    """

    kinds: tuple[str, ...] = ()
    but_kinds: tuple[str, ...] = ()
    until: int = 2**63 - 1


class StoredJournal(ABC):
    """A journal that survives its process, whenever that is killed, and can be read by others while it is written.

    One process writes a journal at a time. Opening it for writing claims it until `close`; a claim whose process has
    ended is void. A process that has lost its claim cannot write any more: each write looks for the claim in the same
    transaction. Who takes the claim of a process that was stopped within one ends that, so that it need not wait.

    Parameters
    ----------
    now
        For tests: what relates instants to wall time; None: this machine's clocks.
    """

    #: The file that holds it; None: a database does.
    file: Path | None = None
    #: Whether messages wait in memory for a store that cannot be reached.
    is_behind: bool = False

    def __init__(self, *, read_only: bool, now: ClockRecord | None) -> None:
        self._read_only = read_only
        self._now = now
        self._process = this_process()
        self._owner = json.dumps(asdict(self._process))
        #: Number of the last message that was there when this was opened, or that `append` has taken since.
        self.last_written = 0

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, as people are told; without a password."""

    # What a database does.

    @abstractmethod
    def _rows_of(self, subjects: Sequence[str], sequence: int, n_rows: int) -> list[Row]:
        """What `rows_of_sql` asks for."""

    @abstractmethod
    def rows_from(self, sequence: int, n_rows: int, wanted: About | None = None) -> list[Row]:
        """Up to `n_rows` messages from `sequence` on: number, kind and text. With `wanted`, of those only."""

    @property
    @abstractmethod
    def last_sequence(self) -> int:
        """Number of the last message; 0: there is none."""

    @abstractmethod
    def snapshot_sequences(self) -> list[int]:
        """Numbers of the last messages of the snapshots, damaged or not, the oldest first."""

    @abstractmethod
    def _snapshot(self, sequence: int) -> tuple[object, object] | None:
        """Checksum and state of the snapshot of that number; None: it cannot be read."""

    @abstractmethod
    def _fact(self, name: str) -> Any:
        """The value of a fact; None: there is none. Within `_transaction` nobody else changes the owner meanwhile."""

    @abstractmethod
    def _transaction(self, *, is_durable: bool = False) -> AbstractContextManager[object]:
        """All that is written inside is written, or nothing is; `is_durable`: it is on the disk then."""

    def _claiming(self) -> AbstractContextManager[object]:
        """A transaction in which no other process claims the journal."""
        return self._transaction()

    # These are called within `_transaction`.

    @abstractmethod
    def _insert(self, rows: Sequence[NewRow]) -> None: ...

    @abstractmethod
    def _delete(self, sequences: Sequence[int]) -> None: ...

    @abstractmethod
    def _keep_snapshot(self, sequence: int, checksum: bytes, state: bytes, n_kept: int) -> None:
        """Keep it, in place of one of the same number, and of all only the newest `n_kept`."""

    @abstractmethod
    def _set_fact(self, name: str, value: str | int) -> None: ...

    @abstractmethod
    def _forget_fact(self, name: str) -> None: ...

    @abstractmethod
    def _disconnect(self) -> None: ...

    # Messages.

    def append(self, messages: Iterable[Message]) -> int:
        """Write `messages`, all or none; the sequence number of the last one.

        Raises
        ------
        JournalTaken
            Another process writes the journal.
        StoreUnreachable
            The store cannot be used now.
        """
        rows = self._numbered(messages)
        with self.writing(is_durable=is_acknowledged(rows)):
            self._insert(rows)
        self.last_written = rows[-1][0] if rows else self.last_written
        return self.last_written

    def _numbered(self, messages: Iterable[Message]) -> list[NewRow]:
        """`messages` as they are stored."""
        numbered = enumerate(messages, start=self.last_written + 1)
        return [(number, kind_of(message), encode(message), subject_of(message)) for number, message in numbered]

    def read_from(self, sequence: int, wanted: About | None = None) -> Iterator[tuple[int, Message]]:
        """Messages numbered `sequence` and above, in order; numbers are missing where the journal was thinned out.

        With `wanted`, only those; the others are not even fetched.
        """
        while rows := self.rows_from(sequence, _N_ROWS, wanted):
            for number, kind, body in rows:
                yield number, self._message(number, kind, body)
            sequence = rows[-1][0] + 1

    def read_of(self, jobs: Sequence[JobId], sequence: int = 1) -> Iterator[tuple[int, Message]]:
        """Messages numbered `sequence` and above that may concern one of `jobs`, in order; others are not looked at.

        Of plans only those that led to a command about one of the jobs, and now and then another one.
        """
        subjects = (*jobs, *_ABOUT_ALL, _NOT_KNOWN)
        wanted = {*jobs, None}
        while rows := self._rows_of(subjects, sequence, _N_ROWS):
            for number, kind, body in rows:
                if about(message := self._message(number, kind, body)) in wanted:
                    yield number, message
            sequence = rows[-1][0] + 1

    def _message(self, number: int, kind: str, body: str) -> Message:
        try:
            return decode(kind, body)
        except InvalidSpec as error:
            where = f"message {number} of {self.place}"
            raise JournalUnusable(error.must, error.got, where, error.remedy) from error

    # Snapshots.

    def save_snapshot(self, sequence: int, state: bytes) -> None:
        """Keep `state`, to which the messages up to number `sequence` lead; the one before is kept as well.

        Raises
        ------
        JournalTaken
            Another process writes the journal.
        """
        with self.writing():
            self._keep_snapshot(sequence, _checksum(sequence, state), state, _N_SNAPSHOTS)
            self._record_clock()

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot that is not damaged, and the number of its last message; None: begin with message 1.

        Raises
        ------
        JournalUnusable
            All snapshots are damaged, and the messages before them do not all exist any more.
        """
        for sequence in reversed(self.snapshot_sequences()):
            checksum, state = self._snapshot(sequence) or (b"", b"")
            if isinstance(state, bytes) and _checksum(sequence, state) == checksum:
                return sequence, state
        if self.thinned_until:
            raise self._damaged("none of the last two snapshots that is")
        return None

    # Facts.

    @property
    def clock(self) -> ClockRecord | None:
        """The clock of whoever wrote last; None: nobody has written."""
        return self._record("clock", ClockRecord)

    @property
    def owner(self) -> Owner | None:
        """Who writes the journal; None: whoever wrote it last has closed it."""
        return self._record("owner", Owner)

    @property
    def thinned_until(self) -> int:
        """Up to this number, messages may be missing; 0: all are there."""
        told = self._fact("thinned_until") or 0
        if not isinstance(told, int | str) or not str(told).isdecimal():
            raise self._damaged(f"`thinned_until` that is {told!r}")
        return int(told)

    def _record(self, name: str, kind: type[R]) -> R | None:
        """A fact that has fields; raises `JournalUnusable` if it has others."""
        text = self._fact(name)
        try:
            return None if text is None else kind(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"`{name}` that is {text!r}"[:200]) from error

    def _damaged(self, got: str) -> JournalUnusable:
        return JournalUnusable(
            "a journal must be whole",
            got,
            self.place,
            "Restore it from a backup; or give up the jobs that are open (`punctual stop JOB`), and remove it (`punctual clean`).",
        )

    def thin(self, sequences: Sequence[int], until: int) -> None:
        """Remove the messages of those numbers; `until` is what `thinned_until` says from now on.

        The last message stays, whose number would be given again.
        """
        with self.writing():
            last = self.last_sequence
            self._delete([sequence for sequence in sequences if sequence < last])
            self._set_fact("thinned_until", until)

    def give_back(self, free_pages: int, n_pages: int) -> bool:
        """Give room of a file back to the file system; whether it did, and may have to do it again."""
        return False

    def beside(self, work: Callable[[], None]) -> bool:
        """Have `work`, which reads and writes this journal, done now or soon; False: it is not, as other work is."""
        work()
        return True

    def _record_clock(self) -> None:
        now = self._now or clock_now()
        shift_s = shift_between(self.clock, now)
        self._set_fact("clock", json.dumps(asdict(replace(now, shift_s=shift_s))))

    # Writing.

    def has_claim(self) -> bool:
        """Whether this process may still write: no other has claimed the journal meanwhile."""
        return bool(self._fact("owner") == self._owner)

    def check_claim(self) -> None:
        """Raise `JournalTaken` unless this process may still write."""
        if not self.has_claim():
            raise self._taken(self.owner)

    @contextmanager
    def writing(self, *, is_durable: bool = False) -> Iterator[None]:
        """A transaction of the process that has claimed the journal; raises `JournalTaken` for any other."""
        with self._transaction(is_durable=is_durable):
            if self._fact("owner") != self._owner:
                raise self._taken(self.owner)
            yield

    def _claim(self, *, take: bool) -> None:
        with self._claiming():
            owner = self.owner
            if owner is not None and self._may_live(owner) and not take:
                raise self._taken(owner)
            self._set_fact("owner", self._owner)
            self._record_clock()

    def _may_live(self, owner: Owner) -> bool:
        """Whether the process that has claimed the journal may still write."""
        return owner.may_live()

    def _taken(self, owner: Owner | None) -> JournalTaken:
        got = "one that was closed" if owner is None else f"one of process {owner.pid} on '{owner.machine}'"
        return JournalTaken(
            "a journal must be written by the process that claimed it last", got, self.place,
            "Let that process steer the jobs, or end it first.",
        )  # fmt: skip

    def _invalid(self, must: str, got: str, remedy: str) -> InvalidSpec:
        return InvalidSpec(must, got, self.place, remedy)

    def close(self) -> None:
        """Give the journal up; nobody has it until it is opened again."""
        try:
            if not self._read_only:
                self._give_up()
        finally:
            self._disconnect()

    def _give_up(self) -> None:
        """Void the claim; if that cannot be, the end of this process does."""
        try:
            with self.writing():
                self._forget_fact("owner")
        except (JournalTaken, StoreUnreachable):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_acknowledged(rows: Iterable[NewRow]) -> bool:
    """Whether one of the messages is what somebody is told was accepted."""
    return any(kind in _ACKNOWLEDGED for _, kind, _, _ in rows)


def subject_of(message: Message) -> str | None:
    """The job that `message` is about, or whose timer it is of; else its kind. None: nothing is told of it."""
    if isinstance(message, SetTimer | RequestPlan):  # there are many
        return None
    job = about(message) or getattr(getattr(message, "timer", None), "job", None)
    return job or kind_of(message)


def rows_of_sql(table: str, of_journal: str, is_asked: str) -> str:
    """The statement for up to `:n` messages of some subjects numbered `:first` and above, and the plans among them.

    Of plans there are the last before each command about a job, and the last of all: the next command may rest on it.

    Parameters
    ----------
    table, of_journal
        Where messages are, and the condition that one is of this journal.
    is_asked
        The condition that `subject` is one of those that are asked for.
    """
    plans = f"SELECT max(sequence) FROM {table} AS plan WHERE {of_journal} AND subject = 'PlanProposed'"  # noqa: S608
    return f"""
        WITH told AS (
            SELECT sequence, kind FROM {table} WHERE {of_journal} AND {is_asked} AND sequence >= :first
            ORDER BY sequence LIMIT :n
        ), read AS (SELECT CASE count(*) WHEN :n THEN max(sequence) ELSE {2**63 - 1} END AS until FROM told)
        SELECT sequence, kind, body FROM {table} WHERE {of_journal} AND sequence IN (
            SELECT sequence FROM told
            UNION SELECT ({plans} AND plan.sequence BETWEEN :first AND told.sequence)
                FROM told WHERE kind IN ('LaunchJob', 'ResizeJob')
            UNION SELECT ({plans} AND plan.sequence BETWEEN :first AND read.until) FROM read
        ) ORDER BY sequence
    """  # noqa: S608


def _checksum(sequence: int, state: bytes) -> bytes:
    return blake2b(state, digest_size=16, key=str(sequence).encode()).digest()
