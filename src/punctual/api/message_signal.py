"""Waiting, in an event loop, for the messages of a host, which come in another thread."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress


class MessageSignal:
    """Wakes everybody who waits; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._waiters: frozenset[Waiter] = frozenset()

    def notify(self, message: object = None) -> None:
        """Wake all who wait for a message of this kind; None: all who wait."""
        kind = None if message is None else type(message).__name__
        for waiter in self._waiters:
            if kind is None or kind in waiter.kinds:
                waiter.notify()

    @contextmanager
    def waiter(self, kinds: Collection[str]) -> Iterator["Waiter"]:
        """Somebody who is woken for messages of these kinds; to be used in one event loop."""
        waiter = Waiter(kinds)
        self._waiters |= {waiter}
        try:
            yield waiter
        finally:
            self._waiters -= {waiter}


class Waiter:
    """Waits in the event loop that runs now, for messages of some kinds."""

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = kinds
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_notified = False

    def notify(self) -> None:
        """Wake it; costs next to nothing if it was woken before and has not looked since."""
        if not self._is_notified:
            self._is_notified = True
            with suppress(RuntimeError):  # its loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    def look(self) -> None:
        """Say that what has happened so far will be looked at after this."""
        self._event.clear()
        self._is_notified = False

    async def wait(self, most_s: float) -> bool:
        """Whether it was woken since `look`, within `most_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                return await self._event.wait()
        return False
