"""Poller: one thread that repeatedly checks slow operations of all jobs of an executor."""

import logging
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

#: Returns the seconds until it wants to be called again; None: there is nothing more to look at.
Look = Callable[[], float | None]


class Poller:
    """Calls each function that was given to `watch` until it returns None.

    The thread exists only while there is something to look at.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due_at: dict[Look, float] = {}
        self._thread: threading.Thread | None = None

    def watch(self, look: Look, after_s: float = 0.0) -> None:
        """Call `look` in `after_s` seconds, and then as often as it asks for; a watched one is called then instead.

        Raises `RuntimeError` where no thread can be had; it is called all the same once there is one.
        """
        with self._changed:
            self._due_at[look] = time.monotonic() + after_s
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="punctual-poller", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify()

    def _run(self) -> None:
        while (look := self._next()) is not None:
            try:
                after_s = look()
            except Exception:  # noqa: BLE001 -- what fails for one job must not keep the answers of all others back
                _LOG.exception("a job could not be looked at")
                after_s = None
            if after_s is not None:
                with self._changed:
                    self._due_at.setdefault(look, time.monotonic() + after_s)

    def _next(self) -> Look | None:
        """Wait for the next function that is due and take it out; None: none is left."""
        with self._changed:
            while self._due_at:
                look = min(self._due_at, key=self._due_at.__getitem__)
                wait_s = self._due_at[look] - time.monotonic()
                if wait_s <= 0:
                    del self._due_at[look]
                    return look
                self._changed.wait(wait_s)
            self._thread = None
            return None
