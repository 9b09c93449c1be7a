"""Access to a cluster through another process, so that the cluster's library cannot end the host.

Ray, for one, ends a process that has asked it something when its head was started again meanwhile. The other process, the
*bridge*, is started again when it has ended; what was asked then counts as not answered. Host and bridge send each other JSON
objects, a line each:

host
    ``{"id", "node", "name", "request", "limit_s"}``: a request to the agent of the node with this id in the cluster, which has
    that name here; ``{"want": bundles}``; ``{"close": for_good}``, after which the bridge ends, as it does with its input.
bridge
    ``{"id", "answer"}`` or ``{"id", "lost": why}``; ``{"nodes": {id: facts}}`` about once a second; ``{"away": why}`` where it
    cannot tell; ``{"refused": fields}`` of an `InvalidSpec`, before it ends.
"""

import asyncio
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, Bundle, ChannelLost, NodeChannel, Request
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.node_limits import NameOf, NodeFacts
from punctual.executors.cluster.node_names import NodeNames, UsedNode

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
    """Members of a cluster, as reported by a bridge process that `command` starts, and named by `names`."""

    def __init__(self, command: Sequence[str], names: NodeNames) -> None:
        self._command, self._names = tuple(command), names
        self._loop: LinkLoop | None = None
        self._running: Future[None] = Future()
        self._process: Process | None = None
        self._number = 0
        #: Unanswered requests, by number.
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        #: Nodes that are there, by their ids in the cluster, and those of them that are used.
        self._nodes: Mapping[str, NodeFacts] = {}
        self._used: Mapping[NodeId, UsedNode] = {}
        #: Why the nodes cannot be told; empty: they can.
        self._away = _STARTS
        self._refusal: InvalidSpec | None = None
        self._has_told = Event()
        #: Bundles to request from the cluster, sent to each new bridge; None: no request was made.
        self._wanted: list[Bundle] | None = None
        self._name_of: NameOf | None = None
        self._is_over = False

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None:
        """Start in `loop` and return once the nodes are known. Raises `InvalidSpec` if the bridge is refused."""
        self._loop, self._name_of = loop, name_of
        self._running = loop.begin(self._run())
        self._has_told.wait(_START_S_MAX)
        if self._refusal is not None:
            self.close(for_good=False)
            raise self._refusal

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        """Return the channel of each present node; raises `ChannelLost` if the nodes are unknown."""
        if self._away:
            raise ChannelLost(self._away)
        self._used = self._names.used(self._nodes, self._name_of)
        return {node: partial(self._ask, node) for node in self._used}

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
        process, used = self._process, self._used.get(node)
        if process is None or used is None:
            raise ChannelLost(self._away or (_STARTS if process is None else f"node '{node}' is not there"))
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            asked = {"id": number, "node": used.id, "name": node, "request": request, "limit_s": limit_s}
            self._say(process, asked)
            async with asyncio.timeout(limit_s + _WAY_S):
                return used.limit.applied(await answer)
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
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_S_MAX):
                line = await process.stdout.readline()
            while line:
                self._take(json.loads(line))
                line = await process.stdout.readline()
        finally:
            self._process = None
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()

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
        if "nodes" in told:
            self._nodes, self._away = {id: NodeFacts(**facts) for id, facts in told["nodes"].items()}, ""
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
