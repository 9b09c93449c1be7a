"""The workers that an agent looks after, and which of them hang."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from punctual.elastic_training.heartbeat_board import N_SLOTS, Heartbeat
from punctual.elastic_training.membership import Progress
from punctual.elastic_training.node_workers import NodeWorkers
from punctual.tracking.complaint import invalid

#: Environment variable with the seconds after which a worker is ended that others wait for, or that a signal has stopped.
HANG_VARIABLE = "PUNCTUAL_HANG_S"
#: Longer than anything that one worker does alone while the others wait.
HANG_S = 60.0
#: Who uses less of a processor than this sleeps: a thread that only looks now and then whether there is something to do uses less.
_ASLEEP_FRAC = 0.01
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

#: A worker is *starting* until it first joins, *ready* while it waits for the next generation, *training* in one,
#: *leaving* once it was told to, and *done* when its training function has ended and it waits for the others.
WorkerState = Literal["starting", "ready", "training", "leaving", "done"]


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, from the request for it to its end.

    Attributes
    ----------
    number
        Counts the workers that were ever started.
    i_slot
        Its place on the board of its node.
    node
        Where it is.
    since_ns
        When its state last changed.
    pid
        0 until it was forked.
    n_steps
        Steps behind its state when it last joined.
    progress
        How far its copy of the training was then.
    has_stepped
        Whether it has ever done a step.
    has_hung
        Whether it is being ended because it stood still.
    serves
        Whether it is a parameter server.
    devices
        Which of the devices that the job is shown it uses.
    asleep_since
        Since when it has been found asleep, and the processor time that it had used by then, in ticks.
    """

    number: int
    i_slot: int
    node: NodeWorkers
    since_ns: int
    pid: int = 0
    state: WorkerState = "starting"
    n_steps: int = 0
    progress: Progress = None
    has_stepped: bool = False
    has_hung: bool = False
    serves: bool = False
    devices: tuple[int, ...] = ()
    asleep_since: tuple[int, int] = (0, 0)

    def become(self, state: WorkerState, now_ns: int) -> None:
        self.state, self.since_ns = state, now_ns

    def has_been(self, seconds: float, now_ns: int) -> bool:
        """Whether it has been in its state for longer than that."""
        return now_ns - self.since_ns > seconds * 1e9

    @property
    def role(self) -> str:
        return "parameter server" if self.serves else "worker"

    @property
    def title(self) -> str:
        """Which one it is, for the user."""
        return f"{self.role} {self.number} (process {self.pid})"

    @property
    def heartbeat(self) -> Heartbeat:
        """What it last said of itself."""
        return self.node.board.heartbeat(self.i_slot)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.node.is_stopped(self.pid)

    def has_slept(self, now_ns: int, span_ns: int) -> bool:
        """Whether it has slept for so long, with all that it has started; a member that is silent is asked this at each look."""
        ticks = self.node.sleeping_ticks(self.pid)
        if ticks is None:
            self.asleep_since = (now_ns, 0)
            return False
        since_ns, ticks_before = self.asleep_since
        is_awake = (ticks - ticks_before) * _TICK_NS > _ASLEEP_FRAC * span_ns
        if is_awake or since_ns < max(self.since_ns, self.heartbeat.stamp_ns):
            self.asleep_since = (now_ns, ticks)
        return now_ns - self.asleep_since[0] >= span_ns

    def answer(self, **words: Any) -> None:
        """Answer what it has said."""
        self.node.answer(self.i_slot, **words)


def hang_s_allowed() -> float:
    """Seconds after which a worker that stands still is ended; raises `ValueError` if the environment says no such number."""
    text = os.environ.get(HANG_VARIABLE)
    if not text:
        return HANG_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise invalid(
            f"`{HANG_VARIABLE}` must be a number of seconds above zero",
            repr(text),
            "the environment",
            "Set it to more than anything takes that one worker does alone, as 60.",
        )
    return seconds


class WorkerPool:
    """All workers and parameter servers that live, in order of their start.

    Attributes
    ----------
    members
        Those that make up the generation: workers by rank, then servers.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.members: list[Worker] = []
        self._n_started = 0

    def admit(
        self,
        node: NodeWorkers,
        i_slot: int,
        now_ns: int,
        *,
        serves: bool = False,
        devices: tuple[int, ...] = (),
    ) -> Worker:
        """A worker or a server has been asked for."""
        self._n_started += 1
        worker = Worker(self._n_started, i_slot, node, now_ns, serves=serves, devices=devices)
        self.workers.append(worker)
        return worker

    @property
    def trainers(self) -> list[Worker]:
        """The members that are workers, by rank."""
        return [member for member in self.members if not member.serves]

    @property
    def servers(self) -> list[Worker]:
        """The members that are parameter servers."""
        return [member for member in self.members if member.serves]

    def unused_devices(self, node: NodeWorkers, allowed: Sequence[int], n_devices: int) -> tuple[int, ...]:
        """`n_devices` of those that are `allowed`, the least used first; devices are shared where there are too few."""
        n_users = Counter(device for worker in self.of(node) for device in worker.devices)
        return tuple(sorted(allowed, key=lambda device: (n_users[device], device))[:n_devices])

    def of(self, node: NodeWorkers) -> list[Worker]:
        """Those of a node."""
        return [worker for worker in self.workers if worker.node is node]

    def drop(self, worker: Worker) -> bool:
        """A worker has ended; whether it was a member."""
        self.workers.remove(worker)
        was_member = worker in self.members
        if was_member:
            self.members.remove(worker)
        return was_member

    def by_slot(self, node: NodeWorkers, i_slot: int) -> Worker:
        return next(worker for worker in self.of(node) if worker.i_slot == i_slot)

    def free_slot(self, node: NodeWorkers) -> int:
        taken = {worker.i_slot for worker in self.of(node)}
        return next(i for i in range(N_SLOTS) if i not in taken)

    def newcomers(self) -> list[Worker]:
        """Those that are to be members, in order of their start."""
        return [one for one in self.workers if one.state in ("starting", "ready") and one not in self.members]

    @property
    def is_starting(self) -> bool:
        """Whether there are newcomers that have yet to build their model."""
        return any(worker.state == "starting" for worker in self.newcomers())

    def chosen(self, counts: Sequence[tuple[NodeWorkers, int]], n_servers: int = 0) -> list[Worker]:
        """Who should form a generation, as `members` has them: members first, so that the oldest stay.

        `counts`: how many workers of each node, whose ranks follow each other.
        """
        ready = [*self.members, *(worker for worker in self.newcomers() if worker.state == "ready")]
        trainers = [[one for one in ready if one.node is node and not one.serves][:n] for node, n in counts]
        return [*chain.from_iterable(trainers), *[one for one in ready if one.serves][:n_servers]]


def parts(members: Sequence[Worker]) -> tuple[int, int]:
    """How many workers and servers these are."""
    n_servers = sum(member.serves for member in members)
    return len(members) - n_servers, n_servers


def end_of(code: int) -> str:
    """How a process ended, of what `os.waitstatus_to_exitcode` makes of it."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def shell_code(code: int) -> int:
    """The same as a shell has it, 128 and the signal; an end without a word is never success."""
    return 128 - code if code < 0 else code or 1


@dataclass(frozen=True, slots=True)
class Silence:
    """A member that has been silent for too long, as one look has seen it.

    Attributes
    ----------
    is_waiting
        It waits for others: in a collective, or for the next generation.
    is_excused
        It keeps the others waiting on purpose.
    is_stopped
        A signal has stopped its process.
    """

    worker: Worker
    is_waiting: bool
    is_excused: bool
    is_stopped: bool


def hung(members: Sequence[Worker], now_ns: int, hang_ns: int) -> list[Worker]:
    """The members to be killed because the training stands still. Only those count that were silent for `hang_ns`.

    ======================================================= ==========================================
    what there is, the first row that holds                 who is killed
    ======================================================= ==========================================
    silent members that a signal has stopped                they
    silent members that neither wait nor have joined,       they, but not who is excused
    and others that have waited for as long
    all members silent, none of them waiting or excused,    the last of them by rank
    and all have slept for half as long again
    silent members that neither wait nor have joined        nobody
    all members silent, several of them, and all waiting    the last by rank of those in the step: one
                                                            of them only seems to wait
    anything else                                           nobody
    ======================================================= ==========================================
    """
    silent = _silent(members, now_ns, hang_ns)
    others_wait = any(silence.is_waiting for silence in silent)
    in_step = [silence for silence in silent if silence.worker.state == "training"]
    stopped = [silence for silence in in_step if silence.is_stopped]
    busy = [silence for silence in in_step if not silence.is_waiting]
    rows: tuple[tuple[bool, list[Silence]], ...] = (
        (bool(stopped), stopped),
        (bool(busy) and others_wait, [silence for silence in busy if not silence.is_excused]),
        (len(busy) == len(members) and _all_sleep(busy, now_ns, hang_ns // 2), busy[-1:]),
        (bool(busy), []),
        (len(silent) == len(members) > 1, in_step[-1:]),
    )
    return [silence.worker for silence in next((killed for holds, killed in rows if holds), [])]


def _all_sleep(silent: Sequence[Silence], now_ns: int, span_ns: int) -> bool:
    """Whether none of the workers, one or more, does anything, on purpose or not. All are looked at, at each look."""
    asleep = [not silence.is_excused and silence.worker.has_slept(now_ns, span_ns) for silence in silent]
    return bool(asleep) and all(asleep)


def late(newcomers: Sequence[Worker], now_ns: int, start_s_max: float, hang_ns: int) -> list[Worker]:
    """The newcomers that have had their time to become ready; one that a signal has stopped has no more than a member."""
    return [
        newcomer
        for newcomer in newcomers
        if newcomer.state == "starting"
        and (
            newcomer.has_been(start_s_max, now_ns) or (newcomer.has_been(hang_ns / 1e9, now_ns) and newcomer.is_stopped)
        )
    ]


def _silent(members: Sequence[Worker], now_ns: int, hang_ns: int) -> list[Silence]:
    """Those of the members that have not said anything for `hang_ns`; only their processes are looked at."""
    seen = [(worker, worker.heartbeat) for worker in members]
    return [
        Silence(worker, worker.state == "ready" or heartbeat.waiting, heartbeat.excused, worker.is_stopped)
        for worker, heartbeat in seen
        if now_ns - max(heartbeat.stamp_ns, worker.since_ns) > hang_ns
    ]


def is_excused(worker: Worker) -> bool:
    """Whether it keeps the others waiting on purpose; one that was stopped from outside has no purpose."""
    return worker.heartbeat.excused and not worker.is_stopped
