"""A training under an agent, whose number of workers is set through its page, as a host does it."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _processes import PATIENCE_S, wait_until, workers_of

from punctual.channel import BLOCK_VARIABLE, SharedBlock, WorkerStatus, WorkerTarget

#: Steps between two changes.
N_STEPS_BETWEEN = 6


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a program with one thread a worker, outside of a job unless `more` says of which."""
    inherited = {name: value for name, value in os.environ.items() if name != BLOCK_VARIABLE}
    return {**inherited, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **more}


class Agent:
    """The process of an elastic training, and Punctual's side of its page.

    Parameters
    ----------
    path
        File of the page, which is made.
    target
        Fields of each target beside the number of workers.
    variables, popen
        Further variables of the process, and arguments of `Popen`.
    """

    def __init__(
        self, path: Path, command: Sequence[str], n_workers: int = 1, *, target: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None, **popen: Any,
    ) -> None:  # fmt: skip
        self.page, self._target, self.n_targets = SharedBlock.create(str(path)), target or {}, 0
        self.send_target(n_workers)
        own = environment(**{BLOCK_VARIABLE: str(path)}, **(variables or {}))
        self.process: subprocess.Popen[Any] = subprocess.Popen(command, env=own, **popen)

    def send_target(self, n_workers: int) -> None:
        """Ask for another number of workers."""
        self.n_targets += 1
        self.page.send_worker_target(WorkerTarget(self.n_targets, n_workers, **self._target))

    def await_answer(self, holds: Callable[[WorkerStatus], object] = lambda _: True) -> WorkerStatus:
        """Wait until the last target is answered by a status of which `holds` is true too; return it."""

        def is_answered() -> bool:
            status = self.page.worker_status()
            return status.request == self.n_targets and bool(holds(status))

        if not wait_until(lambda: is_answered() or self.process.poll() is not None):
            raise TimeoutError(f"the target was not answered: {self.page.worker_status()}")
        if self.process.poll() is not None:
            raise RuntimeError(f"the training has ended with {self.process.returncode}")
        return self.page.worker_status()

    def resize(self, n_workers: int) -> WorkerStatus:
        """Change the number of workers; return the status once training has stood still for it and goes on."""
        before_ns = self.page.worker_status().last_stop_ns
        self.send_target(n_workers)
        return self.await_answer(lambda status: status.last_stop_ns != before_ns)

    def train_on(self, n_steps: int = N_STEPS_BETWEEN) -> float:
        """Wait for so many steps more; return when they were done, by the monotonic clock."""
        goal = self.page.progress().n_steps + n_steps
        if not wait_until(lambda: self.page.progress().n_steps >= goal, PATIENCE_S, 0.002):
            raise TimeoutError("the training does not go on")
        return time.monotonic()

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        return workers_of(self.process.pid)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self.page.close()
