"""Access to a cluster through another process, so that the cluster's library cannot end the host.

Ray, for one, ends a process that has asked it something when its head was started again meanwhile. The other process, the
*bridge*, is started again when it has ended; what was asked then counts as not answered. Host and bridge send each other JSON
objects, a line each:

host
    ``{"id", "node", "request", "limit_s"}``; ``{"want": bundles}``; ``{"names": {id: [name, limits]}}``, null for a node that
    is no machine of a pool; ``{"close": for_good}``, after which the bridge ends, as it does with its input.
bridge
    ``{"id", "answer"}`` or ``{"id", "lost": why}``; ``{"nodes": names}`` about once a second; ``{"unnamed": {id: facts}}``, nodes
    that it does not use until the host has named them; ``{"away": why}`` where it cannot tell;
    ``{"refused": fields}`` of an `InvalidSpec`, before it ends.
"""

import asyncio
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from threading import Event
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, Bundle, ChannelLost, NodeChannel, Request
from punctual.executors.cluster.link_loop import LinkLoop, in_thread
from punctual.executors.cluster.node_limits import NameOf, NodeFacts

_LOG = logging.getLogger(__name__)

#: An answer has a part of the logs of all jobs of a node.
LINE_BYTES_MAX = 1 << 28
#: Seconds until a bridge's first message, until its end, and between two bridges.
_START_S_MAX, _END_S_MAX, _AGAIN_S = 90.0, 5.0, 1.0
#: Seconds that a request may take on the way, beyond its own limit.
_WAY_S = 2.0
_STARTS, _ENDED = (
    "the process that talks to the cluster is just starting",
    "the process that talks to the cluster has ended",
)


class BridgedMembers:
    """Members of a cluster, as reported by a bridge process that `command` starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._loop: LinkLoop | None = None
        self._running: Future[None] = Future()
        self._process: Process | None = None
        self._number = 0
        #: Unanswered requests, by number.
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._nodes: frozenset[NodeId] = frozenset()
        #: Why the nodes cannot be told; empty: they can.
        self._away = _STARTS
        self._refusal: InvalidSpec | None = None
        self._has_told = Event()
        #: Bundles to request from the cluster, sent to each new bridge; None: no request was made.
        self._wanted: list[Bundle] | None = None
        self._name_of: NameOf | None = None
        self._is_over = False

    def name_by(self, name_of: NameOf) -> None:
        """Have nodes named by this function, which is called in a thread."""
        self._name_of = name_of

    def open(self, loop: LinkLoop) -> None:
        """Start in `loop` and return once the nodes are known. Raises `InvalidSpec` if the bridge is refused."""
        self._loop = loop
        self._running = loop.begin(self._run())
        self._has_told.wait(_START_S_MAX)
        if self._refusal is not None:
            self.close(for_good=False)
            raise self._refusal

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        """Return the channel of each present node; raises `ChannelLost` if the nodes are unknown."""
        if self._away:
            raise ChannelLost(self._away)
        return {node: partial(self._ask, node) for node in self._nodes}

    def request(self, bundles: Sequence[Bundle]) -> None:
        """Request room for all of these from the cluster; returns at once."""
        assert self._loop is not None
        self._loop.call(self._want, list(bundles))

    def close(self, *, for_good: bool) -> None:
        """Release the nodes; `for_good`: no host comes back to the agents."""
        self._is_over = True
        if self._loop is not None:
            wait([self._loop.begin(self._end(for_good)), self._running], 2 * _END_S_MAX)

    # In the loop.

    async def _ask(self, node: NodeId, request: Request, limit_s: float) -> Answer:
        """Return the answer of the node's agent; raises `ChannelLost` if there is none."""
        process = self._process
        if process is None:
            raise ChannelLost(self._away or _STARTS)
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._say(process, {"id": number, "node": node, "request": request, "limit_s": limit_s})
            async with asyncio.timeout(limit_s + _WAY_S):
                return await answer
        except (OSError, TimeoutError) as error:
            raise ChannelLost(
                f"no answer from the process that talks to the cluster: {type(error).__name__}"
            ) from error
        finally:
            del self._asked[number]

    def _want(self, bundles: list[Bundle]) -> None:
        self._wanted = bundles
        if self._process is not None:
            self._say(self._process, {"want": bundles})

    async def _name(self, unnamed: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell the bridge which machines these nodes are; it asks again for those that cannot be told."""
        names: dict[str, Any] = {}
        for id, facts in unnamed.items():
            try:
                named = await in_thread(self._name_of or (lambda _: None), NodeFacts(**facts))
            except Exception:  # noqa: BLE001 -- whatever a provider raises
                _LOG.exception("node '%s' cannot be named", id)
                continue
            names[id] = None if named is None else [named[0], asdict(named[1])]
        if self._process is not None and names:
            self._say(self._process, {"names": names})

    def _say(self, process: Process, words: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")

    async def _run(self) -> None:
        while not self._is_over:
            try:
                await self._have_one()
            except Exception:  # noqa: BLE001 -- another one is started: without it the cluster is lost to this host
                _LOG.exception("the process that talks to the cluster cannot be used")
            self._away = self._away or f"{_ENDED}, and is started again; jobs go on"
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(ChannelLost(_ENDED))
            if not self._is_over:
                await asyncio.sleep(_AGAIN_S)

    async def _have_one(self) -> None:
        """Start a bridge, and read its messages until it has ended."""
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX, start_new_session=True
        )
        self._process = process
        if self._wanted is not None:
            self._want(self._wanted)
        try:
            await self._listen(process)
        finally:
            self._process = None
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _listen(self, process: Process) -> None:
        """Process the bridge's messages until it has ended."""
        assert process.stdout is not None
        async with asyncio.timeout(_START_S_MAX):
            line = await process.stdout.readline()
        while line:
            self._take(json.loads(line))
            line = await process.stdout.readline()

    def _take(self, told: Mapping[str, Any]) -> None:
        if "id" in told:
            answer = self._asked.get(told["id"])
            if answer is None or answer.done():
                return
            if "lost" in told:
                answer.set_exception(ChannelLost(told["lost"]))
            else:
                answer.set_result(told["answer"])
            return
        if "unnamed" in told:
            asyncio.get_running_loop().create_task(self._name(told["unnamed"]))
            return
        if "nodes" in told:
            self._nodes, self._away = frozenset(map(NodeId, told["nodes"])), ""
        elif "away" in told:
            self._away = str(told["away"])
        else:
            refusal = InvalidSpec.from_fields(told["refused"])
            self._refusal, self._away = refusal, str(refusal)
        self._has_told.set()

    async def _end(self, for_good: bool) -> None:
        process = self._process
        if process is None:
            return
        with suppress(OSError, TimeoutError):
            self._say(process, {"close": for_good})
            async with asyncio.timeout(_END_S_MAX):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
