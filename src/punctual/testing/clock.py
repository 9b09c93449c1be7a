"""A clock that is moved by hand, or by waiting."""

from queue import Empty, SimpleQueue

from punctual.core.events import Event


class FakeClock:
    """Jumps to the next timer as soon as there is nothing else to do, so that a minute of a run takes no time.

    Only for loops whose events come from the loop's own thread: an event from another one may find the clock ahead.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, by_s: float) -> None:
        self._now += by_s

    def wait(self, mailbox: SimpleQueue[Event], until_at: float | None) -> Event | None:
        """The next event, or the jump to `until_at`.

        Raises
        ------
        RuntimeError
            There is neither: a real clock would wait for ever.
        """
        try:
            return mailbox.get_nowait()
        except Empty:
            if until_at is None:
                raise RuntimeError("the loop waits, and no timer is set and no event under way") from None
            self._now = max(self._now, until_at)
            return None
