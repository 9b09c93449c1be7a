"""A worker's side of parameter servers: gradients are sent to them, and updated parameters come back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from punctual.elastic_training._memory import memory_of
from punctual.elastic_training.arguments import params_of
from punctual.elastic_training.collectives import GroupFault
from punctual.elastic_training.reduction import Reduction
from punctual.elastic_training.servers.parameter_server import Ask, Hello, Push, ServerAnswer, receive, send
from punctual.elastic_training.servers.slices import Slice, cut_out, put_in, shared_out
from punctual.tracking.complaint import invalid


@dataclass(slots=True)
class _ServerLink:
    """A server as a worker sees it; `flat` holds its slices of the worker's parameters, one after the other."""

    connection: Connection
    slices: Sequence[Slice]
    flat: Tensor
    version: int = 0

    def gather(self, tensors: Sequence[Tensor]) -> Tensor:
        """Copy the server's slices of `tensors` into `flat`."""
        parts = [tensors[one.i_parameter].reshape(-1)[one.start : one.end] for one in self.slices]
        return torch.cat(parts, out=self.flat) if parts else self.flat

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Copy received parameters into `tensors`, which are contiguous."""
        end = 0
        for one in self.slices:
            start, end = end, end + one.n_elements
            tensors[one.i_parameter].view(-1)[one.start : one.end].copy_(self.flat[start:end])

    def receive(self) -> ServerAnswer:
        """Receive an answer, and parameters into `flat`."""
        answer: ServerAnswer = receive(self.connection)
        self.connection.recv_bytes_into(memory_of(self.flat))
        return answer


def only_optimizer(optimizers: Sequence[Optimizer], *, is_deterministic: bool) -> Optimizer:
    """Return the one optimizer of a training; raises `ValueError` if the training does not go with servers."""
    if is_deterministic:
        raise invalid(
            "`deterministic` must not go with parameter servers",
            "both",
            "`context.elastic`",
            "Leave out `deterministic=True`, or train without `--servers`.",
        )
    if len(optimizers) > 1:
        raise invalid(
            "a training with parameter servers must have one optimizer",
            f"{len(optimizers)}",
            "`context.elastic`",
            "Train without `--servers`, or make parameter groups of one optimizer.",
        )
    return optimizers[0]


class ServedSum(Reduction):
    """A sum whose servers also step. The first worker hands them the state, and takes it back at the end.

    * `optimizer`: each element must be stepped by itself; its settings must be what its constructor takes for a group.
    * `connections`: one connection to each server.

    * `staleness`: steps that others have made between the last gradient's parameters and its use; 0 when synchronous.
    * `exit_code`: exit code to send all workers with the next step; after it, the code that all have received.

    * Raises `ValueError`: the parameters are not all of one type, contiguous, and on the CPU.
    * Raises `GroupFault`: a server is gone.
    """

    def __init__(
        self, optimizer: Optimizer, connections: Sequence[Connection], *, is_first: bool, is_synchronous: bool
    ) -> None:
        self.staleness = 0
        self.exit_code = 0
        self._optimizer = optimizer
        super().__init__(params_of([optimizer]))
        _check(self._params)
        self._is_first, self._is_synchronous = is_first, is_synchronous
        self._settings = _settings(optimizer)
        shares = shared_out([param.numel() for param in self._params], len(connections))
        self._servers = [
            _ServerLink(
                connection, slices, torch.empty(sum(one.n_elements for one in slices), dtype=self._params[0].dtype)
            )
            for connection, slices in zip(connections, shares, strict=True)
        ]
        if is_first:
            with _server_faults():
                for server in self._servers:
                    send(server.connection, self._hello(server))
        optimizer.state.clear()  # it is the servers' from here on

    def _hello(self, server: _ServerLink) -> Hello:
        groups, first = [], 0
        for group, settings in zip(self._optimizer.param_groups, self._settings, strict=True):
            own = range(first, first := first + len(group["params"]))
            sizes = [(one.n_elements, one.i_parameter) for one in server.slices if one.i_parameter in own]
            groups.append((sizes, settings))
        states = cut_out(self._optimizer, self._params, server.slices)
        parameters = server.gather([param.detach() for param in self._params]).clone()
        return Hello(type(self._optimizer), groups, parameters, states, self._is_synchronous)

    def finish(self, notes: Sequence[float], share_frac: float) -> list[float]:
        """Let the servers step. If asynchronous, notes are the worker's own, and gradients a mean of its samples."""
        scale = 1.0 if self._is_synchronous else 1.0 / max(share_frac, 1e-12)
        own = [*notes, self._loss * scale]
        if not self._is_synchronous and not share_frac:  # no samples of its own: nothing to learn from
            return own
        had = [param.grad is not None for param in self._params]
        gradients = [torch.zeros_like(param) if param.grad is None else param.grad for param in self._params]
        settings = _settings(self._optimizer)
        changed = settings if self._is_first and settings != self._settings else None
        self._settings = settings
        with _server_faults():
            for server in self._servers:
                push = Push(server.version, own, had, self.exit_code, changed)
                send(server.connection, push, server.gather(gradients).mul_(scale))
            answers = self._answers()
        self.exit_code = max(answer.exit_code for answer in answers)
        self.forget()
        return list(answers[0].notes) if self._is_synchronous else own

    def _answers(self) -> list[ServerAnswer]:
        """Receive the servers' answers; parameters change only when all have come."""
        answers: list[ServerAnswer] = []
        self.staleness = 0
        for server, answer in self._received():
            self.staleness = max(self.staleness, answer.version - 1 - server.version)
            server.version = answer.version
            answers.append(answer)
        self._spread()
        return answers

    def _received(self) -> Iterator[tuple[_ServerLink, ServerAnswer]]:
        """Yield an answer of each server in order of arrival: an unread one would keep other workers waiting."""
        waiting = {server.connection: server for server in self._servers}
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                server = waiting.pop(connection)
                yield server, server.receive()

    @torch.no_grad()
    def _spread(self) -> None:
        for server in self._servers:
            server.spread(self._params)
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001 -- schedulers would warn otherwise

    def close(self) -> None:
        """Disconnect; the servers count the worker as lost if it has not left."""
        for server in self._servers:
            server.connection.close()

    # The state.

    def fetch_state(self, *, leaves: bool = False) -> bool:
        """Load the servers' state into optimizer and parameters; the first worker only. False: a server is gone.

        `leaves`: wait until all others have left, and push no more.
        """
        try:
            for server in self._servers:
                send(server.connection, Ask(wants_state=True, leaves=leaves))
            for server, kept in self._received():
                server.version = kept.version
                put_in(self._optimizer, self._params, server.slices, kept.states)
        except (EOFError, OSError):
            return False
        self._spread()
        return True

    def drop_state(self) -> None:
        """Drop the state that `fetch_state` has put into the optimizer: the servers go on with theirs."""
        self._optimizer.state.clear()

    def leave(self) -> bool:
        """Push no more; the first worker takes back the state. False: a server is gone."""
        if self._is_first:
            return self.fetch_state(leaves=True)
        try:
            for server in self._servers:
                send(server.connection, Ask(leaves=True))
        except OSError:
            return False
        return True


@contextmanager
def _server_faults() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise GroupFault(f"a parameter server is gone: {error}") from error


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _check(params: Sequence[Tensor]) -> None:
    kinds = sorted({f"{one.dtype} on {one.device.type}{'' if one.is_contiguous() else ', strided'}" for one in params})
    if len(kinds) != 1 or not kinds[0].endswith("on cpu"):
        raise invalid(
            "with parameter servers all parameters must be of one type, contiguous, and on the CPU",
            "; ".join(kinds) or "none",
            "the model",
            "Convert them, or train without `--servers`.",
        )
