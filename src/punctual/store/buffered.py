"""A journal in a database that a host goes on with while the database is away."""

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock

from punctual.core.protocols import Message
from punctual.store.boot import ClockRecord
from punctual.store.place import StorePlace
from punctual.store.postgresql import PostgresJournal
from punctual.store.stored import JournalTaken, NewRow, StoreUnreachable, is_acknowledged

_LOG = logging.getLogger(__name__)

#: How long a host waits for the store: less than what the keepers of its jobs wait for the host.
_ANSWER_S = 1.0
#: For how long messages may be on no disk but in memory; what a user is told was accepted is on one at once.
_LATE_S = 1.0
#: How long the last messages may take when the journal is closed.
_CLOSE_S = 5.0
#: Rows written at once; and how many may wait, which is some 100 MB, before the host fails as it does on a full disk.
_N_ROWS, _N_WAITING_MAX = 1000, 200_000


class BufferedJournal(PostgresJournal):
    """Keeps messages in memory, in order, as long as the database cannot be reached, and writes them once it can.

    A thread of its own talks to the database, so that a host waits a second for an answer and no longer. `append` waits
    for what it was given to be written. If that has not come by then, the journal is behind: `append` returns at once,
    until all has been written. Messages are numbered here, so one that was written without an answer is not written
    twice, and one that a server has lost that was killed is written again.

    What a user is told was accepted is on the server's disk before `append` returns, unless the journal is behind then;
    all other messages are within a second or so.

    Parameters
    ----------
    place, take, now
        As for `PostgresJournal`.
    """

    _may_be_late = True

    def __init__(self, place: StorePlace, *, take: bool = False, now: ClockRecord | None = None) -> None:
        self._guard = Lock()
        self._waiting: list[NewRow] = []
        #: What was written and may not be on the server's disk: it is written again if the connection breaks.
        self._late: list[NewRow] = []
        self._on_disk_at = 0.0
        self._loss: JournalTaken | None = None
        self._is_closed = False
        self._flushing: Future[None] | None = None
        self._beside: Future[None] | None = None
        super().__init__(place, take=take, now=now)
        self._n_confirmed = self.last_written
        self._worker = ThreadPoolExecutor(1, "punctual-journal")

    @property
    def n_waiting(self) -> int:
        """How many messages are in memory only."""
        return len(self._waiting)

    def append(self, messages: Iterable[Message]) -> int:
        """Write `messages`, or keep them until they can be; the sequence number of the last one.

        Raises
        ------
        JournalTaken
            Another process writes the journal: what was kept is lost.
        StoreUnreachable
            More is kept than there is room for.
        """
        if len(self._waiting) > _N_WAITING_MAX:
            raise self._unreachable(RuntimeError(f"{self.n_waiting} messages wait for it"))
        rows = self._numbered(messages)
        with self._guard:
            self._waiting += rows
        self.last_written = rows[-1][0] if rows else self.last_written
        self._attempt()
        self._check_loss()
        return self.last_written

    def has_claim(self) -> bool:
        """Whether this process may still write, as far as is known: the database may be away."""
        if self._loss is None and not self._is_closed:
            self._attempt()
        return self._loss is None and not self._is_closed

    def check_claim(self) -> None:
        if not self.has_claim():
            self._check_loss()
            raise self._taken(None)

    def beside(self, work: Callable[[], None]) -> bool:
        """Have the thread do `work` once all that was appended is written; False: it is at such work already."""
        if self.is_behind or (self._beside is not None and not self._beside.done()):
            return False
        if self._beside is not None:
            self._beside.result()  # raises what is a fault of ours
        self._beside = self._worker.submit(self._do, work)
        return True

    def _check_loss(self) -> None:
        if self._loss is not None:
            self.last_written = self._n_confirmed  # another process has given the numbers behind it again
            raise self._loss

    def _attempt(self) -> None:
        """Have the thread write what waits and look for the claim; wait for that unless the journal is behind."""
        with self._guard:
            if self._is_closed or (self.is_behind and self._flushing is not None and not self._flushing.done()):
                return
            flushing = self._flushing = self._worker.submit(self._do, self._flush)
        if not self.is_behind:
            wait([flushing], _ANSWER_S)
            if flushing.done():
                flushing.result()  # raises what is a fault of ours
            with self._guard:
                if not flushing.done() and not self.is_behind:
                    self._fall_behind("no answer")

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except JournalTaken as error:
            self._loss = error
        except StoreUnreachable as error:
            with self._guard:
                self._waiting, self._late = self._late + self._waiting, []
                self._fall_behind(error.got)

    def _fall_behind(self, why: str) -> None:
        if not self.is_behind:
            _LOG.warning(
                "the store of the journal is away; jobs go on, and changes are refused: %s (%s)", self.place, why
            )
        self.is_behind = True

    def _flush(self) -> None:
        """Write all that waits."""
        while True:
            rows = self._waiting[:_N_ROWS]
            is_durable = is_acknowledged(rows) or time.monotonic() - self._on_disk_at > _LATE_S
            with self.writing(is_durable=is_durable):
                self._insert(rows)
            with self._guard:
                del self._waiting[: len(rows)]
                self._late = [] if is_durable else self._late + rows
                self._on_disk_at = time.monotonic() if is_durable else self._on_disk_at
                self._n_confirmed = rows[-1][0] if rows else self._n_confirmed
                if self._waiting:
                    continue
                if self.is_behind:
                    _LOG.warning("the store of the journal is back, and all is written: %s", self.place)
                self.is_behind = False
                return

    def _give_up(self) -> None:
        if not self.is_behind:
            super()._give_up()

    def close(self) -> None:
        """Write what waits, if that can be done within some seconds, and give the journal up."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
        if self._loss is None:
            self._worker.submit(self._do, self._flush)
        closing = self._worker.submit(super().close)
        self._worker.shutdown(wait=False)
        if wait([closing], _CLOSE_S).not_done:
            self._break_off()  # the thread, and with it this process, would wait as long as the server hangs
            wait([closing], _CLOSE_S)
        if self._waiting and self._loss is None:
            _LOG.error("%d messages could not be written to %s", self.n_waiting, self.place)
