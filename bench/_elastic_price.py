"""Steps of the three programs, plain and elastic, by processes that take turns."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import torch
from _application import Application, Example
from language import LANGUAGE
from speech import SPEECH
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from vision import VISION

from punctual.elastic_training import links
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context
from punctual.elastic_training.links import Links
from punctual.elastic_training.membership import Membership, Progress

HOST = "127.0.0.1"
APPLICATIONS = {app.name: app for app in (VISION, LANGUAGE, SPEECH)}
forkserver = get_context("forkserver")
forkserver.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed", "_elastic_price"])


@dataclass(frozen=True)
class Way:
    """A way of taking steps.

    Attributes
    ----------
    n_parts
        Virtual ranks; of a plain loop (with several workers: DistributedDataParallel), the micro-batches of a step
        whose gradients it accumulates.
    """

    name: str
    n_workers: int = 1
    n_parts: int = 1
    is_elastic: bool = False
    deterministic: bool = False


class Fixed(AgentClient):
    """The link of workers whose number does not change."""

    def __init__(self, rank: int, n_workers: int, others: Links | None) -> None:
        self._membership = Membership(generation=0, rank=rank, n_workers=n_workers, links=others)

    def join(
        self, *, n_steps: int, progress: Progress = None, after_fault: bool = False, has_state: bool = True
    ) -> Membership:
        return self._membership


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of all scores, of whole samples or of their tokens."""
    return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def turns_of(loops: Sequence[Iterator[None]], n_turns: int) -> list[list[tuple[float, float]]]:
    """Take a step of each loop in each turn; return its seconds by wall and processor.

    An elastic loop replaces torch's dropout, which the other loops must not have.
    """
    own, turns = _dropout(), []
    dropouts = [own] * len(loops)
    for _ in range(n_turns):
        turn = []
        for i, loop in enumerate(loops):
            functional.dropout, functional.scaled_dot_product_attention = dropouts[i]
            begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
            next(loop)
            turn.append((time.perf_counter() - begun_s, time.process_time() - begun_cpu_s))
            dropouts[i] = _dropout()
        turns.append(turn)
    functional.dropout, functional.scaled_dot_product_attention = own
    return turns


def _dropout() -> tuple[Any, Any]:
    return functional.dropout, functional.scaled_dot_product_attention


def plain_steps(app: Application, example: Example, way: Way, rank: int, port: int) -> Iterator[None]:
    model: nn.Module = app.build_model(example)
    if way.n_workers > 1:
        store = distributed.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=way.n_workers)
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=app.learning_rate)
    n_each, n_parts = app.n_rows_per_batch // way.n_workers, way.n_parts // way.n_workers or 1
    while True:
        order = torch.randperm(len(example.train), generator=torch.Generator().manual_seed(0))
        for batch in order[: len(order) // app.n_rows_per_batch * app.n_rows_per_batch].split(app.n_rows_per_batch):
            optimizer.zero_grad()
            total = 0.0
            parts = batch[rank * n_each : (rank + 1) * n_each].chunk(n_parts)
            for i, part in enumerate(parts, start=1):
                rows = example.train.rows(part)
                with sending(model, now=i == n_parts):
                    loss = loss_of(model, rows.inputs, rows.targets)
                    torch.autograd.backward(loss, None if n_parts == 1 else torch.full_like(loss, 1 / n_parts))
                total += loss.item()
            optimizer.step()
            yield


def elastic_steps(app: Application, example: Example, way: Way, rank: int, others: Links | None) -> Iterator[None]:
    model = app.build_model(example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=app.learning_rate)
    n_rows = len(example.train) // app.n_rows_per_batch * app.n_rows_per_batch
    rows = TensorDataset(example.train.inputs[:n_rows], example.train.targets[:n_rows])
    context = Context(Fixed(rank, way.n_workers, others))
    with context.elastic(
        model=model, optimizer=optimizer, virtual_ranks=way.n_parts, deterministic=way.deterministic
    ) as run:
        for _ in run.epochs(1_000_000):
            for inputs, targets in run.batches(rows, global_batch_size=app.n_rows_per_batch):
                run.backward(loss_of(run.model, inputs, targets))
                if run.step():
                    yield


def sending(model: nn.Module, *, now: bool) -> AbstractContextManager[None]:
    """Return the context of a backward whose gradients are sent to other workers, if there are any, now or with a later one."""
    if isinstance(model, DistributedDataParallel) and not now:
        return model.no_sync()
    return nullcontext()


def steps_of(
    app: Application, example: Example, way: Way, rank: int = 0, port: int = 0, others: Links | None = None
) -> Iterator[None]:
    return (
        elastic_steps(app, example, way, rank, others) if way.is_elastic else plain_steps(app, example, way, rank, port)
    )


def received_links(wire: Connection, rank: int) -> Links | None:
    """Return what `send_links` has sent."""
    n_files = wire.recv()
    return Links.of(rank, [recv_handle(wire) for _ in range(n_files)]) if n_files else None


def send_links(wires: Sequence[Any]) -> None:
    """Connect the workers at the other ends, as an agent would."""
    with ExitStack() as opened:
        for wire, fds in zip(wires, links.make(len(wires), opened), strict=True):
            wire.send(len(fds))
            for fd in fds:
                send_handle(wire, fd, os.getpid())


def work(wire: Connection, name: str, way: Way, rank: int, port: int) -> None:
    """Take as many steps as asked for, and tell what they took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    app = APPLICATIONS[name]
    others = received_links(wire, rank)
    steps = steps_of(app, app.load_example(None, 0), way, rank, port, others)
    while True:
        n_steps = wire.recv()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in range(n_steps):
            next(steps)
        wire.send((time.perf_counter() - began_s, time.process_time() - began_cpu_s))


def in_turns(wire: Connection, name: str, ways: Sequence[Way], n_turns: int) -> None:
    """One worker of each way, all in one process, step by step in turns: seconds by wall and processor of each.

    Two processes of the same program differ by more than what is looked for, by where their memory happens to lie.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    app = APPLICATIONS[name]
    example = app.load_example(None, 0)
    wire.send(turns_of([steps_of(app, example, way) for way in ways], n_turns))


def in_one_process(name: str, ways: Sequence[Way], n_turns: int) -> list[list[tuple[float, float]]]:
    """Return what `in_turns` finds, in a process of its own."""
    mine, theirs = forkserver.Pipe()
    process = forkserver.Process(target=in_turns, args=(theirs, name, ways, n_turns), daemon=True)
    process.start()
    try:
        turns: list[list[tuple[float, float]]] = mine.recv()
    finally:
        process.kill()
        process.join()
    return turns


class Team:
    """The workers of one way."""

    def __init__(self, name: str, way: Way) -> None:
        self.way = way
        self._store = distributed.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._wires: list[Any] = []
        self._processes = []
        for rank in range(way.n_workers):
            mine, theirs = forkserver.Pipe()
            process = forkserver.Process(target=work, args=(theirs, name, way, rank, self._store.port), daemon=True)
            process.start()
            self._wires.append(mine)
            self._processes.append(process)
        send_links(self._wires)

    def take(self, n_steps: int) -> tuple[float, float]:
        """Seconds a step, by the wall and of all workers' processors."""
        for wire in self._wires:
            wire.send(n_steps)
        took = [wire.recv() for wire in self._wires]
        return max(wall_s for wall_s, _ in took) / n_steps, sum(cpu_s for _, cpu_s in took) / n_steps

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
