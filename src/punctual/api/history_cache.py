"""Cache of folds of single jobs' messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, Protocol, TypeVar

from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import read_about


class Fold(Protocol):
    """Fold of the messages about a job, in the order of the journal; messages about others change nothing."""

    def take(self, message: Message) -> None: ...


F = TypeVar("F", bound=Fold)

#: Folds that are kept, the last ones requested.
_N_KEPT = 32


class HistoryCache(Generic[F]):
    """Folds of some jobs of a run; only new messages of the journal are read. Thread-safe.

    Parameters
    ----------
    new
        Makes the job's fold, which has no message yet.
    """

    def __init__(self, run: RunFolder, new: Callable[[JobId], F]) -> None:
        self._run, self._new = run, new
        self._lock = Lock()
        #: Fold, and number of the first message that was not read for it; the one asked for last is the last.
        self._kept: dict[JobId, tuple[F, int]] = {}

    @contextmanager
    def of(self, job: JobId) -> Iterator[F]:
        """Yield the job's fold, up to the end of the journal; no other thread has it before the block ends.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            fold, sequence = self._kept.pop(job) if job in self._kept else (self._new(job), 1)
            with self._run.read_journal() as journal:
                n_written = journal.last_sequence
                for number, message in read_about(journal, [job], sequence):
                    fold.take(message)
                    sequence = number + 1
            # The messages about other jobs are not looked through again either.
            self._kept[job] = fold, max(sequence, n_written + 1)
            if len(self._kept) > _N_KEPT:
                del self._kept[next(iter(self._kept))]
            yield fold
