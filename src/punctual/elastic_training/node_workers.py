"""Workers of one node, under the agent's control; here those of the agent's own node."""

import json
import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any

from punctual.channel import N_DEVICES_MAX, WorkerTarget
from punctual.elastic_training import links
from punctual.elastic_training.agent_client import MESSAGE_BYTES_MAX, SocketAgentClient
from punctual.elastic_training.heartbeat_board import HeartbeatBoard
from punctual.elastic_training.membership import Membership
from punctual.elastic_training.worker_spawner import WorkerSpawner

#: Variable with the job's devices, which CUDA reads and Punctual sets.
DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"

#: Message of a worker, with its `slot`; or of its node about it: ``forked`` with `pid`, ``not forked`` with `cause`,
#: ``ended`` with `code`. Without a slot: ``failed`` with `trace`, if the node can have no workers.
Words = dict[str, Any]


class LocalWorkers:
    """Workers of this node, by their places (slots) on its board: their processes, and their connections.

    * `train`: the worker's training function, called with its connection.
    * `preloaded`: modules that workers find loaded.
    * `poll`: registers the descriptors to read from.

    * `board`: board of the workers; for another node, a copy.
    * `target`: wanted numbers of workers and servers.
    * `given_up`: number of the target that is not worth another attempt, and why.
    * `visible_devices`: devices that the job is shown on the node.
    """

    def __init__(
        self, train: Callable[[SocketAgentClient], object], preloaded: Sequence[str], poll: select.poll
    ) -> None:
        self.board = HeartbeatBoard.create()
        self.target = WorkerTarget()
        self.given_up: tuple[int, str] = (-1, "")
        self.visible_devices = _visible_devices()
        #: Certificate of the first worker, and the socket to which other nodes connect; made when there are others.
        self.certificate = ""
        self.listening: socket.socket | None = None
        self._spawner = WorkerSpawner(train, self.board.fd, preloaded)
        self._poll = poll
        self._poll.register(self._spawner.control, select.POLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._slots: dict[int, int] = {}
        self._folder: TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """End all workers."""
        for connection in self._connections.values():
            connection.close()
        self._spawner.close()
        self.board.close()
        if self.listening is not None:
            self.listening.close()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def is_ready(self) -> bool:
        """Whether workers may be started."""
        return self._spawner.is_ready

    def receive(self, fd: int) -> list[Words]:
        """Return the messages at a readable descriptor, if it is one of this node's."""
        if fd == self._spawner.control.fileno():
            return self._hear_spawner()
        slot = next((slot for slot, connection in self._connections.items() if connection.fileno() == fd), None)
        return [] if slot is None else self._hear_worker(slot)

    def _hear_spawner(self) -> list[Words]:
        words = self._spawner.receive()
        if words is None:
            self._poll.unregister(self._spawner.control)
            return [{"said": "failed", "trace": "punctual: the process that workers are forked from has ended\n"}]
        match words["said"]:
            case "forked":
                self._slots[words["pid"]] = words["slot"]
            case "ended":
                return [{**words, "slot": self._slots.pop(words["pid"])}]
            case "ready":
                return []
        return [words]

    def _hear_worker(self, slot: int) -> list[Words]:
        connection = self._connections[slot]
        try:
            text = connection.recv(MESSAGE_BYTES_MAX)
        except OSError:
            text = b""
        if not text:  # it has ended, which the forkserver will say too, and how
            self._poll.unregister(connection)
            return []
        return [{**json.loads(text), "slot": slot}]

    def fork(self, i_slot: int, *, serves: bool) -> None:
        """Start a worker, or a parameter server."""
        self._connections[i_slot] = self._spawner.fork(i_slot, serves=serves)
        self._poll.register(self._connections[i_slot], select.POLLIN)

    def kill(self, pid: int) -> None:
        """Kill a worker at once."""
        self._spawner.kill(pid)

    def answer(self, i_slot: int, **words: Any) -> None:
        """Answer a worker's message."""
        self._send(i_slot, (), words)

    def _send(self, i_slot: int, fds: Sequence[int], words: Words) -> None:
        connection = self._connections.get(i_slot)
        with suppress(OSError):  # it has died meanwhile, which shows otherwise
            if connection is not None:
                socket.send_fds(connection, [json.dumps(words).encode()], fds)

    def form(self, slots: Sequence[int], memberships: Sequence[Membership], n_steps: int) -> None:
        """Tell workers and servers the generation that they are members of, and hand over their connections."""
        trainers = [membership for membership in memberships if membership.rank < membership.n_workers]
        n_servers = len(memberships) - len(trainers)
        is_open = bool(trainers and trainers[0].nodes)
        n_everywhere, listening = (trainers[0].n_workers, self.listening) if is_open else (0, None)
        with ExitStack() as opened:
            fds = links.make(len(trainers), opened, n_servers=n_servers, n_everywhere=n_everywhere, listening=listening)
            for i, (slot, membership) in enumerate(zip(slots, memberships, strict=True)):
                words = membership.words()
                if membership.i_device is not None:
                    words["store_path"] = self._store_path(membership.generation)
                if membership.nodes and not i:
                    words["certificate"] = self.certificate
                self._send(slot, fds[i], {"membership": words, "n_steps": n_steps})

    def _store_path(self, generation: int) -> str:
        """Return the path of this generation's store, in a folder that only this user may enter."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="punctual-")
        return f"{self._folder.name}/{generation}"

    def announce(self, generation: int) -> None:
        """Ask members to leave their generation for this one."""
        self.board.generation_wanted = generation

    def tell_broken(self, generation: int) -> None:
        """Tell members that their generation has lost one."""
        self.board.generation_broken = generation

    def forget(self, i_slot: int) -> None:
        """Forget a worker that has ended."""
        connection = self._connections.pop(i_slot)
        with suppress(KeyError):
            self._poll.unregister(connection)
        connection.close()
        self.board.wipe(i_slot)

    def is_stopped(self, pid: int) -> bool:
        """Whether a signal has stopped the process."""
        return is_stopped(pid)

    def sleeping_ticks(self, pid: int) -> int | None:
        """Processor time of a process and its descendants if all sleep; None: one does not, or it is unknown."""
        return sleeping_ticks(pid)


def last_line(trace: str) -> str:
    """Return a traceback's last line."""
    return trace.rstrip().rpartition("\n")[2].removeprefix("punctual: ")


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return _stat(pid)[0] in ("T", "t")


def sleeping_ticks(pid: int) -> int | None:
    """Processor time, in the kernel's ticks, of a process and its descendants that all sleep; None: one does not."""
    if _stat(pid)[0] != "S":
        return None
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    tree, ticks = [pid], 0
    for parent in tree:
        state, _, *used = stats.get(parent, _GONE)
        if state != "S":
            return None
        ticks += sum(map(int, used))
        tree += [child for child, fields in stats.items() if int(fields[1]) == parent]
    return ticks


_GONE = ("X", "0", "0", "0")


def _stat(pid: int) -> Sequence[str]:
    """Return state, parent, and processor time in user and kernel mode of a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return _GONE
    return fields[0], fields[1], fields[11], fields[12]


def _visible_devices() -> Sequence[int]:
    """Return the indices of the devices that this process is shown; as many as possible, if it is not told."""
    text = os.environ.get(DEVICES_VARIABLE)
    return range(N_DEVICES_MAX if text is None else len([name for name in text.split(",") if name.strip()]))
