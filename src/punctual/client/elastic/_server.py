"""A parameter server: keeps slices of the parameters and their optimizer's state, and steps with what workers push."""

import hmac
import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from punctual.client.elastic._frames import Channel, Gone, Head, Kind
from punctual.client.elastic._memory import memory_of
from punctual.client.elastic._server_state import SliceState

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Hello:
    """How a worker introduces itself. All tell the same, but only the first one's parameters count.

    Attributes
    ----------
    parameters
        The server's slices, one after the other.
    groups
        Of the optimizer: the slices' lengths, and the settings for them.
    states
        What the optimizer has kept for each slice in an earlier training; none: it is new.
    """

    rank: int
    optimizer: Callable[[list[dict[str, Any]]], Optimizer]
    groups: list[tuple[list[int], dict[str, Any]]]
    parameters: Tensor
    states: list[SliceState] = field(default_factory=list)


@dataclass(slots=True)
class _Worker:
    channel: Channel
    gradient: Tensor
    head: Head | None = None  # of what it has pushed for the step under way


@dataclass(slots=True)
class Server:
    """Serves the workers of one training until all have said goodbye.

    Parameters
    ----------
    is_synchronous
        Step when all workers that are still there have pushed, with the weighted mean of their gradients; otherwise
        with each push.
    """

    listener: socket.socket
    token: bytes
    n_workers: int
    is_synchronous: bool
    timeout_s: float
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _flat: Tensor = field(default_factory=lambda: torch.empty(0))
    _gradient: Tensor = field(default_factory=lambda: torch.empty(0))
    _optimizer: Optimizer | None = None
    _version: int = 0

    def serve(self) -> None:
        """Return when the training has ended.

        Raises
        ------
        Gone
            A worker was lost; the others have been told.
        """
        try:
            self._welcome()
            self._serve()
        except Gone as error:
            self._tell(str(error))
            raise
        finally:
            for worker in self._workers.values():
                worker.channel.close()
            self.listener.close()

    def _welcome(self) -> None:
        self.listener.settimeout(self.timeout_s)
        hellos: dict[int, Hello] = {}
        while len(hellos) < self.n_workers:
            channel = self._accepted()
            if channel is not None:
                hello: Hello = pickle.loads(channel.content(channel.head().n_bytes))  # noqa: S301 -- it has shown the job's token
                hellos[hello.rank] = hello
                self._workers[hello.rank] = _Worker(channel, torch.empty_like(hello.parameters))
        self._begin(hellos[0])
        for worker in self._workers.values():
            self._answer(worker)

    def _accepted(self) -> Channel | None:
        """A new worker's channel; None for whoever does not know the job's token."""
        try:
            connection, _ = self.listener.accept()
        except OSError as error:
            raise Gone(f"a worker has not come: {error}") from error
        connection.settimeout(self.timeout_s)
        channel = Channel(connection)
        if hmac.compare_digest(channel.content(TOKEN_BYTES), self.token):
            return channel
        channel.close()
        return None

    def _begin(self, hello: Hello) -> None:
        self._flat = hello.parameters
        self._gradient = torch.empty_like(self._flat)
        groups, end = [], 0
        for sizes, settings in hello.groups:
            slices = []
            for size in sizes:
                start, end = end, end + size
                slices.append(self._flat[start:end])
                slices[-1].grad = self._gradient[start:end]
            groups.append({"params": slices, **settings})
        self._optimizer = hello.optimizer(groups)
        for one, state in zip(self._slices(), hello.states, strict=False):
            self._optimizer.state[one] = state

    def _slices(self) -> list[Tensor]:
        """In the order in which the first worker has told them."""
        assert self._optimizer is not None
        return [one for group in self._optimizer.param_groups for one in group["params"]]

    def _serve(self) -> None:
        with DefaultSelector() as selector:
            for rank, worker in self._workers.items():
                selector.register(worker.channel, EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select():
                    if not self._hear(key.data):
                        selector.unregister(key.fileobj)
                        self._workers.pop(key.data).channel.close()
                    self._step()

    def _hear(self, rank: int) -> bool:
        """Take one frame of worker `rank`; whether it will send more."""
        worker = self._workers[rank]
        try:
            head = worker.channel.head()
            if head.kind is Kind.PUSH:
                worker.channel.receive_into(memory_of(worker.gradient))
                worker.head = head
            elif head.kind is Kind.SETTINGS:
                self._settle(pickle.loads(worker.channel.content(head.n_bytes)))  # noqa: S301 -- the same
            elif head.kind is Kind.STATE:
                self._show_state(worker)
        except Gone as error:
            raise Gone(f"worker {rank} was lost after step {self._version}: {error}") from error
        return head.kind is not Kind.GOODBYE

    def _show_state(self, worker: _Worker) -> None:
        assert self._optimizer is not None
        content = pickle.dumps([self._optimizer.state[one] for one in self._slices()])
        worker.channel.send(Head(Kind.STATE, len(content), self._version), content)

    def _settle(self, settings: Sequence[dict[str, Any]]) -> None:
        assert self._optimizer is not None
        for group, new in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(new)

    def _step(self) -> None:
        """Step, and answer, if enough has been pushed."""
        pushed = [self._workers[rank] for rank in sorted(self._workers) if self._workers[rank].head is not None]
        if len(pushed) < (len(self._workers) if self.is_synchronous else 1) or not pushed:
            return
        assert self._optimizer is not None
        self._add_up(pushed)
        self._optimizer.step()
        self._version += 1
        for worker in pushed:
            worker.head = None
            self._answer(worker)

    def _add_up(self, pushed: Sequence[_Worker]) -> None:
        """The mean of what was pushed, in the order of ranks: it does not depend on who was first."""
        weights = [worker.head.weight for worker in pushed if worker.head is not None]
        total = sum(weights)
        torch.mul(pushed[0].gradient, weights[0] / total, out=self._gradient)
        for worker, weight in zip(pushed[1:], weights[1:], strict=True):
            self._gradient.add_(worker.gradient, alpha=weight / total)

    def _answer(self, worker: _Worker) -> None:
        worker.channel.send(Head(Kind.PARAMETERS, self._flat.nbytes, self._version), memory_of(self._flat))

    def _tell(self, reason: str) -> None:
        for worker in self._workers.values():
            try:
                worker.channel.send(Head(Kind.LOST), reason.encode())
            except Gone:
                continue
