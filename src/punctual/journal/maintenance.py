"""Keep a journal small and quick to start from while it is written."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import inf

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.journal.compaction import CompactionRules
from punctual.journal.errors import JournalTaken
from punctual.journal.file import WAL_BYTES_MAX, connect
from punctual.journal.sqlite import SqliteJournal

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepLimits:
    """Frequency and extent of the upkeep.

    * `snapshot_messages`, `snapshot_s`, `snapshot_messages_most`: a snapshot is due after so many messages, and not
      before so many seconds unless there are as many messages as the last: a start has to read what came after it, and
      of many jobs a minute's messages are tens of thousands.
    * `snapshot_frac`: the part of the time that is spent on snapshots at most where they are due before those seconds:
      that of a thousand jobs takes half a second, in which nothing is steered.
    * `thin_messages`: messages looked through at a time.
    * `wal_bytes`: size of the write-ahead file from which on it is folded into the database; more than it is cut down
      to then.
    * `fold_s`: seconds between two looks at it; if a reader holds it up, it is tried again with the next one.
    * `free_pages`, `vacuum_pages`: from so many unused pages on, if they are a quarter of all, pages are given back to
      the file system, so many at a time.
    """

    snapshot_messages: int = 2000
    snapshot_s: float = 60.0
    snapshot_messages_most: int = 5000
    snapshot_frac: float = 0.02
    thin_messages: int = 250
    wal_bytes: int = 2 * WAL_BYTES_MAX
    fold_s: float = 1.0
    free_pages: int = 512
    vacuum_pages: int = 64

    def snapshot_is_due(self, n_messages: int, passed_s: float, took_s: float = 0.0) -> bool:
        """Whether one is due, so many messages and seconds after the last, which took `took_s` seconds."""
        if passed_s < self.snapshot_s:
            return n_messages >= self.snapshot_messages_most and took_s <= self.snapshot_frac * passed_s
        return n_messages >= self.snapshot_messages


class JournalMaintenance:
    """Makes snapshots of the state, thins out what lies behind them, and keeps the files small.

    To be called with all messages that were written together, once the state has taken them in, in the thread that writes.
    One call does one piece of work at most, so that it takes some milliseconds and holds up no decision; what waits for
    the disk is done in a thread beside.

    `dump`: the state to which all messages in the journal lead, as bytes. May raise `InvalidSpec`: then nothing is
    thinned out either, and all of it stays to be read.
    """

    def __init__(
        self, journal: SqliteJournal, dump: Callable[[], bytes], *, limits: UpkeepLimits | None = None
    ) -> None:
        self._journal = journal
        self._dump = dump
        self._limits = limits or UpkeepLimits()
        self._thinning = CompactionRules()
        self._compacted_until = journal.compacted_until
        self._snapshots = journal.snapshot_sequences()
        self._n_messages = 0
        self._saved_at = -inf
        #: Seconds for which the last snapshot held up all other work.
        self._took_s = 0.0
        self._is_vacuuming = self._is_scrubbing = False
        self._folding: threading.Thread | None = None
        self._fold_at = -inf

    def __call__(self, messages: Sequence[Message]) -> None:
        self._n_messages += len(messages)
        at = messages[-1].at
        if self._saved_at == -inf:  # the first message: time is counted from here
            self._saved_at = at
        if self._limits.snapshot_is_due(self._n_messages, at - self._saved_at, self._took_s):
            self._snapshot_if_possible(at)
        elif len(self._snapshots) >= 2 and self._compacted_until < self._snapshots[0]:
            self._thin()
        else:
            self._fold_if_due(at)
            if self._is_vacuuming:
                self._is_vacuuming = self._journal.give_back(self._limits.free_pages, self._limits.vacuum_pages)

    def snapshot(self) -> None:
        """Make a snapshot now; raises `InvalidSpec` if the state cannot be kept."""
        begun_at = time.perf_counter()
        sequence, state = self._journal.last_written, self._dump()
        self._took_s = time.perf_counter() - begun_at

        self._journal.save_snapshot(sequence, state)
        self._snapshots = self._journal.snapshot_sequences()

    def scrub(self) -> None:
        """Empty the write-ahead file soon, in the background: it may hold secrets of a job that has ended."""
        self._is_scrubbing = True
        self.go_on()

    def go_on(self) -> None:
        """Begin maintenance that is due and does not wait for a message; call it now and then."""
        if self._is_scrubbing:
            self._fold_beside_if_idle()

    def close(self) -> None:
        """Wait for work in the background."""
        if self._folding is not None:
            self._folding.join()

    def _snapshot_if_possible(self, at: float) -> None:
        # Noted before, so that what fails is tried again a while later and not with the next message.
        self._n_messages, self._saved_at = 0, at
        try:
            self.snapshot()
        except JournalTaken:
            raise
        except InvalidSpec as error:
            _LOG.warning("the journal in %s stays as long as it is: %s", self._journal.place, error)

    def _thin(self) -> None:
        """Thin the next piece before the older of the two snapshots; a start from either needs all later messages."""
        until = self._snapshots[0]
        rows = self._journal.rows_from(self._compacted_until + 1, self._limits.thin_messages)
        if rows and rows[-1][0] < until:
            until = rows[-1][0]
        self._journal.thin(self._thinning.take(row for row in rows if row[0] <= until), until)
        self._compacted_until = until
        self._is_vacuuming = self._is_vacuuming or until == self._snapshots[0]

    def _fold_if_due(self, at: float) -> None:
        if at < self._fold_at:
            return
        self._fold_at, file = at + self._limits.fold_s, self._journal.path
        with suppress(FileNotFoundError):
            if file.with_name(f"{file.name}-wal").stat().st_size >= self._limits.wal_bytes or self._is_scrubbing:
                self._fold_beside_if_idle()

    def _fold_beside_if_idle(self) -> None:
        """Fold the write-ahead file into the database, in the background, because that waits for the disk."""
        if self._folding is not None and self._folding.is_alive():
            return
        folding = threading.Thread(target=self._fold_beside, name="punctual-journal", daemon=True)
        with suppress(RuntimeError):  # no thread can be had: the file grows until the next try
            folding.start()
            self._folding = folding

    def _fold_beside(self) -> None:
        file, mode = self._journal.path, "TRUNCATE" if self._is_scrubbing else "PASSIVE"
        try:
            with closing(connect(file, "rw")) as connection:
                connection.execute("PRAGMA busy_timeout = 20")  # nothing can be appended meanwhile
                ((is_held_up, *_),) = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
                self._is_scrubbing = self._is_scrubbing and bool(is_held_up)
        except sqlite3.Error as error:
            _LOG.warning("the journal '%s' could not be tidied: %s", file, error)
