"""Workers of a job: the executor's side of the agent, which runs them in the job's process."""

import time
from dataclasses import dataclass
from math import ceil

from punctual.channel import ProgramState, SharedBlock, WorkerStatus, WorkerTarget
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec, shape_of
from punctual.core.resources import Resources
from punctual.core.units import span

#: Seconds that a change may take: new workers load the data and build the model before they count.
_CHANGE_S_MAX = 120.0
#: Any node: the workers' number does not depend on their place.
_ANYWHERE = NodeId("")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a target: fulfilled, or the cause why not; and the present number of workers."""

    n_workers: int
    cause: str = ""


class Workers:
    """Worker targets and answers of one job. `worker`: resources of one worker."""

    def __init__(self, page: SharedBlock, worker: Resources) -> None:
        self._page = page
        self._worker = worker
        target = page.worker_target()
        self.n_target, self.spans_nodes = target.n_workers, target.spans_nodes
        self._request = max(target.request, page.worker_status().request)
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX

    @property
    def devices(self) -> tuple[int, ...]:
        """Indices, among the devices that the job is shown, of those that its workers use or may use."""
        return tuple(sorted({*self._page.worker_target().devices, *self._page.worker_status().devices}))

    @property
    def status(self) -> WorkerStatus:
        """Status of the workers as last reported by the agent."""
        return self._page.worker_status()

    @property
    def group(self) -> tuple[str, int, str] | None:
        """Address (empty), port and key with which processes of the job on other nodes reach it; None: it has none."""
        group = self._page.group()
        return None if group is None else ("", group[0], group[1].hex())

    def set_target(
        self, n_workers: int, n_servers: int = 0, devices: tuple[int, ...] = (), *, spans_nodes: bool = False
    ) -> None:
        """Set the agent's target of workers and parameter servers on this node; returns at once.

        * `devices`: indices, among the devices that the job is shown, of those that workers may use; empty: all.
        * `spans_nodes`: whether the job has others on other nodes.
        """
        self._request += 1
        self.n_target, self.spans_nodes = n_workers, spans_nodes
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX
        target = WorkerTarget(self._request, n_workers, ceil(self._worker.gpus), n_servers, devices, spans_nodes)
        self._page.send_worker_target(target)

    def answer(self) -> Answer | None:
        """Return the answer to the last target; None: it has not come yet.

        A program that trains without an agent has no workers: what they would hold is its own, and tracking has told
        its user so.
        """
        status = self._page.worker_status()
        if status.agent_pid == 0:
            return Answer(self.n_target) if self._page.declaration().state != ProgramState.STARTING else None
        if status.request == self._request:
            return Answer(status.n_workers, status.cause)
        if time.monotonic() < self._give_up_at:
            return None
        return Answer(status.n_workers or self.n_target, f"its workers were not ready within {span(_CHANGE_S_MAX)}")


def parts_in(spec: JobSpec, amount: Resources) -> tuple[int, int]:
    """Return the workers (at least one) and parameter servers that fit in `amount`."""
    shape = shape_of(spec, {_ANYWHERE: amount}, {})
    return max(1, shape.n_workers), shape.n_servers
