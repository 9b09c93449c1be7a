"""What one process of a job holds: its quota, and the workers that the quota is for."""

import math
from contextlib import suppress
from dataclasses import replace

from punctual.core.control import PacingLine
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.workers import n_workers_in


class JobGrant:
    """Puts grants in force for one process, whose group there must be.

    Parameters
    ----------
    amount
        What the process was started with.
    """

    def __init__(self, spec: JobSpec, process: JobProcess, amount: Resources) -> None:
        assert process.group is not None
        self._spec = spec
        self._group = process.group
        self._progress = process.progress
        self._workers = process.workers
        self._amount = amount
        self._cores = process.first_cores

    @classmethod
    def adopted(cls, spec: JobSpec, process: JobProcess, amount: Resources) -> "JobGrant":
        """What an adopted process holds. Its quota was lifted while it was unsteered, but it has as many workers as before."""
        grant, workers = cls(spec, process, amount), process.workers
        if workers is not None and spec.worker is not None:
            grant._amount = spec.worker * max(1, workers.status.n_workers or workers.n_target)
            grant._cores = grant._amount.cores
        return grant

    @property
    def held(self) -> Resources:
        """What the process holds, as last read back."""
        return replace(self._amount, cores=self._cores)

    def put(self, amount: Resources, line: PacingLine | None) -> bool:
        """Put `amount` and the pacing line in force; raises `OSError`.

        Returns
        -------
        bool
            False: its workers take a while, and `settle` tells when they are there.
        """
        self._amount = amount
        is_settled = self._set_worker_target()
        # Newcomers need theirs before they come, and those that leave theirs until they have.
        self._cores = self._group.grant(amount.cores if is_settled else max(amount.cores, self._cores))
        self._progress.pace(line)
        self._progress.heartbeat()
        return is_settled

    def settle(self, *, is_ending: bool) -> str | None:
        """See whether the workers wanted are there, and bring the quota to what they may use; raises `OSError`.

        Parameters
        ----------
        is_ending
            The process was asked to end, and its quota stays lifted.

        Returns
        -------
        str or None
            Empty: they are there; None: not yet; otherwise why they cannot be.
        """
        answer = self._workers.answer() if self._workers is not None else None
        if answer is None:
            return None
        if answer.cause and self._spec.worker is not None:
            self._amount = self._spec.worker * max(1, answer.n_workers)
        if not is_ending:
            self._cores = self._group.grant(self._amount.cores)
        return answer.cause

    def restore(self) -> None:
        """Put in force again what was lifted while nobody steered the job."""
        with suppress(OSError):
            self._cores = self._group.grant(self._cores)

    def lift(self) -> None:
        """Let the process have all the cores there are, so that its end comes soon."""
        with suppress(OSError):
            self._cores = self._group.grant(math.inf)

    def _set_worker_target(self) -> bool:
        """Have the agent bring about the workers granted; whether they are there already."""
        if self._workers is None:
            return True
        n_workers = n_workers_in(self._spec, self._amount)
        answer = self._workers.answer()
        if n_workers == self._workers.n_target and (answer is None or not answer.cause):
            return answer is not None
        self._workers.set_target(n_workers)
        return False
