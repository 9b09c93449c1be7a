"""Workers of one node, under the agent's control; here those of the agent's own node."""

import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any

from punctual.channel import N_DEVICES_MAX, WorkerTarget
from punctual.elastic_training import links, messages
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.elastic_stats import ElasticStats
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
    * `poll`: registers the descriptors to read from.

    * `board`: board of the workers; for another node, a copy.
    * `target`: wanted numbers of workers and servers.
    * `given_up`: number of the target that is not worth another attempt, and why.
    * `visible_devices`: devices that the job is shown on the node.
    * `name`, `address`: name for the user, and where the node's workers listen for those of others.
    * `stats`: status on the node's page.
    """

    name, address = "the first", ("", 0)

    def __init__(self, train: Callable[[SocketAgentClient], object], poll: select.poll, stats: ElasticStats) -> None:
        self.poll, self.stats = poll, stats
        self.board = HeartbeatBoard.create()
        self.target = WorkerTarget()
        self.given_up: tuple[int, str] = (-1, "")
        self.visible_devices = _visible_devices()
        #: Certificate of the first worker, and the socket to which other nodes connect; made when there are others.
        self.certificate = ""
        self.listening: socket.socket | None = None
        self._spawner = WorkerSpawner(train, self.board.fd)
        self.poll.register(self._spawner.control, select.POLLIN)
        self._connections: dict[int, socket.socket] = {}
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

    def receive(self, fd: int) -> list[Words]:
        """Return the messages at a readable descriptor, if it is one of this node's."""
        if fd == self._spawner.control.fileno():
            return self._hear_spawner()
        slot = next((slot for slot, connection in self._connections.items() if connection.fileno() == fd), None)
        return [] if slot is None else self._hear_worker(slot)

    def _hear_spawner(self) -> list[Words]:
        words = self._spawner.receive()
        if words is None:
            self.poll.unregister(self._spawner.control)
            return [{"said": "failed", "trace": "punctual: the process that workers are forked from has ended\n"}]
        return [words]

    def _hear_worker(self, slot: int) -> list[Words]:
        words, _ = messages.receive(self._connections[slot])
        if words is None:  # it has ended, which the forkserver will say too, and how
            self.poll.unregister(self._connections[slot])
            return []
        return [{**words, "slot": slot}]

    def fork(self, i_slot: int, *, serves: bool) -> None:
        """Start a worker, or a parameter server."""
        self._connections[i_slot] = self._spawner.fork(i_slot, serves=serves)
        self.poll.register(self._connections[i_slot], select.POLLIN)

    def kill(self, pid: int) -> None:
        """Kill a worker at once."""
        self._spawner.kill(pid)

    def answer(self, i_slot: int, **words: Any) -> None:
        """Answer a worker's message."""
        self._send(i_slot, words)

    def _send(self, i_slot: int, words: Words, fds: Sequence[int] = ()) -> None:
        if i_slot in self._connections:  # one that has died meanwhile shows otherwise
            messages.send(self._connections[i_slot], words, fds)

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
                n_peers = n_servers if i < len(trainers) else len(trainers)
                self._send(slot, {"membership": words, "n_steps": n_steps, "n_peers": n_peers}, fds[i])

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
            self.poll.unregister(connection)
        connection.close()
        self.board.wipe(i_slot)

    @staticmethod
    def is_stopped(pid: int) -> bool:
        """Whether a signal has stopped the process."""
        return _stat(pid)[0] in ("T", "t")

    @staticmethod
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


def last_line(trace: str) -> str:
    """Return a traceback's last line."""
    return trace.rstrip().rpartition("\n")[2].removeprefix("punctual: ")


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
