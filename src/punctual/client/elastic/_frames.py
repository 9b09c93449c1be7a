"""Frames over a socket: what parameter servers and workers say to each other."""

import socket
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Self


class Kind(Enum):
    """What a frame is."""

    HELLO = b"H"  # worker: who it is, and what the server needs to begin (pickled)
    SETTINGS = b"S"  # worker: the optimizer's settings have changed (pickled)
    PUSH = b"G"  # worker: gradients
    PARAMETERS = b"P"  # server: parameters after the step
    STATE = b"O"  # worker: asks for the optimizer's state; server: that state (pickled)
    GOODBYE = b"B"  # worker: the training function has returned
    LOST = b"L"  # server: it cannot go on; the content says why


@dataclass(frozen=True, slots=True)
class Head:
    """What precedes a frame's content.

    Attributes
    ----------
    version
        Steps that the parameters have behind them: those sent, or those the gradients were computed with.
    weight
        Of gradients, against the other workers'.
    """

    kind: Kind
    n_bytes: int = 0
    version: int = 0
    weight: float = 1.0


class Gone(Exception):
    """The other side has closed, or is silent for longer than it may."""


_HEAD = struct.Struct("<cqqd")


class Channel:
    """One connection between a worker and a server. Waits as long as the socket's time-out in each call."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, address: tuple[str, int], token: bytes, timeout_s: float) -> Self:
        """Connect to a server; `token` is what only the job's own processes know."""
        try:
            channel = cls(socket.create_connection(address, timeout_s))
        except OSError as error:
            raise Gone(str(error)) from error
        channel._send(token)
        return channel

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, head: Head, content: bytes | memoryview = b"") -> None:
        self._send(_HEAD.pack(head.kind.value, len(content), head.version, head.weight))
        if len(content):
            self._send(content)

    def head(self) -> Head:
        """Of the next frame, whose content must be received before the next call."""
        kind, n_bytes, version, weight = _HEAD.unpack(self.content(_HEAD.size))
        return Head(Kind(kind), n_bytes, version, weight)

    def content(self, n_bytes: int) -> bytearray:
        received = bytearray(n_bytes)
        self.receive_into(memoryview(received))
        return received

    def receive_into(self, memory: memoryview) -> None:
        """Fill `memory`."""
        n_done = 0
        while n_done < len(memory):
            try:
                n_more = self._socket.recv_into(memory[n_done:])
            except OSError as error:
                raise Gone(str(error)) from error
            if not n_more:
                raise Gone("the connection was closed")
            n_done += n_more

    def close(self) -> None:
        self._socket.close()

    def _send(self, content: bytes | memoryview) -> None:
        try:
            self._socket.sendall(content)
        except OSError as error:
            raise Gone(str(error)) from error
