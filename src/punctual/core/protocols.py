"""Protocols between the core, its plug-ins and the processes around it; each has only what the core needs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from punctual.core.cluster import Snapshot
from punctual.core.commands import JobCommand
from punctual.core.control import Demand, Reading
from punctual.core.events import Event, Message
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal, SeenLoss, StepsLeft
from punctual.core.plan import Plan
from punctual.core.speed import SeenRate, Shape

S = TypeVar("S")

#: Receiver of events; may be called from any thread.
Sink = Callable[[Event], None]

#: Called with each message.
Listener = Callable[[Message], None]


class Policy(Protocol):
    """Shares the cluster among jobs: a function of the snapshot, deterministic for its seed."""

    def allocate(self, snapshot: Snapshot) -> Plan: ...


class Controller(Protocol[S]):
    """Turns readings of one job into its demand; its state is `S`, which it returns and never changes in place.

    The state is kept in snapshots of the journal: it is made of numbers, text, arrays, containers and dataclasses of
    these, and holds no plug-in (`Reading.to_remember`).
    """

    def init(self, spec: JobSpec) -> S: ...

    def step(self, spec: JobSpec, state: S, reading: Reading) -> tuple[Demand, S]: ...


class PerfModel(Protocol[S]):
    """Learns a job's speed for each shape; its state is like a controller's.

    One for which only the numbers of workers and servers and the kind of device count may have a method
    ``served_sps(state, n_workers, n_servers, device)`` beside: `rate_sps` with each of the numbers of workers (rows) and
    of servers. Policies that look at many shapes of a job then ask for all of them at once.
    """

    def init(self, spec: JobSpec) -> S:
        """Return the state that `spec.profile` implies."""
        ...

    def update(self, state: S, seen: SeenRate) -> S: ...

    def rate_sps(self, state: S, shape: Shape) -> float:
        """Return the expected steps per second; 0 if the job cannot run or its speed is unknown."""
        ...

    def std_sps(self, state: S, shape: Shape) -> float:
        """Return the standard deviation of `rate_sps`; infinite if unknown."""
        ...


class ConvergenceModel(Protocol[S]):
    """Learns from its losses when a job will reach its goal; its state is like a controller's."""

    def init(self) -> S: ...

    def update(self, state: S, seen: SeenLoss) -> S: ...

    def steps_left(self, state: S, goal: LossGoal) -> StepsLeft: ...


class Executor(Protocol):
    """Carries out commands on jobs; answers each through `sink`, never by a return value, also for an unknown job."""

    def perform(self, command: JobCommand, sink: Sink) -> None: ...

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report the latest progress of `job`, if it runs, as events at instant `at`."""
        ...


class Journal(Protocol):
    """The record of all events and commands; the state is the fold of its events."""

    def append(self, messages: Iterable[Message]) -> int:
        """Write `messages`, all or none. Returns the sequence number of the last one."""
        ...

    def read_from(self, sequence: int) -> Iterator[tuple[int, Message]]:
        """Messages numbered `sequence` and above, in order. The first ever has number 1."""
        ...
