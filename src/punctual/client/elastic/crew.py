"""The workers that an agent looks after, and which of them hang."""

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from punctual.client.elastic.board import Board

#: A worker is *starting* until it first joins, *ready* while it waits for the next generation, *training* in one,
#: *leaving* once it was told to, and *through* when its training function has ended and it waits for the others.
WorkerState = Literal["starting", "ready", "training", "leaving", "through"]


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, from the wish for it to its end.

    Attributes
    ----------
    number
        Counts the workers that were ever started.
    i_slot
        Its place on the board, and the device it uses.
    link
        The agent's end of its link.
    since_ns
        When its state last changed.
    pid
        0 until it was forked.
    n_steps
        Steps behind its state when it last joined.
    has_hung
        Whether it is being ended because it stood still.
    """

    number: int
    i_slot: int
    link: socket.socket
    since_ns: int
    pid: int = 0
    state: WorkerState = "starting"
    n_steps: int = 0
    has_hung: bool = False

    def become(self, state: WorkerState, now_ns: int) -> None:
        self.state, self.since_ns = state, now_ns

    def has_been(self, seconds: float, now_ns: int) -> bool:
        """Whether it has been in its state for longer than that."""
        return now_ns - self.since_ns > seconds * 1e9

    def hear(self, n_bytes_max: int) -> bytes:
        """Its next message; empty: it has ended."""
        try:
            return self.link.recv(n_bytes_max)
        except OSError:
            return b""

    def tell(self, **words: Any) -> None:
        """Answer it."""
        with suppress(OSError):  # it has died meanwhile, which shows otherwise
            self.link.send(json.dumps(words).encode())


def hung(members: Sequence[Worker], board: Board, now_ns: int, hang_ns: int) -> list[Worker]:
    """The members that must be the reason why the others have waited for longer than `hang_ns`.

    Those that have stood still for as long and do not wait. If all wait in the same step, one of them only seems to:
    those that were stopped from outside, or else the last by rank. Whoever is left joins again, or is the next.
    """
    silent = [one for one in members if now_ns - max(board.stamp(one.i_slot).stamp_ns, one.since_ns) > hang_ns]
    patient = [one for one in silent if one.state == "ready" or board.stamp(one.i_slot).waiting]
    still = [one for one in silent if one not in patient and one.state == "training"]
    in_step = [one for one in patient if one.state == "training"]
    if still and patient:
        return still
    if in_step and len(silent) == len(members) > 1:
        return [one for one in in_step if _is_stopped(one.pid)] or in_step[-1:]
    return []


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False
