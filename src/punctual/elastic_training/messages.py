"""Messages between an agent, its forkserver and its workers, over sockets that keep them apart (``SOCK_SEQPACKET``).

One JSON object each, with open files; the other side may be gone at any time.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

#: The longest message.
_BYTES_MAX = 65_536


def send(connection: socket.socket, words: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
    """Send a message; return whether the other side is still there."""
    try:
        socket.send_fds(connection, [json.dumps(words).encode()], fds)
    except OSError:
        return False
    return True


def send_or_exit(connection: socket.socket, **words: Any) -> None:
    """Send the agent a message; if it is gone, end this process."""
    if not send(connection, words):
        os._exit(os.EX_SOFTWARE)  # nobody sees it


def receive(connection: socket.socket, n_fds_max: int = 0) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its files; None: the other side is gone."""
    try:
        text, fds, _, _ = socket.recv_fds(connection, _BYTES_MAX, n_fds_max, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None, []
    return (json.loads(text) if text else None), fds


def receive_or_exit(connection: socket.socket, n_fds_max: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Return the agent's next message and its files; if it is gone, end this process."""
    words, fds = receive(connection, n_fds_max)
    if words is None:
        os._exit(os.EX_SOFTWARE)
    return words, fds


def send_file(connection: socket.socket, content: bytes) -> None:
    """Send what may be longer than a message, as a file."""
    with os.fdopen(os.memfd_create("punctual-object"), "wb") as file:
        file.write(content)
        file.flush()
        send(connection, {}, [file.fileno()])
