"""Grant of one process of a job: its quota and workers, or nothing while it is paused."""

import math
import time
from contextlib import suppress
from dataclasses import replace

from punctual.core.control import PacingLine
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.executors.local.devices import NoDeviceError
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.workers import parts_in

#: Seconds until all processes of a job stand still, at most.
_FREEZE_S_MAX = 10.0


class JobGrant:
    """Enforces grants on one process whose group exists. `amount`: resources with which the process was started."""

    def __init__(self, spec: JobSpec, process: JobProcess, amount: Resources) -> None:
        assert process.group is not None
        self._spec = spec
        self._group = process.group
        self._progress = process.progress
        self._workers = process.workers
        self._devices = process.devices
        self._amount = amount
        self._cores = process.first_cores
        #: Whether the process stands still, or is about to; and whether it does.
        self.is_paused = self._stands_still = False
        self._give_up_at = math.inf

    @classmethod
    def adopted(cls, spec: JobSpec, process: JobProcess, amount: Resources) -> "JobGrant":
        """Restore the grant of an adopted process; raises `OSError`.

        Its quota was lifted while it was unsteered, but it has as many workers as before. A paused process is still
        paused.
        """
        grant, workers = cls(spec, process, amount), process.workers
        if workers is not None and spec.unit is not None:
            grant._amount = grant._of_workers(workers.status.n_workers or workers.n_target)
            grant._cores = grant._amount.cores
        if grant._group.freezer.was_frozen():
            grant.is_paused = grant._stands_still = True
            grant._cores = 0.0
        return grant

    @property
    def held(self) -> Resources:
        """Resources that the process holds, as last read back; a paused process keeps its devices and the memory that it uses."""
        return replace(self._amount, cores=self._cores, memory_bytes=0 if self.is_paused else self._amount.memory_bytes)

    def put(self, amount: Resources, line: PacingLine | None, *, spans_nodes: bool = False) -> bool:
        """Enforce `amount` and the pacing line, or pause the process if the amount is empty.

        `spans_nodes`: the job holds something on other nodes too.

        Returns False if that takes a while; `settle` tells when it is done.

        * Raises `OSError`: the group refused it.
        * Raises `NoDeviceError`: there are too few devices, or the process cannot be told to use them.
        """
        if not amount:
            return self._pause()
        self._check_devices(amount)
        self._amount = amount
        is_settled = self._set_worker_target(anew=self.is_paused, spans_nodes=spans_nodes)
        # Newcomers need theirs before they come, and those that leave theirs until they have.
        self._cores = self._group.grant(amount.cores if is_settled else max(amount.cores, self._cores))
        self._progress.pace(line)
        self._progress.heartbeat()  # before the process goes on: an old one would let it leave a wait
        self._resume()
        return is_settled

    def settle(self, *, is_ending: bool) -> str | None:
        """Check whether the amount is in force, and set the quota for the workers that train; raises `OSError`.

        `is_ending`: the process was asked to end, and its quota stays lifted.

        Returns an empty text if it is in force, None if not yet, otherwise the reason why it cannot be.
        """
        if self.is_paused:
            return self._settle_pause()
        answer = self._workers.answer() if self._workers is not None else None
        if answer is None:
            return None
        if answer.cause and self._spec.unit is not None:
            self._amount = self._of_workers(answer.n_workers)
        self._devices.shrink(self._amount.gpus, self._workers.status.devices if self._workers else ())
        if not is_ending:
            self._cores = self._group.grant(self._amount.cores)
        return answer.cause

    def restore(self) -> None:
        """Enforce the grant again that was lifted while no process steered the job."""
        with suppress(OSError):
            if self.is_paused:
                self._group.freezer.freeze()
            else:
                self._cores = self._group.grant(self._cores)

    def lift(self) -> None:
        """Resume the process with all cores, so that its end comes soon."""
        with suppress(OSError):
            self._cores = self._group.grant(math.inf)
            self._resume()

    def _of_workers(self, n_workers: int) -> Resources:
        """Return the resources of `n_workers` workers, a number from the page, within the allowed range."""
        assert self._spec.unit is not None
        return self._spec.unit * min(max(1, n_workers), self._spec.worker_counts()[-1])

    def _pause(self) -> bool:
        if not self.is_paused:
            self._group.freezer.freeze()
            self.is_paused, self._give_up_at = True, time.monotonic() + _FREEZE_S_MAX
        return self._settle_pause() == ""

    def _settle_pause(self) -> str | None:
        if self._stands_still or self._group.freezer.is_frozen():
            self._stands_still, self._cores = True, 0.0
            return ""
        if time.monotonic() < self._give_up_at:
            return None
        self._resume()
        return f"its processes could not be paused within {span(_FREEZE_S_MAX)}"

    def _resume(self) -> None:
        if self.is_paused:
            self._group.freezer.thaw()
            self.is_paused = self._stands_still = False

    def _set_worker_target(self, *, anew: bool, spans_nodes: bool) -> bool:
        """Set the agent's target to the workers granted; return whether they train already.

        `anew`: a target that has no answer yet gets as much time as a new one.
        """
        if self._workers is None:
            return True
        n_workers, n_servers = parts_in(self._spec, self._amount)
        answer = self._workers.answer()
        is_same = (n_workers, spans_nodes) == (self._workers.n_target, self._workers.spans_nodes)
        if is_same and not (anew if answer is None else answer.cause):
            return answer is not None
        self._workers.set_target(n_workers, n_servers, self._devices.indices, spans_nodes=spans_nodes)
        return False

    def _check_devices(self, amount: Resources) -> None:
        """Assign enough devices for `amount`; new workers learn theirs when they start."""
        if self._devices.shown is None:
            return
        if self._workers is not None:
            self._devices.grow(amount.gpus)
        elif amount.gpus != self._amount.gpus:
            raise NoDeviceError(f"a program keeps the {self._amount.gpus:g} GPUs that it was started with")
