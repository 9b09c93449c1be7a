"""Cores of each job over time, read from the journal as it grows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from punctual.core.commands import RejectJob
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    NodeLost,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.protocols import Message
from punctual.core.resources import total
from punctual.daemon.run_folder import RunFolder
from punctual.journal.sqlite import About

FloatArray = NDArray[np.float64]

_HOLDING = (JobStarted, GrantApplied, GrantFailed)
_ENDING = (JobFinished, JobFailed, RejectJob)
_ABOUT = About(kinds=tuple(kind.__name__ for kind in (*_HOLDING, *_ENDING, NodeLost, SteeringResumed)))
#: Changes that are kept: of idle jobs those that changed last, of others the last changes.
_N_CHANGES_MAX = 100_000


@dataclass(slots=True)
class _Held:
    """Changes of one job: instants on the clock of messages, ascending, and the cores held from each on."""

    since_at: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    #: Allocation now.
    granted: Allocation = field(default_factory=dict)

    def take(self, at: float, granted: Allocation) -> bool:
        """Note the allocation from `at` on; return whether the cores have changed."""
        self.granted, cores = granted, total(granted.values()).cores
        if (self.cores[-1] if self.cores else 0.0) == cores:
            return False
        self.since_at.append(at)
        self.cores.append(cores)
        return True

    def halve(self) -> int:
        """Drop the older half of the changes; return their number."""
        n_forgotten = len(self.cores) // 2
        del self.since_at[:n_forgotten], self.cores[:n_forgotten]
        return n_forgotten

    def means(self, edges_at: FloatArray) -> FloatArray:
        """Mean cores between neighbouring edges, ascending instants."""
        since_at = np.append(self.since_at, max(edges_at[-1], self.since_at[-1]))
        core_s = np.append(0.0, np.cumsum(np.diff(since_at) * self.cores))
        return np.diff(np.interp(edges_at, since_at, core_s)) / np.diff(edges_at)


class BudgetCache:
    """Cores that the jobs of a run held over time; only new messages of the journal are read. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = Lock()
        self._sequence, self._n_changes = 1, 0
        #: Changes by job, ordered by the last change.
        self._held: dict[JobId, _Held] = {}

    def means(self, edges_at: FloatArray) -> Mapping[JobId, FloatArray]:
        """Return the mean cores of each job between neighbouring edges, if above zero, in order of their first grants.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            self._read()
            held = sorted(self._held.items(), key=lambda entry: entry[1].since_at[0])
            means = {job: changes.means(edges_at) for job, changes in held if self._is_between(changes, edges_at)}
        return {job: cores for job, cores in means.items() if cores.any()}

    @staticmethod
    def _is_between(changes: _Held, edges_at: FloatArray) -> bool:
        has_ended = changes.cores[-1] == 0.0 and changes.since_at[-1] <= edges_at[0]
        return not has_ended and changes.since_at[0] < edges_at[-1]

    def _read(self) -> None:
        with self._run.read_journal() as journal:
            n_written = journal.last_sequence
            for number, message in journal.read_from(self._sequence, _ABOUT):
                self._take(message)
                self._sequence = number + 1
            # The messages that are not about amounts held are not looked through again either.
            self._sequence = max(self._sequence, n_written + 1)

    def _take(self, message: Message) -> None:
        if isinstance(message, _HOLDING):
            self._hold(message.job, message.at, message.granted)
        elif isinstance(message, _ENDING):
            self._hold(message.job, message.at, {})
        elif isinstance(message, NodeLost):
            for job, changes in list(self._held.items()):
                if message.node in changes.granted:
                    left = {node: amount for node, amount in changes.granted.items() if node != message.node}
                    self._hold(job, message.at, left)
        elif isinstance(message, SteeringResumed):
            for job in {**self._held, **message.granted}:
                self._hold(job, message.lost_at, message.granted.get(job, {}))

    def _hold(self, job: JobId, at: float, granted: Allocation) -> None:
        changes = self._held.get(job) or _Held()
        if changes.take(at, granted):
            self._n_changes += 1
            self._held.pop(job, None)
            self._held[job] = changes
            self._make_room(job)

    def _make_room(self, last: JobId) -> None:
        """Drop jobs, but for `last`, that hold nothing any more, or else older changes of one, until there is room."""
        while self._n_changes > _N_CHANGES_MAX:
            idle = next((job for job, changes in self._held.items() if job != last and not changes.granted), None)
            if idle is not None:
                self._n_changes -= len(self._held.pop(idle).cores)
            elif not (n_forgotten := max(self._held.values(), key=lambda changes: len(changes.cores)).halve()):
                return
            else:
                self._n_changes -= n_forgotten
