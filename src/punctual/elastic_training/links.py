"""Links between the workers of one generation on one node: the agent makes them, and hands them over as open files.

Nobody else can reach it: no socket listens, and neither memory nor sockets are in the file system. Who may open them
through /proc may as well read the workers' memory: the job's own user, and root.
"""

import os
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

#: Workers form a tree in which each has at most so many below it: up to nine workers all wait for the first.
FAN_OUT = 8
#: Most files that a worker is handed: memory, a socket that listens, and sockets to the one above it and to those below.
N_FILES_MAX = 3 + FAN_OUT
#: Bytes that a worker writes at once. Longer, and fewer waits make sums of large models faster; but each page of it is
#: new in each generation, and a change of a small training slower.
SLOT_BYTES = 2 << 20
#: Slots of a worker, used in turns: one is written while others still read the other.
N_TURNS = 2


@dataclass(frozen=True, slots=True)
class Links:
    """One worker's links.

    * `memory_fd`: memory that all workers of the generation map, `n_memory_bytes` long; whoever maps it closes it.
    * `parent`, `children`: sockets to the workers that this one waits for: the one above it in the tree, None for the
      first worker, and those below it.
    * `listening`: socket to which other nodes connect, for the first worker of a node if there are several.
    """

    memory_fd: int
    parent: socket.socket | None
    children: tuple[socket.socket, ...]
    listening: socket.socket | None = None

    @classmethod
    def of(cls, i_worker: int, fds: Sequence[int], *, is_open: bool = False) -> "Links":
        """Return the links of the node's worker `i_worker` from its files; `is_open`: there are several nodes."""
        memory_fd, *others = fds
        sockets = [socket.socket(fileno=fd) for fd in others]
        listening = sockets.pop() if is_open and i_worker == 0 else None
        parent = sockets.pop(0) if i_worker else None
        return cls(memory_fd, parent, tuple(sockets), listening)

    @property
    def connections(self) -> list[socket.socket]:
        return [*([] if self.parent is None else [self.parent]), *self.children]

    def close(self) -> None:
        """Close the sockets; waiting workers notice it even if another process has a copy."""
        for connection in self.connections:
            with suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def n_memory_bytes(n_workers: int) -> int:
    return N_TURNS * n_workers * SLOT_BYTES


def make(
    n_workers: int,
    opened: ExitStack,
    *,
    n_servers: int = 0,
    n_everywhere: int = 0,
    listening: socket.socket | None = None,
) -> list[list[int]]:
    """Make the files for each worker and then each server, open until `opened` ends. A single worker needs none.

    A worker has sockets to all servers after its `Links`, and a server one to each worker.

    * `n_workers`: workers of this node.
    * `n_everywhere`, `listening`: if there are other nodes: the number of all workers, and the socket to which those of
      others connect.
    """
    opened.enter_context(_room_for_files())
    fds: list[list[int]] = [[] for _ in range(n_workers + n_servers)]

    def connect(i: int, j: int) -> None:
        for owner, end in zip((i, j), socket.socketpair(), strict=True):
            fds[owner].append(opened.enter_context(end).fileno())

    if n_workers > 1 or listening is not None:
        memory_fd = os.memfd_create("punctual-links")
        opened.callback(os.close, memory_fd)
        # Mode of the files: any other reader could read all weights.
        os.fchmod(memory_fd, 0o600)
        os.truncate(memory_fd, n_memory_bytes(n_everywhere or n_workers))
        for files in fds[:n_workers]:
            files.append(memory_fd)
    for rank in range(1, n_workers):
        connect(rank, (rank - 1) // FAN_OUT)
    if listening is not None:
        fds[0].append(listening.fileno())
    for i_worker in range(n_workers):
        for i_server in range(n_workers, n_workers + n_servers):
            connect(i_worker, i_server)
    return fds


@contextmanager
def _room_for_files() -> Iterator[None]:
    """Raise this process's limit of open files to the greatest: all ends of all connections are open here at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
