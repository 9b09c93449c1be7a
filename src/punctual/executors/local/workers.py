"""How many workers a job is to have and has: the executor's side of the agent, which has them in the job's process."""

import time
from dataclasses import dataclass
from math import ceil

from punctual.channel import Page, ProgramState, WorkerStatus, WorkerTarget
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec, shape_of
from punctual.core.resources import Resources

#: How long a change may take: newcomers load the data and build the model before they count.
_CHANGE_S_MAX = 120.0
#: Where the workers are does not change how many they are.
_ANYWHERE = NodeId("")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a target: fulfilled, or why not; and the workers that there are."""

    n_workers: int
    cause: str = ""


class Workers:
    """Worker targets and answers of one job.

    Parameters
    ----------
    worker
        What one of them holds.
    """

    def __init__(self, page: Page, worker: Resources) -> None:
        self._page = page
        self._worker = worker
        target = page.worker_target()
        self.n_target, self.spans_nodes = target.n_workers, target.spans_nodes
        self._request = max(target.request, page.worker_status().request)
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX

    @property
    def devices(self) -> tuple[int, ...]:
        """Which of the devices that the job is shown its workers use, or may use."""
        return tuple(sorted({*self._page.worker_target().devices, *self._page.worker_status().devices}))

    @property
    def status(self) -> WorkerStatus:
        """What the agent last told of them."""
        return self._page.worker_status()

    @property
    def group(self) -> tuple[int, bytes] | None:
        """At which port processes of the job on other nodes find it, and the key that they need; None: it has none."""
        return self._page.group()

    def set_target(
        self, n_workers: int, n_servers: int = 0, devices: tuple[int, ...] = (), *, spans_nodes: bool = False
    ) -> None:
        """Have the agent bring about so many workers and parameter servers on this node; returns at once.

        Parameters
        ----------
        devices
            Which of those that the job is shown they may use; empty: all.
        spans_nodes
            Whether the job has others on other nodes.
        """
        self._request += 1
        self.n_target, self.spans_nodes = n_workers, spans_nodes
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX
        target = WorkerTarget(self._request, n_workers, ceil(self._worker.gpus), n_servers, devices, spans_nodes)
        self._page.send_worker_target(target)

    def answer(self) -> Answer | None:
        """The answer to the last target; None: it is not there yet.

        A program that trains without an agent has no workers: what they would hold is its own, and the client has told
        its user so.
        """
        status = self._page.worker_status()
        if status.agent_pid == 0:
            return Answer(self.n_target) if self._page.declaration().state != ProgramState.STARTING else None
        if status.request == self._request:
            return Answer(status.n_workers, status.cause)
        if time.monotonic() < self._give_up_at:
            return None
        return Answer(status.n_workers or self.n_target, f"its workers were not ready within {_CHANGE_S_MAX:g} s")


def parts_in(spec: JobSpec, amount: Resources) -> tuple[int, int]:
    """How many workers, at least one, and parameter servers `amount` holds, of a job that is made of them."""
    shape = shape_of(spec, {_ANYWHERE: amount}, {})
    return max(1, shape.n_workers), shape.n_servers
