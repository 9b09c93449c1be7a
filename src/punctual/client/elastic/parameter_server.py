"""Training with parameter servers: workers compute gradients, servers keep the parameters and step.

Each worker and each server is a process of this machine. Their numbers stay what they were at the start, and when one
is lost, all end. A training that is started again goes on from its last checkpoint, with other numbers if need be.
"""

import os
import pickle
import secrets
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from time import monotonic
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from punctual.client import span
from punctual.client.complaint import invalid, whole
from punctual.client.elastic import checkpoint_store
from punctual.client.elastic._frames import Channel, Gone, Head, Kind
from punctual.client.elastic._memory import memory_of
from punctual.client.elastic._server import TOKEN_BYTES, Hello, Server
from punctual.client.elastic._server_state import cut_out, put_in
from punctual.client.elastic._shares import Slice, shared_out
from punctual.client.elastic.checkpoint_store import CheckpointStore
from punctual.client.elastic.fetching import Collate, Fetch
from punctual.client.elastic.position import Position
from punctual.client.elastic.replica import Replica, Stateful, TrainingState
from punctual.client.elastic.sample_order import SampleOrder
from punctual.client.elastic.virtual_ranks import cut

#: Constructing the first optimizer imports `torch._dynamo`, which takes as long as torch itself.
_PRELOAD = ["torch", "torch._dynamo", "punctual.client.elastic.parameter_server", "__main__"]

#: When one process has failed, the others learn it from their connections; those that do not end soon are ended.
_PATIENCE_S = 5.0


class PeerLost(RuntimeError):
    """A worker or a server has ended before the training had."""


def _lost(who: str, reason: object) -> PeerLost:
    return PeerLost(
        f"all workers and servers must stay until the training ends: got {reason} for {who}. "
        "Look at what it printed last, and start the training again."
    )


# What a script calls.

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Context:
    """A worker's place in the training; the argument of the training function."""

    rank: int
    n_workers: int
    addresses: tuple[tuple[str, int], ...]
    token: bytes
    is_synchronous: bool
    timeout_s: float

    def elastic(
        self,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        extra: Mapping[str, Stateful] | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_every_s: float | None = None,
    ) -> "Run":
        """Meet the servers, and begin with the first worker's parameters, or where the last checkpoint was made.

        Parameters
        ----------
        optimizer
            Over parameters of `model`. The servers make one of the same kind, with the same settings, over slices of
            the parameters: each element must be stepped by itself, as SGD and Adam do and LAMB or Muon do not. Its
            settings must be what its constructor takes for a group.
        extra
            By name, what else is to be found again after a checkpoint, as schedulers: anything with `state_dict` and
            `load_state_dict`. The first worker's is kept.
        checkpoint_dir
            Folder of checkpoints. None: the one that the environment names, if any.
        checkpoint_every_s
            Seconds between checkpoints. None: so that they cost less than 1 % of the time.

        Raises
        ------
        ValueError
            The parameters are not all of one type, contiguous, and on the CPU; or the checkpoint is of another model.
        PeerLost
            A server has ended.
        """
        keeper = checkpoint_store.chosen(checkpoint_dir, every_s=checkpoint_every_s)
        return Run(self, Replica(model, optimizer, extra or {}), keeper)


def launch(
    train: Callable[[Context], Result],
    *,
    n_workers: int,
    n_servers: int,
    is_synchronous: bool = True,
    at_start: Callable[[str, int], object] | None = None,
    timeout_s: float = 600.0,
) -> list[Result]:
    """Run `train` in each of `n_workers` processes, with `n_servers` more to keep the parameters, on this machine.

    Parameters
    ----------
    train
        The training function, of a module's top level.
    is_synchronous
        A step takes the gradients of all workers; otherwise each gradient is applied when it comes, and was computed
        with parameters that others may have changed since.
    at_start
        Called first in each process, with ``"worker"`` or ``"server"`` and its number: to pin it, or to limit it.
    timeout_s
        For how long a process may wait for another.

    Returns
    -------
    list
        What `train` has returned in each worker; it must be possible to pickle it.

    Raises
    ------
    ValueError
        There are no workers, or no servers.
    PeerLost
        A process was ended from outside.
    RuntimeError
        A process has failed; its traceback is in the message.
    """
    whole(n_workers, "n_workers", "a training with parameter servers", least=1)
    whole(n_servers, "n_servers", "a training with parameter servers", least=1)
    crew = _Crew(at_start)
    token = secrets.token_bytes(TOKEN_BYTES)
    try:
        addresses = []
        for i in range(n_servers):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                addresses.append(listener.getsockname())
                crew.start("server", i, partial(_serve, listener, token, n_workers, is_synchronous, timeout_s))
        for rank in range(n_workers):
            context = Context(rank, n_workers, tuple(addresses), token, is_synchronous, timeout_s)
            crew.start("worker", rank, partial(train, context))
        return crew.results()
    finally:
        crew.end()


def _serve(listener: socket.socket, token: bytes, n_workers: int, is_synchronous: bool, timeout_s: float) -> None:
    torch.set_num_threads(1)  # a step is short, and threads that wait for each other take the workers' processor
    Server(listener, token, n_workers, is_synchronous, timeout_s).serve()


# A worker.


@dataclass(slots=True)
class _Remote:
    """One server as a worker sees it: its slices of the worker's parameters."""

    i_server: int
    channel: Channel
    slices: Sequence[Slice]
    buffer: Tensor
    version: int = 0

    def gather(self, tensors: Sequence[Tensor]) -> Tensor:
        """The server's slices of `tensors`, one after the other, in the buffer."""
        parts = [tensors[one.i_parameter].reshape(-1)[one.start : one.end] for one in self.slices]
        return torch.cat(parts, out=self.buffer) if parts else self.buffer

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Put the buffer into `tensors`, which are contiguous."""
        end = 0
        for one in self.slices:
            start, end = end, end + one.n_elements
            tensors[one.i_parameter].view(-1)[one.start : one.end].copy_(self.buffer[start:end])

    def send(self, head: Head, content: bytes | memoryview = b"") -> None:
        with self._named():
            self.channel.send(head, content)

    def receive(self) -> int:
        """Parameters into the buffer; their version."""
        with self._named():
            head = self._head()
            self.channel.receive_into(memory_of(self.buffer))
            return head.version

    def ask_state(self) -> list[dict[str, Any]]:
        """What the server's optimizer keeps for each slice."""
        with self._named():
            self.channel.send(Head(Kind.STATE))
            states: list[dict[str, Any]] = pickle.loads(self.channel.content(self._head().n_bytes))  # noqa: S301 -- ours
            return states

    def _head(self) -> Head:
        head = self.channel.head()
        if head.kind is Kind.LOST:
            raise _lost("the training", self.channel.content(head.n_bytes).decode())
        return head

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Gone as error:
            raise _lost(f"server {self.i_server}", error) from error


class Run:
    """A worker's side of the training; made by `Context.elastic`.

    Attributes
    ----------
    rank, n_workers
        Which worker this is, and of how many.
    step_number
        How often this worker has pushed, those pushes included that a checkpoint has behind it.
    staleness
        Steps that others have made between the last gradient's parameters and its use; 0 when synchronous.
    """

    def __init__(self, context: "Context", replica: Replica, keeper: CheckpointStore | None) -> None:
        self.rank, self.n_workers = context.rank, context.n_workers
        self.model = replica.model
        self.staleness = 0
        self._weight = 1.0
        self._is_synchronous = context.is_synchronous
        self._replica, self._keeper = replica, keeper
        self._optimizer = replica.optimizer
        self._parameters = [one for group in self._optimizer.param_groups for one in group["params"]]
        _check(self._parameters)
        self._position = self._resumed()
        self._settings = _settings(self._optimizer)
        self._remotes = self._met(context)
        self._optimizer.state.clear()  # it is the servers' from here on
        self._pull()

    def _resumed(self) -> Position:
        """Become what the last checkpoint was, if there is one: all read the same, since none is made before all are here."""
        if self._keeper is None:
            return Position()
        state = self._keeper.latest() if self.rank == 0 else checkpoint_store.newest(self._keeper.folder)
        if state is None:
            return Position()
        self._replica.put_back(state)
        return Position.of(state.values["position"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say goodbye; without it, after an exception, the servers take this worker for lost."""
        for remote in self._remotes:
            if kind is None:
                remote.send(Head(Kind.GOODBYE))
            remote.channel.close()
        if self._keeper is not None:
            self._keeper.close()

    @property
    def step_number(self) -> int:
        return self._position.n_steps

    def epochs(self, n_epochs: int) -> Iterator[int]:
        """Numbers of the epochs to come, from the one under way."""
        position = self._position
        for epoch in range(position.epoch, n_epochs):
            if epoch > position.epoch:
                position.epoch, position.i_step = epoch, 0
            yield epoch

    def batches(
        self,
        dataset: Any,
        *,
        global_batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        collate: Collate | None = None,
    ) -> Iterator[Any]:
        """Of each of the epoch's batches this worker's part; the parts of all workers are the whole batch.

        Parameters
        ----------
        dataset
            Has a length, and a sample for each number.
        global_batch_size
            Samples over all workers; the last batch of an epoch takes what is left.
        """
        order, fetch = SampleOrder(len(dataset), global_batch_size, seed, shuffles=shuffle), Fetch(dataset, collate)
        position = self._position
        for i_batch in range(position.i_step, order.n_steps):
            numbers = order.samples(position.epoch, i_batch)
            mine = cut(len(numbers), self.n_workers)[self.rank]
            self._weight = float(len(mine))
            if mine:
                yield fetch.together(numbers[mine.start : mine.stop])
            elif self._is_synchronous:
                self._exchange()  # the others wait for this worker too
            position.i_step = i_batch + 1
            if self._keeper is not None and self.rank == 0 and self._keeper.is_due():
                self.checkpoint()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`, a mean over the samples of a batch."""
        loss.backward()

    def step(self) -> bool:
        """Push the gradients, pull the parameters, and clear the gradients; True.

        Gradients of a step are weighted with the numbers of samples. The settings of the first worker's optimizer
        count: what a scheduler changes there reaches the servers.

        Raises
        ------
        PeerLost
            A server or another worker has ended.
        """
        self._push_settings()
        self._exchange()
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001 -- schedulers would warn otherwise
        self._position.n_steps += 1
        self._position.i_step += 1
        return True

    def checkpoint(self) -> None:
        """Keep the training's state, if there is a place for it. Only the first worker does, between two of its steps.

        As long as it does not push, synchronous servers stand still: what it gets of them belongs together. Others may
        have gone on by some steps with one server and not yet with another.
        """
        if self._keeper is None or self.rank != 0:
            return
        with span.phase("checkpoint"):
            for remote in self._remotes:
                put_in(self._optimizer, self._parameters, remote.slices, remote.ask_state())
            state = self._replica.collect()
            self._keeper.save(TrainingState(state.tensors, {**state.values, "position": self._position.values()}))
            self._optimizer.state.clear()

    def _exchange(self) -> None:
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._parameters]
        for remote in self._remotes:
            head = Head(Kind.PUSH, version=remote.version, weight=self._weight)
            remote.send(head, memory_of(remote.gather(gradients)))
        self._pull()
        for parameter in self._parameters:
            parameter.grad = None

    def _push_settings(self) -> None:
        settings = _settings(self._optimizer)
        if self.rank == 0 and settings != self._settings:
            for remote in self._remotes:
                remote.send(Head(Kind.SETTINGS), pickle.dumps(settings))
            self._settings = settings

    @torch.no_grad()
    def _pull(self) -> None:
        self.staleness = 0
        for remote in self._remotes:
            version = remote.receive()
            self.staleness = max(self.staleness, version - 1 - remote.version)
            remote.version = version
            remote.spread(self._parameters)

    def _met(self, context: "Context") -> list[_Remote]:
        shares = shared_out([one.numel() for one in self._parameters], len(context.addresses))
        remotes = []
        for i, (address, slices) in enumerate(zip(context.addresses, shares, strict=True)):
            try:
                channel = Channel.to(address, context.token, context.timeout_s)
            except Gone as error:
                raise _lost(f"server {i}", error) from error
            n_elements = sum(one.n_elements for one in slices)
            remotes.append(_Remote(i, channel, slices, torch.empty(n_elements, dtype=self._parameters[0].dtype)))
            remotes[-1].send(Head(Kind.HELLO), pickle.dumps(self._hello(remotes[-1])))
        return remotes

    def _hello(self, remote: _Remote) -> Hello:
        groups, first = [], 0
        for group, settings in zip(self._optimizer.param_groups, self._settings, strict=True):
            mine = range(first, first := first + len(group["params"]))
            groups.append(([one.n_elements for one in remote.slices if one.i_parameter in mine], settings))
        own = remote.gather([one.detach() for one in self._parameters])
        is_resumed = self.rank == 0 and self._position.n_steps > 0
        states = cut_out(self._optimizer, self._parameters, remote.slices) if is_resumed else []
        return Hello(self.rank, type(self._optimizer), groups, own, states)


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _check(parameters: Sequence[Tensor]) -> None:
    kinds = sorted(
        {f"{one.dtype} on {one.device.type}{'' if one.is_contiguous() else ', strided'}" for one in parameters}
    )
    if len(kinds) != 1 or not kinds[0].endswith("on cpu"):
        raise invalid(
            "with parameter servers all parameters must be of one type, contiguous, and on the CPU",
            "; ".join(kinds) or "none", "the model", "Convert them, or train with `punctual.elastic`.",
        )  # fmt: skip


# The processes.


@dataclass(frozen=True, slots=True)
class _Answer:
    """A process's last word; *lost*: it has ended because another one had. *silent*: there was none."""

    kind: Literal["done", "lost", "failed", "silent"]
    content: Any = None


@dataclass(slots=True)
class _Member:
    role: str
    number: int
    process: BaseProcess
    inbox: Connection
    answer: _Answer | None = None


class _Crew:
    """The processes of a training, from their start to their end."""

    def __init__(self, at_start: Callable[[str, int], object] | None) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._at_start = at_start
        self._members: list[_Member] = []

    def start(self, role: str, number: int, body: Callable[[], object]) -> None:
        inbox, outbox = self._context.Pipe(duplex=False)
        begin = None if self._at_start is None else partial(self._at_start, role, number)
        process = self._context.Process(target=_be, args=(begin, body, outbox), name=f"{role} {number}", daemon=True)
        process.start()
        outbox.close()
        self._members.append(_Member(role, number, process, inbox))

    def results(self) -> list[Any]:
        """What the workers have returned, when all have; raises as `launch` does when a process has failed."""
        workers = [member for member in self._members if member.role == "worker"]
        while not all(member.answer for member in workers):
            self._hear(None)
            if self._with("lost", "failed", "silent"):
                raise self._failure()
        self._hear_until(lambda: all(member.answer for member in self._members))
        return [member.answer.content for member in workers if member.answer]

    def end(self) -> None:
        """End all that are still there."""
        for member in self._members:
            member.process.kill()
            member.process.join()
            member.process.close()
            member.inbox.close()

    def _failure(self) -> Exception:
        """The exception for what came first, which is not always what is heard of first."""
        self._hear_until(lambda: bool(self._with("failed", "silent")))
        first = [*self._with("silent"), *self._with("failed"), *self._with("lost")][0]
        assert first.answer is not None
        if first.answer.kind != "silent":
            return RuntimeError(f"{first.process.name} has failed:\n{first.answer.content}")
        first.process.join()
        return _lost(first.process.name, f"exit code {first.process.exitcode}")

    def _with(self, *kinds: str) -> list[_Member]:
        return [member for member in self._members if member.answer and member.answer.kind in kinds]

    def _hear_until(self, is_enough: Callable[[], bool]) -> None:
        until = monotonic() + _PATIENCE_S
        while not is_enough() and monotonic() < until:
            self._hear(until - monotonic())

    def _hear(self, timeout_s: float | None) -> None:
        """Wait for the last words of some."""
        listening = {member.inbox: member for member in self._members if member.answer is None}
        for inbox in connection.wait(list(listening), timeout_s):
            assert isinstance(inbox, Connection)
            try:
                listening[inbox].answer = pickle.loads(inbox.recv_bytes())  # noqa: S301 -- from a process of ours
            except EOFError:
                listening[inbox].answer = _Answer("silent")


def _be(begin: Callable[[], object] | None, body: Callable[[], object], outbox: Connection) -> None:
    """A process's life. Whoever started it hears how it ended; when that one dies, so does this."""
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        if begin is not None:
            begin()
        # Pickled plainly: torch would send handles of memory that goes with this process.
        outbox.send_bytes(pickle.dumps(_Answer("done", body())))
    except (PeerLost, Gone) as error:
        outbox.send_bytes(pickle.dumps(_Answer("lost", str(error))))
    except BaseException:  # noqa: BLE001 -- whatever it is, it is said where the training was started
        outbox.send_bytes(pickle.dumps(_Answer("failed", traceback.format_exc())))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
