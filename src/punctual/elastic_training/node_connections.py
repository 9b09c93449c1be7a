"""Connections of the nodes of one generation: an encrypted one between the first workers of each two nodes.

The workers of a node share memory (`punctual.elastic_training.links`). The first of them brings into it what those of other
nodes have written into theirs.
"""

import select
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from punctual.elastic_training.group_key import SecureSockets
from punctual.elastic_training.handshakes import Handshakes
from punctual.elastic_training.membership import Membership

#: First message of a worker: the generation and the node that it connects for.
_HELLO = struct.Struct("<qq")
_CONNECT_S_MAX = 30.0
#: Seconds between two looks whether the generation has lost a member.
_POLL_INTERVAL_S = 0.1


class NodeConnections:
    """Connections of a node's first worker to those of other nodes, by node. Methods raise `OSError` if one is gone."""

    def __init__(self, connections: Mapping[int, ssl.SSLSocket], is_broken: Callable[[], bool]) -> None:
        self._connections, self._is_broken = connections, is_broken
        for connection in connections.values():
            connection.setblocking(False)

    @classmethod
    def formed(
        cls, membership: Membership, listening: socket.socket, is_broken: Callable[[], bool]
    ) -> "NodeConnections":
        """Connect to the nodes before this one, and wait for those behind it."""
        handshakes, i_own = Handshakes(SecureSockets(membership.certificate), listening), membership.i_node
        give_up_at = monotonic() + _CONNECT_S_MAX
        connections: dict[int, ssl.SSLSocket] = {}
        try:
            own = {
                handshakes.connect((place.address, place.port), _CONNECT_S_MAX): i_node
                for i_node, place in enumerate(membership.nodes[:i_own])
            }
            while len(connections) < len(membership.nodes) - 1:
                _check(is_broken, give_up_at)
                for connection in handshakes.advance(_POLL_INTERVAL_S):
                    if connection in own:
                        connections[own[connection]] = connection
                        connection.sendall(_HELLO.pack(membership.generation, i_own))
                    else:
                        _take(connection, membership, connections)
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
        finally:
            handshakes.close()
        return cls(connections, is_broken)

    def close(self) -> None:
        for connection in self._connections.values():
            with suppress(OSError):  # without the word of TLS, for which it would have to wait
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def exchange(
        self, outgoing: Mapping[int, Sequence[memoryview]], incoming: Mapping[int, Sequence[memoryview]]
    ) -> None:
        """Send each node its bytes, and fill the buffers with theirs; both sides must agree on the lengths."""
        transfers = [
            _Transfer(connection, outgoing[i_node], incoming[i_node])
            for i_node, connection in self._connections.items()
        ]
        while transfers := [transfer for transfer in transfers if not transfer.is_done]:
            if not sum(transfer.advance() for transfer in transfers):
                self._await(transfers)

    def _await(self, transfers: Sequence["_Transfer"]) -> None:
        poll = select.poll()
        for transfer in transfers:
            poll.register(transfer.connection, transfer.awaits)
        while not poll.poll(_POLL_INTERVAL_S * 1e3):
            if self._is_broken():
                raise ConnectionError("a member is gone")


def _check(is_broken: Callable[[], bool], give_up_at: float) -> None:
    if is_broken() or monotonic() > give_up_at:
        raise ConnectionError("a node has not connected")


def _take(connection: ssl.SSLSocket, membership: Membership, connections: dict[int, ssl.SSLSocket]) -> None:
    """Keep a connection from a node behind this one; turn away one of an earlier generation."""
    try:
        generation, i_node = _HELLO.unpack(connection.recv(_HELLO.size))
    except (OSError, struct.error):
        generation, i_node = -1, -1
    if generation == membership.generation and i_node not in connections and i_node > membership.i_node:
        connections[i_node] = connection
    else:
        connection.close()


class _Transfer:
    """Transfer over one connection in both directions at the same time."""

    def __init__(
        self, connection: ssl.SSLSocket, outgoing: Sequence[memoryview], incoming: Sequence[memoryview]
    ) -> None:
        self.connection = connection
        self._outgoing = [view for view in reversed(outgoing) if len(view)]
        self._incoming = [view for view in reversed(incoming) if len(view)]

    @property
    def is_done(self) -> bool:
        return not (self._outgoing or self._incoming)

    @property
    def awaits(self) -> int:
        return (select.POLLIN if self._incoming else 0) | (select.POLLOUT if self._outgoing else 0)

    def advance(self) -> bool:
        """Send and receive as much as possible without waiting; return whether anything was moved."""
        # Bytes encrypted at once: each repeated try to send must be of the same bytes.
        has_sent = self._move(self._outgoing, lambda view: self.connection.send(view[: 1 << 18]))
        return self._move(self._incoming, self.connection.recv_into) or has_sent

    @staticmethod
    def _move(views: list[memoryview], move: Callable[[memoryview], int]) -> bool:
        """Move a piece of the last of `views`, and drop what is done of it."""
        if not views:
            return False
        try:
            n_bytes = move(views[-1])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not n_bytes:
            raise ConnectionError("a node has left")
        views[-1] = views[-1][n_bytes:]
        if not len(views[-1]):
            views.pop()
        return True
