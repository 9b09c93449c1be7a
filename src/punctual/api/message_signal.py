"""Signal that lets an event loop wait for a host's messages, which come in another thread."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress


class MessageSignal:
    """Wakes all waiters; `notify` may be called from any thread."""

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
        """Yield a waiter for messages of these kinds; to be used in one event loop."""
        waiter = Waiter(kinds)
        self._waiters |= {waiter}
        try:
            yield waiter
        finally:
            self._waiters -= {waiter}


class Waiter:
    """Waits in the running event loop for messages of some kinds."""

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = kinds
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_notified = False

    def notify(self) -> None:
        """Wake the waiter; costs next to nothing if it was woken before and has not looked since."""
        if not self._is_notified:
            self._is_notified = True
            with suppress(RuntimeError):  # its loop has ended
                self._loop.call_soon_threadsafe(self._event.set)

    def look(self) -> None:
        """Clear the signal before reading all that has happened so far."""
        self._event.clear()
        self._is_notified = False

    async def wait(self, most_s: float) -> bool:
        """Wait at most `most_s` seconds; return whether it was woken since `look`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                return await self._event.wait()
        return False
