"""A job's process on another node than its first: it runs workers there for the agent on the first one.

It decides nothing. It forks, hands over and passes on what the agent says and what its workers say, shows the agent what
they show on their board, and tells it how many there are to be. Without the agent it ends, and its workers with it.
"""

import os
import select
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from time import monotonic_ns

from punctual.channel import (
    EXIT_STOPPED,
    GROUP_KEY_VARIABLE,
    GROUP_VARIABLE,
    NODE_ADDRESS_VARIABLE,
    Declaration,
    SharedBlock,
    WorkerStatus,
    process_number,
)
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.elastic_stats import ElasticStats
from punctual.elastic_training.group_key import SecureSockets, certificate_of
from punctual.elastic_training.membership import Membership
from punctual.elastic_training.message_stream import MessageStream
from punctual.elastic_training.node_workers import LocalWorkers, Words, last_line
from punctual.elastic_training.other_nodes import listening_at
from punctual.tracking.complaint import invalid

_POLL_INTERVAL_S = 0.05
#: After so long without a word the first node is lost; it says something twice a second. Longer than it waits for this one.
_SILENT_S_MAX = 20.0
#: Exit code if the process could not join, has lost the first node, or can have no workers: it may be started again.
_EXIT_ALONE = 70


def first_node() -> tuple[tuple[str, int], bytes] | None:
    """Take the first node's address and key from the environment; None: this is the first node."""
    place, key = os.environ.pop(GROUP_VARIABLE, ""), os.environ.pop(GROUP_KEY_VARIABLE, "")
    if not place:
        return None
    address, _, port = place.rpartition(":")
    return (address, int(port)), bytes.fromhex(key)


def serve(first: tuple[tuple[str, int], bytes], train: Callable[[SocketAgentClient], object], page: SharedBlock) -> int:
    """Run workers for the first node until it needs none, and return the exit code."""
    # It can be asked to stop: then it leaves the group after a step.
    page.declare(Declaration(pid=process_number(), can_stop=True))
    stats = ElasticStats(page.publish_workers, os.getpid())
    address, key = first
    with ExitStack() as opened:
        try:
            certificate = certificate_of(key)
            node_address = os.environ.get(NODE_ADDRESS_VARIABLE, "") or address[0]
            listening = listening_at(node_address)
            stream = _connected(address, certificate)
        except ValueError as error:
            return _fail(page, stats, str(error))
        opened.callback(stream.close)
        workers = LocalWorkers(train, select.poll(), stats)
        opened.callback(workers.close)
        workers.listening, workers.certificate = listening, certificate
        return OtherNode(stream, workers, page, node_address).run()


def _connected(address: tuple[str, int], certificate: str) -> MessageStream:
    """Connect to the first node; raises `ValueError` if it cannot be reached."""
    try:
        return MessageStream(SecureSockets(certificate).connect(address, 10.0))
    except OSError as error:
        remedy = f"open the network between the nodes, or set {NODE_ADDRESS_VARIABLE} there"
        if isinstance(error, ConnectionError | ssl.SSLError):  # its machine answers, and the agent does not
            remedy = f"set {NODE_ADDRESS_VARIABLE} there to an address of its own"
        raise invalid(
            "each node of a job must reach its first one",
            str(error) or type(error).__name__,
            f"{address[0]}:{address[1]}",
            f"If the job's process there has ended, Punctual starts the job again at its checkpoint; if it runs, {remedy}.",
        ) from None


def _fail(page: SharedBlock, stats: ElasticStats, text: str) -> int:
    """Show a failure on the page, where Punctual reads it, and to the user."""
    os.write(2, f"punctual: {text}\n".encode())
    # Seconds for which a failure is shown on the page before the process ends.
    give_up_ns = monotonic_ns() + int(5.0 * 1e9)
    while monotonic_ns() < give_up_ns and not page.directives().stop:
        stats.answer(page.worker_target().request, text)
        select.select([], [], [], _POLL_INTERVAL_S)
    return _EXIT_ALONE


class OtherNode:
    """Process of a job on another node; see the module."""

    def __init__(self, stream: MessageStream, workers: LocalWorkers, page: SharedBlock, address: str) -> None:
        self._stream, self._workers, self._page = stream, workers, page
        self._workers.poll.register(stream.fileno(), select.POLLIN)
        #: Slots of workers that live, and their processes.
        self._pids: dict[int, int] = {}
        self._heard_ns = self._looked_ns = monotonic_ns()
        self._is_over = False
        #: Why no worker can be had here; empty: they can.
        self._failure = ""
        self._leaves = False
        assert workers.listening is not None, "workers of other nodes connect to it"
        port, n_devices = workers.listening.getsockname()[1], len(workers.visible_devices)
        stream.send(name=address, address=address, port=port, n_devices=n_devices, pid=os.getpid())

    def run(self) -> int:
        """Run until the training has ended, this node is not wanted any more, or the first one is gone."""
        while True:
            self._hear()
            if self._failure:
                if "\n" in self._failure.rstrip():  # a traceback; its last line is said below
                    os.write(2, self._failure.encode())
                return _fail(self._page, self._workers.stats, last_line(self._failure))
            if self._is_over:
                break
            # Send the agent this node's target, from its page, and its workers' stamps.
            self._leaves = self._leaves or self._page.directives().stop
            self._beat()
            now_ns = monotonic_ns()
            if now_ns - self._looked_ns > _SILENT_S_MAX / 2 * 1e9:  # this process itself has stood still
                self._heard_ns = now_ns
            self._looked_ns = now_ns
            if not self._stream.is_open or now_ns - self._heard_ns > _SILENT_S_MAX * 1e9:
                self._workers.stats.leave()
                return _EXIT_ALONE if not self._leaves else EXIT_STOPPED
            if self._leaves and not self._pids:
                break
        self._workers.stats.leave()
        return EXIT_STOPPED if self._leaves else 0

    def _hear(self) -> None:
        """Carry out the agent's messages, and pass on those of workers."""
        for fd, _ in self._workers.poll.poll(_POLL_INTERVAL_S * 1e3):
            if fd == self._stream.fileno():
                for words in self._stream.receive():
                    self._heard_ns = monotonic_ns()
                    self._obey(words)
            for words in self._workers.receive(fd):
                self._pass_on(words)

    def _obey(self, words: Words) -> None:
        match words["do"]:
            case "fork":
                self._pids[words["slot"]] = 0
                self._workers.fork(words["slot"], serves=False)
            case "kill":
                self._workers.kill(words["pid"])
            case "answer":
                self._workers.answer(words["slot"], **words["words"])
            case "form":
                self._workers.form(words["slots"], list(map(Membership.of, words["memberships"])), words["n_steps"])
            case "announce":
                self._workers.announce(words["generation"])
            case "broken":
                self._workers.tell_broken(words["generation"])
            case "status":
                status = {**words["status"], "devices": tuple(words["status"]["devices"])}
                self._page.publish_workers(replace(WorkerStatus(**status), agent_pid=os.getpid()))
            case "end":
                self._is_over = True

    def _pass_on(self, words: Words) -> None:
        """Pass a message of a worker, or about one, to the agent, with instants as their age."""
        if "stepped_ns" in words:
            stepped_ns = words.pop("stepped_ns")
            words["age_ns"] = monotonic_ns() - stepped_ns if stepped_ns else None
        match words["said"]:
            case "forked":
                self._pids[words["slot"]] = words["pid"]
            case "ended" | "not forked":
                self._beat()  # what it showed last
                del self._pids[words["slot"]]
                self._workers.forget(words["slot"])
        self._stream.send(**words)
        if "slot" not in words:  # the agent is to do without this node
            self._failure = words["trace"]
            self._stream.close()

    def _beat(self) -> None:
        target = self._page.worker_target()
        if self._leaves:
            target = replace(target, n_workers=0)
        now_ns, rows = monotonic_ns(), []
        for slot in self._pids:
            seen = self._workers.board.heartbeat(slot)
            age_ns = now_ns - seen.stamp_ns if seen.stamp_ns else None
            rows.append((slot, seen.n_steps, seen.waiting, age_ns, seen.excused))
        stopped = [pid for pid in self._pids.values() if pid and self._workers.is_stopped(pid)]
        self._stream.send(said="beat", board=rows, stopped=stopped, target=asdict(target))
