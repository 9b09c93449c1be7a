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
    awaits: int = select.POLLIN


class Handshakes:
    """Connections with processes that have the same certificate.

    `listening`: socket for incoming connections; it stays the caller's.
    """

    def __init__(self, sockets: SecureSockets, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._sockets, self._listening = sockets, listening
        self._pending: dict[ssl.SSLSocket, _Pending] = {}

    def connect(self, address: tuple[str, int], limit_s: float) -> ssl.SSLSocket:
        """Begin a connection, which `advance` returns once it is made; raises `OSError` if nothing listens there."""
        connection = self._sockets.begin(socket.create_connection(address, LIMIT_S), is_server=False)
        self._add(connection, _Pending(is_own=True, give_up_at=monotonic() + limit_s, awaits=select.POLLOUT))
        return connection

    def advance(self, wait_s: float) -> list[ssl.SSLSocket]:
        """Accept connections, waiting at most `wait_s` seconds, and return those whose handshakes are complete.

        Raises `OSError`: a connection begun here cannot be made. Those of strangers are closed silently.
        """
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        for connection, pending in self._pending.items():
            poll.register(connection, pending.awaits)
        if self._listening.fileno() in dict(poll.poll(wait_s * 1e3)):
            self._accept()
        return [connection for connection in list(self._pending) if self._is_made(connection)]

    def close(self) -> None:
        """Give up incomplete handshakes."""
        for connection in list(self._pending):
            self._drop(connection)

    def _accept(self) -> None:
        with suppress(OSError):  # it is gone again
            connection = self._sockets.begin(self._listening.accept()[0], is_server=True)
            self._add(connection, _Pending(is_own=False, give_up_at=monotonic() + LIMIT_S))
        others = [connection for connection, pending in self._pending.items() if not pending.is_own]
        if len(others) > _N_MAX:
            self._drop(others[0])

    def _add(self, connection: ssl.SSLSocket, pending: _Pending) -> None:
        connection.setblocking(False)
        self._pending[connection] = pending

    def _is_made(self, connection: ssl.SSLSocket) -> bool:
        pending = self._pending[connection]
        try:
            self._go_on(connection, pending)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            self._drop(connection)
            if pending.is_own:
                raise
            return False
        del self._pending[connection]
        connection.settimeout(LIMIT_S)
        return True

    @staticmethod
    def _go_on(connection: ssl.SSLSocket, pending: _Pending) -> None:
        """Continue the handshake; raises `OSError` if it is not complete."""
        try:
            connection.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wants:
            if monotonic() > pending.give_up_at:
                raise TimeoutError("a handshake has taken too long") from None
            pending.awaits = select.POLLOUT if isinstance(wants, ssl.SSLWantWriteError) else select.POLLIN
            raise

    def _drop(self, connection: ssl.SSLSocket) -> None:
        del self._pending[connection]
        connection.close()
