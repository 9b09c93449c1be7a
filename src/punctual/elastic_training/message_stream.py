"""Messages between the processes that a job has on its nodes: JSON objects, a line each, over an encrypted connection."""

import json
import socket
import ssl
from contextlib import suppress
from typing import Any

_READ_BYTES = 65_536
#: A message as long as this is none; and so much may wait for one who does not read.
_WAITING_BYTES_MAX = 1 << 24


class MessageStream:
    """One end of a stream; it never blocks."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._incoming, self._outgoing = bytearray(), bytearray()
        self.is_open = True

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, **words: Any) -> None:
        self._outgoing += json.dumps(words).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send as much as can be sent now."""
        try:
            while self._outgoing and self.is_open:
                n_bytes = self._connection.send(bytes(self._outgoing[:_READ_BYTES]))
                del self._outgoing[:n_bytes]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.is_open = self.is_open and len(self._outgoing) < _WAITING_BYTES_MAX
        except OSError:
            self.is_open = False

    def receive(self) -> list[dict[str, Any]]:
        """Return the received messages; afterwards `is_open` tells whether more may come: not after a line that is no message."""
        try:
            while self.is_open and len(self._incoming) < _WAITING_BYTES_MAX:
                piece = self._connection.recv(_READ_BYTES)
                self.is_open = bool(piece)
                self._incoming += piece
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.is_open = False
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = bytearray(rest)
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            messages, self.is_open = [], False
        self.is_open = self.is_open and len(rest) < _WAITING_BYTES_MAX
        return messages

    def close(self) -> None:
        self.is_open = False
        with suppress(OSError):  # without the word of TLS, for which it would have to wait
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
