"""Handshakes of encrypted connections, several at once: a silent stranger delays no other connection."""

import select
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from punctual.elastic_training.group_key import SecureSockets

#: Seconds for a handshake, and the most at once; beyond that, the oldest is given up.
LIMIT_S = 5.0
_N_MAX = 256


@dataclass(slots=True)
class _Pending:
    """A handshake in progress: whether this process has begun it, its time limit, and the awaited event."""

    is_own: bool
    give_up_at: float
    awaits: int = select.POLLIN | select.POLLOUT


class Handshakes:
    """Connections with processes that have the same certificate.

    `listening`: socket for incoming connections; closed with it.
    """

    def __init__(self, sockets: SecureSockets, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._sockets, self._listening = sockets, listening
        self._pending: dict[ssl.SSLSocket, _Pending] = {}

    def connect(self, address: tuple[str, int], limit_s: float) -> ssl.SSLSocket:
        """Begin a connection, which `advance` returns once it is made; raises `OSError` if nothing listens there."""
        return self._begin(socket.create_connection(address, LIMIT_S), limit_s, is_own=True)

    def advance(self, wait_s: float) -> list[ssl.SSLSocket]:
        """Accept connections, waiting at most `wait_s` seconds, and return those whose handshakes are complete.

        Raises `OSError`: a connection begun here cannot be made. Those of strangers are closed silently.
        """
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        for connection, pending in self._pending.items():
            poll.register(connection, pending.awaits)
        if self._listening.fileno() in dict(poll.poll(wait_s * 1e3)):
            with suppress(OSError):  # none waits any more, or one is gone again
                for _ in range(_N_MAX):
                    self._begin(self._listening.accept()[0], LIMIT_S, is_own=False)
        return [connection for connection in list(self._pending) if self._is_made(connection)]

    def close(self) -> None:
        """Listen no more, and give up incomplete handshakes."""
        self._listening.close()
        for connection in list(self._pending):
            self._drop(connection)

    def _begin(self, plain: socket.socket, limit_s: float, *, is_own: bool) -> ssl.SSLSocket:
        connection = self._sockets.begin(plain, is_server=not is_own)
        connection.setblocking(False)
        self._pending[connection] = _Pending(is_own, monotonic() + limit_s)
        others = [other for other, pending in self._pending.items() if not pending.is_own]
        if len(others) > _N_MAX:
            self._drop(others[0])
        return connection

    def _is_made(self, connection: ssl.SSLSocket) -> bool:
        """Continue a handshake; return whether it is complete."""
        pending = self._pending[connection]
        try:
            connection.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wants:
            pending.awaits = select.POLLOUT if isinstance(wants, ssl.SSLWantWriteError) else select.POLLIN
            if monotonic() <= pending.give_up_at:
                return False
            error: OSError = TimeoutError("a handshake has taken too long")
        except OSError as failure:
            error = failure
        else:
            del self._pending[connection]
            connection.settimeout(LIMIT_S)
            return True
        self._drop(connection)
        if pending.is_own:
            raise error
        return False

    def _drop(self, connection: ssl.SSLSocket) -> None:
        del self._pending[connection]
        connection.close()
