"""Cores and dollars of each job over time, read from the journal as it grows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from punctual.core.bill import Bill
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING
from punctual.daemon.run_folder import RunFolder
from punctual.history.cluster import ClusterHistory
from punctual.history.costs import CostHistory
from punctual.history.job import GrantChange
from punctual.journal.sqlite import About

FloatArray = NDArray[np.float64]

#: Kinds of messages that say which job holds what, and what that costs.
_ABOUT = About(kinds=tuple(kind.__name__ for kind in Bill.FOLDS))
#: Changes that are kept: of ended jobs those of the last ones, of others the last changes.
_N_CHANGES_MAX = 100_000


class BudgetCache:
    """Cores that the jobs of a run held over time, and their cost; only new messages of the journal are read. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = Lock()
        self._sequence = 1
        self._history, self._costs = ClusterHistory(curves=True), CostHistory()

    def means(self, edges_at: FloatArray, node: NodeId | None = None) -> Mapping[JobId, FloatArray]:
        """Return the mean cores of each job between neighbouring edges, if above zero, in order of their first grants.

        Raises `InvalidSpec` where the journal cannot be read.

        `node`: only what they held there. None: on all nodes.
        """
        with self._lock:
            self._read()
            changed = [(job, changes) for job, changes in self._changes().items() if changes]
            held = sorted(changed, key=lambda pair: pair[1][0].at)
            means = {job: _means(changes, edges_at, node) for job, changes in held if _is_between(changes, edges_at)}
        return {job: cores for job, cores in means.items() if cores.any()}

    @contextmanager
    def costs(self, at: float) -> Iterator[CostHistory]:
        """Yield the costs up to instant `at`; no other thread has them before the block ends.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            self._read()
            self._costs.settle(at)
            yield self._costs

    def _changes(self) -> dict[JobId, list[GrantChange]]:
        histories = self._history.histories.values()
        return {history.id: history.curves.grants for history in histories if history.curves is not None}

    def _read(self) -> None:
        with self._run.read_journal() as journal:
            n_written = journal.last_sequence
            self._sequence = max(self._sequence, journal.begun_after + 1)
            for number, message in journal.read_from(self._sequence, _ABOUT):
                self._history.add(message)
                self._costs.add(message)
                self._sequence = number + 1
            # The messages that are not about amounts held are not looked through again either.
            self._sequence = max(self._sequence, n_written + 1)
        self._make_room()

    def _make_room(self) -> None:
        """Drop the jobs that ended first, and then the older changes of those with most, until there is room."""
        changes = self._changes()
        n_over = sum(map(len, changes.values())) - _N_CHANGES_MAX
        for job in list(changes) if n_over > 0 else ():
            if n_over > 0 and not self._history.histories[job].is_open:
                n_over -= len(changes.pop(job))
                del self._history.histories[job]
        while n_over > 0 and changes:
            longest = max(changes.values(), key=len)
            n_over -= len(longest) // 2
            del longest[: len(longest) // 2]
            if len(longest) < 2:
                return


def _is_between(changes: Sequence[GrantChange], edges_at: FloatArray) -> bool:
    has_ended = changes[-1].cores == 0.0 and changes[-1].at <= edges_at[0]
    return not has_ended and changes[0].at < edges_at[-1]


def _means(changes: Sequence[GrantChange], edges_at: FloatArray, node: NodeId | None) -> FloatArray:
    """Mean cores between neighbouring edges, ascending instants."""
    held = [change.cores if node is None else change.granted.get(node, NOTHING).cores for change in changes]
    since_at = np.array([*(change.at for change in changes), max(edges_at[-1], changes[-1].at)])
    core_s = np.append(0.0, np.cumsum(np.diff(since_at) * held))
    return np.diff(np.interp(edges_at, since_at, core_s)) / np.diff(edges_at)
