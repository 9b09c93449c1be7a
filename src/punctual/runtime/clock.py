"""Time as the loop sees it."""

import time
from queue import Empty, SimpleQueue
from typing import Protocol

from punctual.core.events import Event

#: Longest wait in one go, in seconds: the operating system refuses very long ones.
_WAIT_S_MAX = 3600.0


class WaitingClock(Protocol):
    """A clock that can also wait. That is one thing and not two, because a fake clock jumps where a real one sleeps."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wait(self, mailbox: SimpleQueue[Event], until_at: float | None) -> Event | None:
        """The next event; None if there is none before instant `until_at` (None: wait for an event)."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, which all its processes share."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, mailbox: SimpleQueue[Event], until_at: float | None) -> Event | None:
        timeout_s = _WAIT_S_MAX if until_at is None else min(max(0.0, until_at - self.now()), _WAIT_S_MAX)
        try:
            return mailbox.get(timeout=timeout_s)
        except Empty:
            return None
