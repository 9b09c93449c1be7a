"""Limits of a caller's requests."""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from threading import Lock
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one service.

    * `body_bytes`: greatest length of a request's body.
    * `requests_per_s`, `n_burst`: requests of one token: in the long run, and at once.
    * `n_streams`, `n_streams_each`: streams (events, followed logs) that may be open: in all, and of one token.
    * `n_connections`: connections of each kind, TCP and the user's own.
    * `request_s`: seconds that a caller may take to send a request.
    """

    body_bytes: int = 1 << 20
    requests_per_s: float = 500.0
    n_burst: int = 1000
    n_streams: int = 64
    n_streams_each: int = 16
    n_connections: int = 256
    request_s: float = 10.0


class LimitedSocket(socket.socket):
    """Listening socket that ends surplus connections at once, encrypted or not."""

    #: Open connections, at most.
    n_connections: int = Limits().n_connections
    _open: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; raises `ConnectionAbortedError` if it is one too many."""
        connection, place = super().accept()
        self._open = tuple(other for other in self._open if other.fileno() >= 0)  # else it was closed meanwhile
        if len(self._open) >= self.n_connections:
            connection.close()
            raise ConnectionAbortedError("too many connections are open")
        self._open += (connection,)
        return connection, place


class RequestRate:
    """Limits each caller's rate of requests: unused ones are saved up to a burst."""

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._now = limits, now
        #: Requests that each caller may send at once, and the instant of that number.
        self._saved: dict[str, tuple[float, float]] = {}

    def wait_s(self, caller: str) -> float:
        """Take a request of the caller: 0 if it is admitted, else the seconds to wait."""
        now, limits = self._now(), self._limits
        saved, reckoned_at = self._saved.get(caller, (float(limits.n_burst), now))
        saved = min(limits.n_burst, saved + (now - reckoned_at) * limits.requests_per_s)
        may_ask = saved >= 1.0
        self._saved[caller] = (saved - may_ask, now)
        return 0.0 if may_ask else (1.0 - saved) / limits.requests_per_s


class OpenStreams:
    """Counter of open streams; for one thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._n_of = Counter[str]()

    def has_room(self, caller: str) -> bool:
        """Whether the caller may open another stream."""
        return self._n_of.total() < self._limits.n_streams and self._n_of[caller] < self._limits.n_streams_each

    @contextmanager
    def counted(self, caller: str) -> Iterator[None]:
        """Count a stream of the caller as open while the block runs."""
        self._n_of[caller] += 1
        try:
            yield
        finally:
            self._n_of[caller] -= 1


class SingleFlight:
    """Gives a costly task to one caller at a time, with a pause of equal length after it: half a core at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        #: Instant from which it is free; None: a caller has the turn.
        self._free_at: float | None = -float("inf")

    @contextmanager
    def turn(self) -> Iterator[int]:
        """Yield 0 if it is the caller's turn for the block, else the seconds to wait."""
        begun_at = self._now()
        with self._lock:
            wait_s = 1 if self._free_at is None else ceil(max(0.0, self._free_at - begun_at))
            if not wait_s:
                self._free_at = None
        try:
            yield wait_s
        finally:
            if not wait_s:
                with self._lock:
                    self._free_at = 2 * self._now() - begun_at
