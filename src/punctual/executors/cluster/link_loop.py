"""Event loop, in a thread of its own, that talks to all nodes of a cluster."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class LinkLoop:
    """An event loop in a thread of its own; usable from any thread. After `close`, calls do nothing."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        #: Guards against what comes while the loop is closed.
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="punctual-links", daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine in the loop; return the future of its result."""
        with self._lock:
            if self._is_closed:
                coroutine.close()
                ended: Future[T] = Future()
                ended.set_exception(CancelledError())
                return ended
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call a function soon, in the order of these calls."""
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(function, *arguments)

    def close(self, limit_s: float) -> None:
        """Cancel running coroutines; returns when they have ended, or after about `limit_s` seconds."""
        wait([self.begin(_cancel_others())], limit_s)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(limit_s)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a blocking function in a thread and return its result; the thread delays not even this process's end."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(method: Callable[[Any], None], value: object) -> None:
        if not answer.done():  # nobody waits any more
            method(value)

    def run() -> None:
        try:
            settled = answer.set_result, function(*arguments)
        except Exception as error:  # noqa: BLE001 -- it is raised where the answer is awaited
            settled = answer.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, *settled)

    threading.Thread(target=run, name="punctual-call", daemon=True).start()
    return await answer
