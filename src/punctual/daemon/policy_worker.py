"""The process that runs a policy for `punctual.daemon.planner.ProcessPlanner`: ``-m punctual.daemon.policy_worker``.

It ends with the process that started it, however that ends. Requests and answers are frames on a socket: a length of
eight bytes and the content. A request is a pickled snapshot, for a plan, or a pickled request for a quote; an answer is
JSON, because whoever asks does not trust it.
"""

import ctypes
import json
import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.codec import encode
from punctual.core.events import PlanProposed
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.quoting import QuoteRequest, refusing_guarantees

_N_LENGTH_BYTES = 8


class Channel:
    """Frames on a socket, in both directions."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        #: Bytes received of the next frame.
        self._received = bytearray()

    def set_timeout(self, timeout_s: float) -> None:
        """Raise `TimeoutError` from now on if sending or receiving takes longer."""
        self._connection.settimeout(timeout_s)

    def send(self, content: bytes) -> None:
        """Send one frame; raises `OSError`. After a timeout the channel is unusable."""
        self._connection.sendall(len(content).to_bytes(_N_LENGTH_BYTES, "big") + content)

    def receive(self) -> bytes:
        """Return the next frame; after a timeout the call may be repeated.

        * Raises `EOFError`: the other side is gone.
        * Raises `ValueError`: the frame is too long.
        * Raises `OSError`: the timeout is over, or the channel is broken.
        """
        self._fill(_N_LENGTH_BYTES)
        n_bytes = int.from_bytes(self._received[:_N_LENGTH_BYTES], "big")
        # Longer than any plan; a longer answer is no answer of ours.
        if n_bytes > 1 << 28:
            raise ValueError(f"a frame of {n_bytes} bytes")
        self._fill(_N_LENGTH_BYTES + n_bytes)
        content, self._received = bytes(self._received[_N_LENGTH_BYTES:]), bytearray()
        return content

    def _fill(self, n_bytes: int) -> None:
        while len(self._received) < n_bytes:
            part = self._connection.recv(min(n_bytes - len(self._received), 1 << 20))
            if not part:
                raise EOFError
            self._received += part

    def close(self) -> None:
        self._connection.close()


def end_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent, `parent`, ends; False: the parent has ended already."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    return os.getppid() == parent


def main(descriptor: str, parent: str, policy: str, parameters: str) -> None:
    """Answer requests until the other side closes the channel."""
    if not end_with(int(parent)):
        return
    channel = Channel(socket.socket(fileno=int(descriptor)))
    try:
        made = registry.load("policies", policy)(**json.loads(parameters))
    except Exception as error:  # noqa: BLE001 -- a policy is a plug-in
        channel.send(_said("unmade", error))
        return
    channel.send(json.dumps({"ready": True}).encode())
    with suppress(EOFError, OSError):
        while True:
            channel.send(_answer(made, channel.receive()))


def _answer(policy: Policy, request: bytes) -> bytes:
    try:
        question = pickle.loads(request)  # noqa: S301 -- from the process that started this one
        if isinstance(question, QuoteRequest):
            return json.dumps({"quote": asdict(question.answer(policy))}).encode()
        snapshot: Snapshot = question
        plan: object = policy.allocate(snapshot)
        if not isinstance(plan, Plan):
            return _said("failure", f"it returned {type(plan).__name__}, not a plan")
        plan = refusing_guarantees(plan, snapshot)
        return json.dumps(
            {"plan": encode(PlanProposed(at=snapshot.at, plan=plan, revision=snapshot.revision))}
        ).encode()
    except Exception as error:  # noqa: BLE001 -- a policy is a plug-in: its failure is an answer
        return _said("failure", error)


def _said(word: str, why: Exception | str) -> bytes:
    text = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
    return json.dumps({word: text[:1000]}).encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
