"""Workers whose number changes by a script: real processes and a real group, but no agent and no clock.

A worker knows from its own steps when the next generation is wanted, so that a script plays the same every time.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from punctual.elastic_training import links
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context
from punctual.elastic_training.forkserver import PRELOADED
from punctual.elastic_training.member import WorkerReleased
from punctual.elastic_training.membership import Membership, Progress, source_of

#: The libraries are loaded once, and workers are copies.
forkserver = get_context("forkserver")
forkserver.set_forkserver_preload([*PRELOADED, __name__, "tests.elastic_training.agent_stage"])

Train = Callable[..., Any]


@dataclass(frozen=True)
class Script:
    """What happens to a training.

    Attributes
    ----------
    n_workers
        At the start.
    changes
        Pairs: after so many steps there are so many workers.
    replaces
        Whether others take the places of those that die.
    """

    n_workers: int = 1
    changes: Sequence[tuple[int, int]] = ()
    replaces: bool = False


class ScriptedLink(AgentClient):
    """A worker's side."""

    generation_broken = -1

    def __init__(self, wire: Connection, script: Script) -> None:
        self._wire = wire
        self._changes = script.changes
        self._n_steps = 0

    @property
    def generation_wanted(self) -> int:
        """One generation for each change that is due; generations after a fault have no number of their own."""
        return sum(at <= self._n_steps + 1 for at, _ in self._changes) * 100

    def join(
        self, *, n_steps: int, progress: Progress = None, after_fault: bool = False, has_state: bool = True
    ) -> Membership | None:
        self._wire.send(("join", n_steps, progress))
        return membership_from(self._wire)

    def stamp(self, n_steps: int, *, waiting: bool) -> None:
        self._n_steps = n_steps

    def excused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """The result is its finish."""


def send_membership(wire: Any, membership: Membership, fds: Sequence[int]) -> None:
    """Say who is in the generation, and hand over a worker's links."""
    wire.send((membership, len(fds)))
    for fd in fds:
        send_handle(wire, fd, os.getpid())


def membership_from(wire: Any) -> Membership | None:
    """What `send_membership` has sent; None: the worker is not wanted."""
    membership: Membership | None
    membership, n_fds = wire.recv()
    if membership is None or not n_fds:
        return membership
    return replace(membership, links=links.Links.of(membership.rank, [recv_handle(wire) for _ in range(n_fds)]))


def _work(wire: Connection, script: Script, train: Train, arguments: tuple[Any, ...], number: int) -> None:
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = ScriptedLink(wire, script)
    context = Context(link)
    context.number = number  # type: ignore[attr-defined]
    try:
        wire.send(("end", pickle.dumps(train(context, *arguments))))  # the pipe would share the memory of tensors
    except WorkerReleased:
        wire.send(("left", None))
    except BaseException as error:
        wire.send(("failed", repr(error)))
        raise
    sys.stdout.flush()
    os._exit(0)


def play(script: Script, train: Train, *arguments: Any) -> list[Any]:
    """What `train` has returned in each worker that was there at the end, by rank."""
    return _Play(script, train, arguments).results()


class _Play:
    def __init__(self, script: Script, train: Train, arguments: tuple[Any, ...]) -> None:
        self._script, self._train, self._arguments = script, train, arguments
        self._members: list[Any] = []
        self._waiting: dict[Any, tuple[int, Progress]] = {}
        self._wires: dict[Any, Any] = {}
        self._n_started = 0
        self._generation = 0
        self._i_change = 0
        self._ended: dict[Any, Any] = {}
        self.n_faults = self._n_lost = 0

    def results(self) -> list[Any]:
        try:
            newcomers = self._start(self._script.n_workers)
            self._await_joins(newcomers)
            self._form(newcomers)
            while not all(wire in self._ended for wire in self._members):
                self._next()
            return [self._ended[wire] for wire in self._members]
        finally:
            for wire, process in self._wires.items():
                process.kill()
                process.join()
                wire.close()

    def _start(self, n_workers: int) -> list[Any]:
        started = []
        for _ in range(n_workers):
            mine, theirs = forkserver.Pipe()
            process = forkserver.Process(
                target=_work, args=(theirs, self._script, self._train, self._arguments, self._n_started)
            )
            process.start()
            theirs.close()
            self._wires[mine] = process
            self._n_started += 1
            started.append(mine)
        return started

    def _await_joins(self, wires: list[Any]) -> None:
        while not all(wire in self._waiting for wire in wires):
            self._receive()

    def _receive(self) -> bool:
        """Take one message; whether a member has died."""
        live = [wire for wire in self._wires if wire not in self._ended]
        wire: Any = connection.wait(live)[0]
        try:
            said, *words = wire.recv()
        except (EOFError, ConnectionResetError):
            self._ended[wire] = None
            self._members.remove(wire)
            self.n_faults += 1
            self._n_lost += 1
            return True
        assert said != "failed", words
        if said == "join":
            self._waiting[wire] = (words[0], words[1])
        else:
            self._ended[wire] = pickle.loads(words[0]) if words[0] else None
        return False

    def _next(self) -> None:
        """Wait until all members have joined; form what comes next."""
        self._receive()
        if not self._members or not all(wire in self._waiting for wire in self._members):
            return
        if self._is_change_due():
            self._change()
        else:
            newcomers = self._start(self._n_lost if self._script.replaces else 0)
            self._n_lost = 0
            self._await_joins(newcomers)
            self._form([*self._members, *newcomers])

    def _is_change_due(self) -> bool:
        changes = self._script.changes
        return (
            self._i_change < len(changes)
            and max(n_steps for n_steps, _ in self._waiting.values()) >= changes[self._i_change][0]
        )

    def _change(self) -> None:
        n_workers = self._script.changes[self._i_change][1]
        self._i_change += 1
        for wire in self._members[n_workers:]:
            wire.send((None, 0))
            del self._waiting[wire]
        stay = self._members[:n_workers]
        newcomers = self._start(n_workers - len(stay))
        self._await_joins(newcomers)
        self._form([*stay, *newcomers])

    def _form(self, members: list[Any]) -> None:
        self._generation = max(self._generation + 1, self._i_change * 100)
        self._members = list(members)
        source, lacking = source_of([self._waiting.pop(wire)[1] for wire in members])
        with ExitStack() as opened:
            fds = links.make(len(members), opened)
            for rank, wire in enumerate(members):
                membership = Membership(
                    generation=self._generation, rank=rank, n_workers=len(members), source=source, lacking=lacking
                )
                send_membership(wire, membership, fds[rank])
