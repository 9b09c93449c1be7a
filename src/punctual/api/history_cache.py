"""Cache of jobs' histories."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from punctual.api.history_response import N_POINTS_MAX
from punctual.core.ids import JobId
from punctual.daemon.run_folder import RunFolder
from punctual.history.job import JobHistory

#: Steps of the decision trace that can be asked for.
N_STEPS_MAX = 10_000


class HistoryCache:
    """Histories of some jobs of a run; only new messages of the journal are read. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = Lock()
        #: History, and number of the first message that was not read for it; the one asked for last is the last.
        self._kept: dict[JobId, tuple[JobHistory, int]] = {}

    @contextmanager
    def of(self, job: JobId) -> Iterator[JobHistory]:
        """Yield the job's history, up to the end of the journal; no other thread has it before the block ends.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            with self._run.read_journal() as journal:
                begun = self._kept.pop(job, None)
                history, sequence = begun or (JobHistory(job), journal.period_of(job)[0])
                n_written = journal.last_sequence
                for number, message in journal.read_of([job], sequence):
                    history.take(message)
                    sequence = number + 1
            if history.curves is not None:
                history.curves.thin(N_POINTS_MAX, N_STEPS_MAX)
            # The messages about other jobs are not looked through again either.
            self._kept[job] = history, max(sequence, n_written + 1)
            # Histories that are kept, the last ones requested.
            if len(self._kept) > 32:
                del self._kept[next(iter(self._kept))]
            yield history
