"""Workers of an agent, and the search for hanging ones."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from punctual.elastic_training.heartbeat_board import N_SLOTS, Heartbeat
from punctual.elastic_training.membership import Progress
from punctual.elastic_training.other_nodes import NodeWorkers
from punctual.tracking.complaint import invalid

#: Environment variable with the seconds after which a worker is ended that others wait for, or that a signal has stopped.
HANG_VARIABLE = "PUNCTUAL_HANG_S"
#: Longer than anything that one worker does alone while the others wait.
HANG_S = 60.0
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

#: A worker is *starting* until it first joins, *ready* while it waits for the next generation, *training* in one,
#: *leaving* once it was told to, and *done* when its training function has ended and it waits for the others.
WorkerState = Literal["starting", "ready", "training", "leaving", "done"]


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, from the request for it to its end.

    * `number`: serial number among all workers ever started.
    * `i_slot`: its slot on the board of its node.
    * `node`: node on which it runs.
    * `since_ns`: instant of its last change of state.
    * `pid`: process id; 0 until it was forked.
    * `n_steps`: steps behind its state when it last joined.
    * `progress`: progress of its copy of the training at that time.
    * `has_stepped`: whether it has ever done a step.
    * `has_hung`: whether it is being ended because it stood still.
    * `serves`: whether it is a parameter server.
    * `devices`: devices that it uses, counted among those that the job is shown.
    * `asleep_since`: instant since which it has been asleep, and the processor time that it had used by then, in ticks.
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
        """Whether the worker has been in its state for longer than `seconds`."""
        return now_ns - self.since_ns > seconds * 1e9

    @property
    def role(self) -> str:
        return "parameter server" if self.serves else "worker"

    @property
    def title(self) -> str:
        """Name of the worker for the user: role, number and process."""
        return f"{self.role} {self.number} (process {self.pid})"

    @property
    def heartbeat(self) -> Heartbeat:
        """Last heartbeat of the worker."""
        return self.node.board.heartbeat(self.i_slot)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped its process."""
        return self.node.is_stopped(self.pid)

    def has_slept(self, now_ns: int, span_ns: int) -> bool:
        """Whether it has slept for `span_ns`, with its descendants; asked of a silent member at each check."""
        ticks = self.node.sleeping_ticks(self.pid)
        if ticks is None:
            self.asleep_since = (now_ns, 0)
            return False
        since_ns, ticks_before = self.asleep_since
        # Share of a processor below which a process counts as asleep: a thread that only polls now and then uses
        # less.
        is_awake = (ticks - ticks_before) * _TICK_NS > 0.01 * span_ns
        if is_awake or since_ns < max(self.since_ns, self.heartbeat.stamp_ns):
            self.asleep_since = (now_ns, ticks)
        return now_ns - self.asleep_since[0] >= span_ns

    def answer(self, **words: Any) -> None:
        """Answer the worker's message."""
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
    """All live workers and parameter servers, in order of their start.

    `members`: members of the generation: workers by rank, then servers.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.members: list[Worker] = []
        self._n_started = 0

    def admit(
        self, node: NodeWorkers, i_slot: int, now_ns: int, *, serves: bool = False, devices: tuple[int, ...] = ()
    ) -> Worker:
        """Add a worker or a server that has been requested."""
        self._n_started += 1
        worker = Worker(self._n_started, i_slot, node, now_ns, serves=serves, devices=devices)
        self.workers.append(worker)
        return worker

    @property
    def trainers(self) -> list[Worker]:
        """Members that are workers, by rank."""
        return [member for member in self.members if not member.serves]

    @property
    def servers(self) -> list[Worker]:
        """Members that are parameter servers."""
        return [member for member in self.members if member.serves]

    def unused_devices(self, node: NodeWorkers, allowed: Sequence[int], n_devices: int) -> tuple[int, ...]:
        """Choose `n_devices` of the `allowed` ones, the least used first; devices are shared if there are too few."""
        n_users = Counter(device for worker in self.of(node) for device in worker.devices)
        return tuple(sorted(allowed, key=lambda device: (n_users[device], device))[:n_devices])

    def of(self, node: NodeWorkers) -> list[Worker]:
        """Return the workers of a node."""
        return [worker for worker in self.workers if worker.node is node]

    def drop(self, worker: Worker) -> bool:
        """Remove an ended worker; return whether it was a member."""
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
        """Return the workers that are not members yet, in order of their start."""
        return [one for one in self.workers if one.state in ("starting", "ready") and one not in self.members]

    @property
    def is_starting(self) -> bool:
        """Whether new workers still have to build their model."""
        return any(worker.state == "starting" for worker in self.newcomers())


def parts(members: Sequence[Worker]) -> tuple[int, int]:
    """Numbers of workers and of servers among the members."""
    n_servers = sum(member.serves for member in members)
    return len(members) - n_servers, n_servers


def end_of(code: int) -> str:
    """Describe the end of a process with this code of `os.waitstatus_to_exitcode`."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def shell_code(code: int) -> int:
    """Return the code as a shell has it, 128 and the signal; an end without a report never counts as success."""
    return 128 - code if code < 0 else code or 1


def hung(members: Sequence[Worker], now_ns: int, hang_ns: int) -> list[Worker]:
    """Return the members to kill because the training stands still. Only members silent for `hang_ns` count.

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
    # Only the processes of members that have shown nothing for `hang_ns` are examined.
    beats = {id(worker): worker.heartbeat for worker in members}
    silent = [worker for worker in members if now_ns - max(beats[id(worker)].stamp_ns, worker.since_ns) > hang_ns]
    in_step = [worker for worker in silent if worker.state == "training"]
    stopped = [worker for worker in in_step if worker.is_stopped]
    busy = [worker for worker in in_step if not beats[id(worker)].waiting]
    unexcused = [worker for worker in busy if not beats[id(worker)].excused]
    others_wait = any(worker.state == "ready" or beats[id(worker)].waiting for worker in silent)
    rows: tuple[tuple[bool, list[Worker]], ...] = (
        (bool(stopped), stopped),
        (bool(busy) and others_wait, unexcused),
        (len(unexcused) == len(members) and _all_sleep(unexcused, now_ns, hang_ns // 2), busy[-1:]),
        (bool(busy), []),
        (len(silent) == len(members) > 1, in_step[-1:]),
    )
    return next((killed for holds, killed in rows if holds), [])


def _all_sleep(workers: Sequence[Worker], now_ns: int, span_ns: int) -> bool:
    """Whether all of these workers, one or more, sleep. Each is examined at each check."""
    asleep = [worker.has_slept(now_ns, span_ns) for worker in workers]
    return bool(asleep) and all(asleep)


def late(newcomers: Sequence[Worker], now_ns: int, start_s_max: float, hang_ns: int) -> list[Worker]:
    """Return new workers that took too long to become ready; a stopped one has only a member's time."""
    return [
        newcomer
        for newcomer in newcomers
        if newcomer.state == "starting"
        and (
            newcomer.has_been(start_s_max, now_ns) or (newcomer.has_been(hang_ns / 1e9, now_ns) and newcomer.is_stopped)
        )
    ]


def is_excused(worker: Worker) -> bool:
    """Whether it keeps the others waiting on purpose; a worker stopped from outside does not."""
    return worker.heartbeat.excused and not worker.is_stopped
