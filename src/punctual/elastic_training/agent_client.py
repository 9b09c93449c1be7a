"""A worker's connection with its agent."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from time import monotonic_ns
from typing import Any

from punctual.elastic_training import links, messages
from punctual.elastic_training.heartbeat_board import N_SLOTS, HeartbeatBoard
from punctual.elastic_training.links import Links
from punctual.elastic_training.membership import Membership, Progress

#: A socket to each server, and what connects workers.
_N_FILES_MAX = N_SLOTS + links.N_FILES_MAX


class AgentClient:
    """A worker's connection with its agent. The base class is for a training without an agent, in the script's own process."""

    @property
    def generation_wanted(self) -> int:
        """Newest generation to be formed; read at each step, costs about a microsecond."""
        return 0

    @property
    def generation_broken(self) -> int:
        """Newest generation that has lost a member; below 0: none has."""
        return -1

    def join(
        self, *, n_steps: int, progress: Progress = None, after_fault: bool = False, has_state: bool = True
    ) -> Membership | None:
        """Tell the agent that this worker is ready for the next generation, and wait until it is formed.

        * `n_steps`: steps this worker's state has behind it; 0 for a newcomer, which takes another's state.
        * `progress`: progress of this worker's copy of the training; the agent names the copy that the others take
          over.
        * `after_fault`: the last generation ended because a collective failed.
        * `has_state`: the training's state is with the workers, and was not lost with its parameter servers.

        Returns None if the worker is not needed any more and should leave.
        """
        return Membership(generation=0, rank=0, n_workers=1, source=-1)

    def stamp(self, n_steps: int, *, waiting: bool) -> None:
        """Show the agent that the worker is alive: at `n_steps`, about to wait for the others or not."""

    def excused(self) -> AbstractContextManager[None]:
        """Excuse the worker inside the block: the others may wait for it, and it is not taken to hang."""
        return nullcontext()

    def finish(self) -> None:
        """Tell the agent that the training function has returned."""


class SocketAgentClient(AgentClient):
    """Client of a managed worker's agent, over a socket.

    * `connection`: keeps messages apart (a socket of type ``SOCK_SEQPACKET``); one JSON object each.
    * `i_slot`: the worker's place on the board.
    """

    def __init__(self, connection: socket.socket, board: HeartbeatBoard, i_slot: int) -> None:
        self._connection = connection
        self._board = board
        self._i_slot = i_slot
        self._has_ended = False
        self._n_excuses = 0
        #: Steps at the last stamp, and when they were first stamped.
        self._n_steps = 0
        self._stepped_ns = 0
        #: Steps behind this generation's beginning, until its first step has been told; -1: not known yet.
        self._n_steps_begun: int | None = None

    @property
    def generation_wanted(self) -> int:
        return self._board.generation_wanted

    @property
    def generation_broken(self) -> int:
        return self._board.generation_broken

    def join(
        self, *, n_steps: int, progress: Progress = None, after_fault: bool = False, has_state: bool = True
    ) -> Membership | None:
        self._board.show(self._i_slot, n_steps, True, monotonic_ns())
        messages.send_or_exit(
            self._connection,
            said="join",
            n_steps=n_steps,
            progress=progress,
            after_fault=after_fault,
            has_state=has_state,
            stepped_ns=self._stepped_ns,
        )
        answer, fds = messages.receive_or_exit(self._connection, _N_FILES_MAX)
        if answer["membership"] is None:
            return None
        membership = _membership(answer["membership"], fds, answer["n_peers"])
        self._n_steps = self._n_steps_begun = -1 if membership.source == -1 else answer["n_steps"]
        self._board.show(self._i_slot, n_steps, False, monotonic_ns())
        return membership

    def stamp(self, n_steps: int, *, waiting: bool) -> None:
        now_ns = monotonic_ns()
        self._board.show(self._i_slot, n_steps, waiting, now_ns)
        if n_steps != self._n_steps:
            self._n_steps = n_steps
            self._stepped_ns = now_ns
            if self._n_steps_begun is not None:
                self._tell_first_step()

    @contextmanager
    def excused(self) -> Iterator[None]:
        self._n_excuses += 1
        self._board.excuse(self._i_slot, True)
        try:
            yield
        finally:
            self._n_excuses -= 1
            if not self._n_excuses:
                last = self._board.heartbeat(self._i_slot)  # from now on it counts again how long it stands still
                self._board.show(self._i_slot, last.n_steps, last.waiting, monotonic_ns())
                self._board.excuse(self._i_slot, False)

    def _tell_first_step(self) -> None:
        """Report the first step's end: it shows where a generation resumed if the agent could not tell."""
        if self._n_steps_begun == -1:
            self._n_steps_begun = self._n_steps
            return
        messages.send_or_exit(self._connection, said="stepped", n_steps=self._n_steps, stepped_ns=self._stepped_ns)
        self._n_steps_begun = None

    def finish(self) -> None:
        self._end(said="finished")

    def fail(self, trace: str) -> None:
        """Report that the training function has raised an exception; `trace` is Python's traceback."""
        # The end of a traceback says what went wrong; each character may take six bytes in a message.
        self._end(said="failed", trace=trace[-8_000:])

    def leave(self, code: int) -> None:
        """Report that the training function ends the process with exit code `code`."""
        self._end(said="left", code=code)

    def _end(self, **words: Any) -> None:
        """Report the end, and wait until the others are done too: they may still need this process's group."""
        if self._has_ended:
            return
        self._has_ended = True
        messages.send_or_exit(self._connection, **words)
        messages.receive_or_exit(self._connection)


def _membership(words: dict[str, Any], fds: Sequence[int], n_peers: int) -> Membership:
    """Decode the agent's message and files: the membership with a worker's links, if any, and its peers."""
    membership = Membership.of(words)
    n_links, i_worker = len(fds) - n_peers, membership.rank - membership.places[membership.i_node].start
    made = Links.of(i_worker, fds[:n_links], is_open=bool(membership.nodes)) if n_links else None
    return replace(membership, links=made, peers=tuple(map(Connection, fds[n_links:])))
