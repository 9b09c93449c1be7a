"""A parameter server: keeps slices of the parameters and of the optimizer's state, and steps with what workers push.

A server is a process of an elastic training like a worker: forked, brought into generations and let go by the agent, which
also makes the sockets between each worker and each server. Nobody else can connect, so nobody has to say who it is. Between two
generations a server keeps nothing: the first worker takes the state back and hands it to the servers that come next.

=========== =========================== =========================================================================
from        message                     answer
=========== =========================== =========================================================================
first       `Hello`, once               none
any worker  `Push`, then the gradients  `ServerAnswer`, then the parameters, after the step
first       `Ask` for the state         `ServerAnswer`, then the parameters; if it leaves, when all others have left
any other   `Ask`, which leaves         none
=========== =========================== =========================================================================

Messages are pickled plainly: torch would send handles of memory that goes with its process.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from punctual.elastic_training._memory import memory_of
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.servers.slices import SliceState


@dataclass(frozen=True, slots=True)
class Hello:
    """First message to a server.

    * `parameters`: the server's slices, one after the other; shape (elements,).
    * `groups`: groups of the optimizer: for each slice its length and the number of its parameter, and the settings for
      them.
    * `states`: state of the optimizer for each slice; none: it is new.
    * `is_synchronous`: step when all workers that are still there have pushed, with the sum of their gradients;
      otherwise with each push.
    """

    optimizer: Callable[[list[dict[str, Any]]], Optimizer]
    groups: list[tuple[list[tuple[int, int]], dict[str, Any]]]
    parameters: Tensor
    states: list[SliceState]
    is_synchronous: bool


@dataclass(frozen=True, slots=True)
class Push:
    """Announces gradients.

    * `version`: version of the parameters from which the gradients were computed.
    * `notes`: numbers that are summed up like gradients.
    * `had`: whether there is a gradient, for each parameter of the model. One without any gradient is left alone.
    * `exit_code`: exit code with which Punctual wants the processes to end; 0: none, or unknown to this worker.
    * `settings`: the optimizer's, for each group, if they have changed.
    """

    version: int
    notes: Sequence[float]
    had: Sequence[bool]
    exit_code: int = 0
    settings: Sequence[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks for the server's state, or tells that the worker pushes no more; both: the state once all others have left."""

    wants_state: bool = False
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Announces parameters of this version.

    * `notes`, `exit_code`: sums of a step's.
    * `states`: state of the optimizer for each slice, if it was asked for.
    """

    version: int
    notes: Sequence[float] = ()
    exit_code: int = 0
    states: Sequence[SliceState] = ()


def send(connection: Connection, message: object, content: Tensor | None = None) -> None:
    connection.send_bytes(pickle.dumps(message))
    if content is not None:
        connection.send_bytes(memory_of(content))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())  # noqa: S301 -- only processes of this training have the other end


def serve(agent: SocketAgentClient) -> None:
    """Run a server in one generation after the other, until the agent dismisses this process."""
    torch.set_num_threads(1)  # a step is short, and threads that wait for each other take the workers' processor
    after_fault = False
    with agent.excused():  # it works when workers have something for it
        while (membership := agent.join(n_steps=0, after_fault=after_fault)) is not None:
            try:
                SliceServer(membership.peers).run()
                after_fault = False
            except (EOFError, OSError):
                after_fault = True
            finally:
                for connection in membership.peers:
                    connection.close()


@dataclass(slots=True)
class _WorkerLink:
    connection: Connection
    gradient: Tensor
    push: Push | None = None  # what it has pushed for the step under way
    exit_code: int = 0  # what it has not been told yet


class SliceServer:
    """Serves the workers of one generation, given the connections to them by rank."""

    def __init__(self, peers: Sequence[Connection]) -> None:
        hello: Hello = receive(peers[0])
        self._is_synchronous = hello.is_synchronous
        self._version = 0
        self._flat = hello.parameters
        self._gradient = torch.empty_like(self._flat)
        #: Each slice with its gradient and the number of its parameter.
        self._slices: list[tuple[Tensor, Tensor, int]] = []
        self._optimizer = hello.optimizer([self._group(*group) for group in hello.groups])
        for (part, _, _), state in zip(self._slices, hello.states, strict=False):
            self._optimizer.state[part] = state
        self._workers = {peer: _WorkerLink(peer, torch.empty_like(self._flat)) for peer in peers}

    def _group(self, sizes: Sequence[tuple[int, int]], settings: dict[str, Any]) -> dict[str, Any]:
        """Return a group of the optimizer: slices of the parameters, from where the last group's end."""
        params = []
        for size, i_parameter in sizes:
            start = sum(len(part) for part, _, _ in self._slices)
            params.append(self._flat[start : start + size])
            self._slices.append((params[-1], self._gradient[start : start + size], i_parameter))
        return {"params": params, **settings}

    def run(self) -> None:
        """Return when all workers have left. Raises `EOFError`, `OSError`: a worker was lost."""
        last: Connection | None = None
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                match receive(connection):
                    case Push() as push:
                        self._take(self._workers[connection], push)
                    case Ask(leaves=True, wants_state=wants_state):
                        del self._workers[connection]
                        last = connection if wants_state else last
                    case Ask():
                        self._send_state(connection)
            self._step()
        if last is not None:
            self._send_state(last)

    def _take(self, worker: _WorkerLink, push: Push) -> None:
        worker.connection.recv_bytes_into(memory_of(worker.gradient))
        worker.push = push
        for group, settings in zip(self._optimizer.param_groups, push.settings or (), strict=False):
            group.update(settings)
        if push.exit_code:
            for other in self._workers.values():
                other.exit_code = push.exit_code

    def _send_state(self, connection: Connection) -> None:
        states = [self._optimizer.state[part] for part, _, _ in self._slices]
        send(connection, ServerAnswer(self._version, states=states), self._flat)

    def _step(self) -> None:
        """Step and answer, if enough workers have pushed."""
        pushed = [worker for worker in self._workers.values() if worker.push is not None]
        if self._is_synchronous:
            if pushed and len(pushed) == len(self._workers):
                self._step_with(pushed)
        else:
            for worker in pushed:
                self._step_with([worker])

    def _step_with(self, pushed: Sequence[_WorkerLink]) -> None:
        """Step with the gradients added up in the order of ranks: the sum does not depend on their order of arrival."""
        self._gradient.copy_(pushed[0].gradient)
        for worker in pushed[1:]:
            self._gradient.add_(worker.gradient)
        pushes = [worker.push for worker in pushed if worker.push is not None]
        notes = [sum(column) for column in zip(*(push.notes for push in pushes), strict=True)]
        had = [any(column) for column in zip(*(push.had for push in pushes), strict=True)]
        for part, gradient, i_parameter in self._slices:
            part.grad = gradient if had[i_parameter] else None
        self._optimizer.step()
        self._version += 1
        for worker in pushed:
            send(worker.connection, ServerAnswer(self._version, notes, worker.exit_code), self._flat)
            worker.push, worker.exit_code = None, 0
