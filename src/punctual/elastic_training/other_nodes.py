"""Nodes of a training beside the first: the agent's side of the connections to the job's processes there.

The agent listens only once Punctual has said that the job may lie on several nodes, at the address that Punctual has for its
node; what it listens on, and the key without which nobody is heard, it tells Punctual alone, on the job's page.
"""

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from time import monotonic_ns
from typing import Any

from punctual.channel import NODE_ADDRESS_VARIABLE, SharedBlock, WorkerTarget
from punctual.elastic_training.elastic_stats import ElasticStats
from punctual.elastic_training.group_key import SecureSockets, certificate_of, new_key
from punctual.elastic_training.handshakes import Handshakes
from punctual.elastic_training.heartbeat_board import HeartbeatBoard
from punctual.elastic_training.membership import Membership
from punctual.elastic_training.message_stream import MessageStream
from punctual.elastic_training.node_workers import LocalWorkers, Words
from punctual.tracking.complaint import invalid, warn

#: A node that has said nothing for so long is lost: it says something twenty times a second.
SILENT_S_MAX = 10.0
#: Seconds between two heartbeats to a node.
_BEAT_S = 0.5


def listening_at(address: str) -> socket.socket:
    """Return a socket at a free port; raises `ValueError` if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, 0), family=family)
    except OSError as error:
        raise invalid(
            "the address of a node must be one of its own",
            f"'{address}' ({error})",
            "this node",
            f"Set {NODE_ADDRESS_VARIABLE} to the one at which other nodes reach it, where Ray is started.",
        ) from None


class RemoteWorkers:
    """Workers of another node, with the methods of `punctual.elastic_training.node_workers.LocalWorkers`.

    * `fd`: descriptor of the connection to the node.
    """

    def __init__(self, stream: MessageStream, hello: Words) -> None:
        self._stream = stream
        self.fd = stream.fileno()
        self.name = str(hello["name"])
        self.address = str(hello["address"]), int(hello["port"])
        self.visible_devices: Sequence[int] = range(int(hello["n_devices"]))
        self.board = HeartbeatBoard.create()
        self.target = WorkerTarget()
        self.given_up: tuple[int, str] = (-1, "")
        self.heard_ns = monotonic_ns()
        self.stats = ElasticStats(lambda status: self.say("status", status=asdict(status)), int(hello["pid"]))
        self._stopped: set[int] = set()

    @property
    def is_open(self) -> bool:
        return self._stream.is_open

    def close(self) -> None:
        self._stream.close()
        self.board.close()

    def receive(self, fd: int) -> list[Words]:
        return self._take() if self.is_open and fd == self.fd else []

    def _take(self) -> list[Words]:
        said = []
        for words in self._stream.receive():
            self.heard_ns = monotonic_ns()
            if words["said"] == "beat":
                self._note(words)
                continue
            if "age_ns" in words:  # by this node's clock
                age_ns = words.pop("age_ns")
                words["stepped_ns"] = 0 if age_ns is None else self.heard_ns - age_ns
            said.append(words)
        return said

    def _note(self, words: Words) -> None:
        """Store the state of the node's workers, and its target."""
        for slot, n_steps, waiting, age_ns, excused in words["board"]:
            self.board.show(slot, n_steps, waiting, self.heard_ns - age_ns if age_ns is not None else 0)
            self.board.excuse(slot, excused)
        self._stopped = set(words["stopped"])
        self.target = WorkerTarget(**{**words["target"], "devices": tuple(words["target"]["devices"])})

    def fork(self, i_slot: int, *, serves: bool) -> None:
        self.say("fork", slot=i_slot)

    def kill(self, pid: int) -> None:
        self.say("kill", pid=pid)

    def answer(self, i_slot: int, **words: Any) -> None:
        self.say("answer", slot=i_slot, words=words)

    def form(self, slots: Sequence[int], memberships: Sequence[Membership], n_steps: int) -> None:
        words = [membership.words() for membership in memberships]
        self.say("form", slots=list(slots), memberships=words, n_steps=n_steps)

    def announce(self, generation: int) -> None:
        self.say("announce", generation=generation)

    def tell_broken(self, generation: int) -> None:
        self.say("broken", generation=generation)

    def forget(self, i_slot: int) -> None:
        self.board.wipe(i_slot)

    def is_stopped(self, pid: int) -> bool:
        return pid in self._stopped

    def sleeping_ticks(self, pid: int) -> int | None:
        return None

    def await_end(self, limit_s: float) -> None:
        """Wait until the other side has closed the connection: closing first could lose sent messages."""
        poll, give_up_ns = select.poll(), monotonic_ns() + int(limit_s * 1e9)
        poll.register(self.fd, select.POLLIN)
        while self.is_open and monotonic_ns() < give_up_ns:
            poll.poll(limit_s * 1e3)
            self._stream.receive()

    def say(self, what: str, **words: Any) -> None:
        """Send a message, and those that could not be sent before."""
        self._stream.send(do=what, **words)


NodeWorkers = LocalWorkers | RemoteWorkers


class OtherNodes:
    """Admits other nodes, and notices when one is gone.

    * `here`: the workers of this node, whose first one those of other nodes connect to.
    * `poll`: registers the descriptors to read from.
    """

    def __init__(self, page: SharedBlock, here: LocalWorkers, poll: select.poll) -> None:
        self._page, self._here, self._poll = page, here, poll
        self._address = os.environ.get(NODE_ADDRESS_VARIABLE, "")
        self._handshakes: Handshakes | None = None
        #: Connections of processes that have the key, and have yet to introduce themselves.
        self._unknown: list[MessageStream] = []
        self._beat_ns = 0
        #: Why no other node can come; empty: it can.
        self.failure = ""
        self.nodes: list[RemoteWorkers] = []

    def close(self) -> None:
        if self._handshakes is not None:
            self._admit(self._handshakes)
            self._handshakes.close()
        for stream in self._unknown:
            stream.close()
        for node in self.nodes:
            node.say("end")
        for node in self.nodes:
            # Seconds that another node may take to learn that the training has ended.
            node.await_end(1.0)
            node.close()

    def look(self, now_ns: int) -> None:
        """Listen if other nodes may come, admit those that have, and send all a heartbeat."""
        if self._page.worker_target().spans_nodes and self._handshakes is None and not self.failure:
            self._listen()
        if self._handshakes is not None:
            self._admit(self._handshakes)
        if now_ns - self._beat_ns > _BEAT_S * 1e9:
            late_ns = now_ns - self._beat_ns - _BEAT_S * 1e9
            for node in self.nodes:
                node.say("beat")
                if late_ns > SILENT_S_MAX * 1e9 / 2:  # this process itself has stood still
                    node.heard_ns = now_ns
            self._beat_ns = now_ns

    def lost(self, now_ns: int) -> list[tuple[RemoteWorkers, str]]:
        """Return the nodes that are gone, each with the sign of it."""
        gone = [(node, "the end of its connection") for node in self.nodes if not node.is_open]
        silent = [node for node in self.nodes if node.is_open and now_ns - node.heard_ns > SILENT_S_MAX * 1e9]
        return [*gone, *((node, f"no word for {SILENT_S_MAX:g} s") for node in silent)]

    def drop(self, node: RemoteWorkers) -> None:
        """Remove a node that is gone."""
        with suppress(KeyError, ValueError):
            self._poll.unregister(node.fd)
        self.nodes.remove(node)
        node.say("end")
        node.close()

    def _admit(self, handshakes: Handshakes) -> None:
        """Admit nodes that have the key and introduce themselves; a stranger gets no further than a handshake."""
        self._unknown += map(MessageStream, handshakes.advance(0.0))
        for stream in list(self._unknown):
            said = stream.receive()
            if said or not stream.is_open:
                self._unknown.remove(stream)
                self._introduce(stream, said)

    def _introduce(self, stream: MessageStream, said: Sequence[Words]) -> None:
        try:
            node = RemoteWorkers(stream, said[0])
        except (IndexError, KeyError, TypeError, ValueError):  # it has said nothing, or is not of this version
            stream.close()
            return
        self.nodes.append(node)
        node.announce(self._here.board.generation_wanted)
        self._poll.register(node.fd, select.POLLIN)

    def _listen(self) -> None:
        """Listen for other nodes, and publish port and key on the page for Punctual."""
        try:
            if not self._address:
                raise invalid(
                    "a node must have an address to be joined by others",
                    "none",
                    "this node",
                    f"Set {NODE_ADDRESS_VARIABLE} to the one at which other nodes reach it, where Ray is started.",
                )
            key = new_key()
            self._here.certificate = certificate_of(key)
            listening = listening_at(self._address)
            self._here.listening = listening_at(self._address)
            self._here.address = self._address, self._here.listening.getsockname()[1]
        except ValueError as error:
            self.failure = str(error)
            warn(
                "workers on other nodes must be able to join", str(error), "this training", "It goes on with this node."
            )
            return
        self._handshakes = Handshakes(SecureSockets(self._here.certificate), listening)
        self._page.publish_group(listening.getsockname()[1], key)
