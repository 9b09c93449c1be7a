"""Access to a cluster through another process, so that the cluster's library cannot end the host.

Ray 2.60, for one, aborts a process that asks it for nodes once its head was started again. The other process, the *bridge*, is
replaced when it has ended or hangs; what was asked then counts as not answered. Host and bridge send each other JSON objects
(`punctual.executors.cluster.line_process`):

host
    ``{"id", "node", "name", "request", "limit_s"}``: a request to the agent of the node with this id in the cluster, which has
    that name here; ``{"want": bundles}``; ``{"close": for_good}``, after which the bridge ends, as it does with its input.
bridge
    ``{"id", "answer"}`` or ``{"id", "lost": why}``; ``{"nodes": {id: facts}}`` where these are others than told last; ``{"away":
    why}`` where it cannot tell; ``{"refused": fields}`` of an `InvalidSpec`, before it ends; and ``{}`` where a second would
    pass without a line.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Event
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, Bundle, ChannelLost, NodeChannel, Request
from punctual.executors.cluster.line_process import END_S_MAX, START_S_MAX, LineProcess, Words
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.node_limits import NameOf, NodeFacts
from punctual.executors.cluster.node_names import NodeNames, UsedNode

#: Seconds that a request may take on the way, beyond its own limit.
_WAY_S = 2.0
_STARTS = "the process that talks to the cluster is just starting"
_ENDED = "the process that talks to the cluster has ended"


class BridgedMembers:
    """Members of a cluster, as reported by a bridge process that `command` starts, and named by `names`.

    `silent_s_max`: seconds without a line after which a bridge hangs; jobs on the nodes end after a minute without a word.
    """

    def __init__(self, command: Sequence[str], names: NodeNames, silent_s_max: float = 15.0) -> None:
        self._names = names
        self._loop: LinkLoop | None = None
        self._running: Future[None] = Future()
        self._process = LineProcess(
            command,
            "talks to the cluster",
            self._take,
            first=lambda: [] if self._wanted is None else [{"want": self._wanted}],
            on_end=self._note_end,
            silent_s_max=silent_s_max,
        )
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

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None:
        """Start in `loop` and return once the nodes are known. Raises `InvalidSpec` if the bridge is refused."""
        self._loop, self._name_of = loop, name_of
        self._running = loop.begin(self._process.run())
        self._has_told.wait(START_S_MAX)
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
        if self._loop is not None:
            ending: list[Future[Any]] = [self._loop.begin(self._process.end({"close": for_good})), self._running]
            wait(ending, 2 * END_S_MAX)

    # In the loop.

    async def _ask(self, node: NodeId, request: Request, limit_s: float) -> Answer:
        """Return the answer of the node's agent; raises `ChannelLost` if there is none."""
        is_running, used = self._process.is_running, self._used.get(node)
        if not is_running or used is None:
            raise ChannelLost(self._away or (f"node '{node}' is not there" if is_running else _STARTS))
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            asked = {"id": number, "node": used.id, "name": node, "request": request, "limit_s": limit_s}
            self._process.say(asked)
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
        self._process.say({"want": bundles})

    def _note_end(self) -> None:
        self._away = self._away or f"{_ENDED}, and is started again; jobs go on"
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ChannelLost(_ENDED))

    def _take(self, told: Words) -> None:
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
        elif "refused" in told:
            self._refusal = InvalidSpec.from_fields(told["refused"])
            self._away = str(self._refusal)
        if told:
            self._has_told.set()
