"""Status of the agent for Punctual, with the costs of its changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from punctual.channel import WorkerStatus


class ElasticStats:
    """Keeps the published status up to date. `agent_pid`: the process that looks after the status."""

    def __init__(self, publish: Callable[[WorkerStatus], None], agent_pid: int) -> None:
        self._publish = publish
        self._status = WorkerStatus()
        #: Steps done when training last stopped, and when the last of them was; 1 if another one had been begun.
        self._n_steps = 0
        self._stopped_ns = 0
        self._n_in_flight = 0
        self._awaits_step = False
        self._change(agent_pid=agent_pid)

    @property
    def request(self) -> int:
        """Number of the last target that was answered."""
        return self._status.request

    def answer(self, request: int, cause: str = "") -> None:
        """Answer the target: fulfilled, or given up for `cause`."""
        self._change(request=request, cause=cause)

    def lose(self, *, serves: bool) -> None:
        """Note the end of a member, a worker or a parameter server."""
        kind = "n_servers" if serves else "n_workers"
        self._change(**{kind: getattr(self._status, kind) - 1}, n_workers_lost=self._status.n_workers_lost + 1)

    def form(
        self,
        generation: int,
        n_workers: int,
        n_servers: int = 0,
        devices: tuple[int, ...] = (),
        *,
        resizes: bool,
        after_fault: bool,
    ) -> None:
        """Note the start of a generation; `resizes`: the target's change made it larger or smaller."""
        self._n_in_flight = int(after_fault)
        self._awaits_step = True
        n_resizes = self._status.n_resizes + resizes
        self._change(
            generation=generation, n_workers=n_workers, n_servers=n_servers, devices=devices, n_resizes=n_resizes
        )

    def stop(self, n_steps: int, stepped_ns: int) -> None:
        """Note that a member has left its generation after `n_steps`, the last of them done at `stepped_ns`."""
        self._n_steps = max(self._n_steps, n_steps)
        self._stopped_ns = max(self._stopped_ns, stepped_ns)

    def resume(self, n_steps: int, stepped_ns: int) -> None:
        """Note the end of a generation's first step, and with it `n_steps`."""
        if not self._awaits_step:  # the other members say it too
            return
        self._awaits_step = False
        if not self._stopped_ns:
            return
        status, stop_ns = self._status, stepped_ns - self._stopped_ns
        n_redone = status.n_steps_redone + max(0, self._n_steps - (n_steps - 1)) + self._n_in_flight
        self._stopped_ns = self._n_in_flight = 0
        self._n_steps = n_steps
        longest_ns = max(status.longest_stop_ns, stop_ns)
        self._change(last_stop_ns=stop_ns, longest_stop_ns=longest_ns, n_steps_redone=n_redone)

    def leave(self) -> None:
        """Show that no worker trains any more."""
        self._change(n_workers=0, n_servers=0, devices=())

    def _change(self, **facts: Any) -> None:
        before, self._status = self._status, replace(self._status, **facts)
        if self._status != before:
            self._publish(self._status)
