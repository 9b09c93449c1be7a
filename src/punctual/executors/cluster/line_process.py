"""A process beside the host that exchanges JSON objects with it, a line each, and is replaced when it has ended or hangs."""

import asyncio
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from punctual.core.units import span

_LOG = logging.getLogger(__name__)

#: Longest line: an answer has a part of the logs of all jobs of a node.
LINE_BYTES_MAX = 1 << 28
#: Seconds until a process's first line, until its end, and between two processes.
START_S_MAX, END_S_MAX, _AGAIN_S = 90.0, 10.0, 1.0

Words = Mapping[str, Any]


class LineProcess:
    """A process that `command` starts, in the loop in which `run` runs.

    * `name`: name for the log.
    * `take`: called with each object that it sends.
    * `first`: returns the objects that each new process is sent first.
    * `on_end`: called when a process has ended.
    * `silent_s_max`: seconds without a line after which it hangs, is killed and replaced; one that has nothing to tell sends ``{}``.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        take: Callable[[Words], None],
        *,
        first: Callable[[], Iterable[Words]],
        on_end: Callable[[], None],
        silent_s_max: float,
    ) -> None:
        self._command, self._name, self._take = tuple(command), name, take
        self._first, self._on_end, self._silent_s_max = first, on_end, silent_s_max
        self._process: Process | None = None
        self._is_over = False

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def say(self, words: Words) -> None:
        """Send an object, unless no process runs: `first` tells the next one."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")

    async def run(self) -> None:
        """Have a process run until `end`."""
        while not self._is_over:
            try:
                await self._run_one()
            except Exception:  # noqa: BLE001 -- another one is started: without it the cluster is lost to this host
                _LOG.exception("the process that %s cannot be used", self._name)
            self._on_end()
            if not self._is_over:
                await asyncio.sleep(_AGAIN_S)

    async def end(self, *last: Words) -> bool:
        """Send the last objects and the end of the input, and start no other process; return whether this one ends well."""
        self._is_over, process = True, self._process
        if process is None:
            return False
        assert process.stdin is not None
        with suppress(OSError, TimeoutError):
            for words in last:
                self.say(words)
            process.stdin.close()
            async with asyncio.timeout(END_S_MAX):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait() == 0

    async def _run_one(self) -> None:
        """Start a process, and take its lines until it has ended or hangs."""
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX, start_new_session=True
        )
        self._process = process
        assert process.stdout is not None
        if self._is_over:
            process.kill()
        for words in self._first():
            self.say(words)
        limit_s = START_S_MAX
        try:
            while True:
                async with asyncio.timeout(limit_s):
                    line = await process.stdout.readline()
                if not line:
                    break
                limit_s = self._silent_s_max
                self._take(json.loads(line))
            # It tells by its exit status whether it has ended well.
            self._process, limit_s = None, END_S_MAX
            async with asyncio.timeout(limit_s):
                await process.wait()
        except TimeoutError:
            _LOG.warning("the process that %s hangs: no word for %s. It is replaced", self._name, span(limit_s))
        finally:
            self._process = None
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
