"""Ten million parameters under AdamW on one node or two. A program of its own; with ``open`` as its argument connections of
nodes are neither encrypted nor checked, as they never are outside of this benchmark.
"""

import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from _resize_training import train_large

import punctual
from punctual.elastic_training import group_key


class OpenSocket(socket.socket):
    """Says that it would have to wait as an encrypted one does."""

    def send(self, *arguments: Any) -> int:
        return self._tried(super().send, ssl.SSLWantWriteError, *arguments)

    def recv_into(self, *arguments: Any) -> int:
        return self._tried(super().recv_into, ssl.SSLWantReadError, *arguments)

    def recv(self, *arguments: Any) -> Any:
        return self._tried(super().recv, ssl.SSLWantReadError, *arguments)

    def do_handshake(self) -> None:
        """Do nothing."""

    @staticmethod
    def _tried(act: Callable[..., Any], waits: type[Exception], *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except BlockingIOError:
            raise waits from None


def opened(_: object, connection: socket.socket, **__: object) -> OpenSocket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made = OpenSocket(fileno=connection.detach())
    made.settimeout(10.0)
    return made


if sys.argv[1] == "open":
    setattr(group_key.SecureSockets, "begin", opened)  # noqa: B010 -- it is nobody else's

if __name__ == "__main__":
    punctual.elastic(train_large)
