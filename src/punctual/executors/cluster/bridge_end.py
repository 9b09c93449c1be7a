"""The bridge process of `punctual.executors.cluster.bridge`, which talks to the cluster."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from io import FileIO
from typing import Any, Protocol

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge import LINE_BYTES_MAX
from punctual.executors.cluster.channel import Bundle, NodeChannel
from punctual.executors.cluster.link_loop import in_thread
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride

_LOG = logging.getLogger(__name__)

#: Seconds between two queries for the nodes.
_POLL_INTERVAL_S = 1.0


class BridgedCluster(Protocol):
    """A connected cluster; each call may block. Otherwise as `punctual.executors.cluster.channel.Members`."""

    def channels(self) -> Mapping[NodeId, NodeChannel]: ...

    def unnamed(self) -> Mapping[str, NodeFacts]:
        """Return the nodes of the last `channels` that are not used because their names are not known, by their ids."""
        ...

    def name(self, names: Mapping[str, tuple[NodeId, NodeOverride] | None]) -> None:
        """Name nodes, and limit them; None: it is no machine of a pool."""
        ...

    def request(self, bundles: Sequence[Bundle]) -> None: ...

    def close(self, *, for_good: bool) -> None: ...


class ConnectionEnded(Exception):
    """Raised if this process can no longer reach the cluster; another one may."""


def own_output() -> FileIO:
    """Return the standard output, for answers alone: what libraries print there goes to standard error from now on."""
    output = FileIO(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


class BridgeEnd:
    """Performs a host's requests from standard input, until that ends or the host says so.

    * `open_cluster`: connects to the cluster. Raises `InvalidSpec`.
    * `away`: message for the user when the cluster does not report its nodes.
    """

    def __init__(self, open_cluster: Callable[[], BridgedCluster], away: str) -> None:
        self._output = own_output()
        self._open_cluster, self._away = open_cluster, away
        self._nodes: Mapping[NodeId, NodeChannel] = {}
        self._wanted: asyncio.Queue[list[Bundle]] = asyncio.Queue()

    def run(self) -> int:
        """Serve the host and return the exit status."""
        try:
            cluster = self._open_cluster()
        except InvalidSpec as error:
            self._say({"refused": error.as_fields()})
            return 2
        cluster.close(for_good=asyncio.run(self._serve(cluster)))
        return 0

    async def _serve(self, cluster: BridgedCluster) -> bool:
        """Serve requests; return whether the host closes for good: no host comes back to the agents."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        looking = asyncio.create_task(self._look(cluster, reader.feed_eof))
        wanting = asyncio.create_task(self._want(cluster))
        answers: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            asked = json.loads(line)
            if "close" in asked:
                looking.cancel()
                with suppress(TimeoutError):
                    # Seconds that the end waits for the last request for room.
                    await asyncio.wait_for(self._wanted.join(), 2.0)
                wanting.cancel()
                return bool(asked["close"])
            if "names" in asked:
                cluster.name({id: _named(told) for id, told in asked["names"].items()})
                continue
            if "want" in asked:
                self._wanted.put_nowait(asked["want"])
                continue
            task = asyncio.create_task(self._answer(asked))
            answers.add(task)
            task.add_done_callback(answers.discard)
        return False

    async def _want(self, cluster: BridgedCluster) -> None:
        """Request the wanted room from the cluster; a failed request is repeated later unless another replaces it."""
        while True:
            bundles = await self._wanted.get()
            if self._wanted.empty() and not await _is_asked(cluster, bundles):
                await asyncio.sleep(_POLL_INTERVAL_S)
                if self._wanted.empty():
                    self._wanted.put_nowait(bundles)
            self._wanted.task_done()

    async def _look(self, cluster: BridgedCluster, end: Callable[[], None]) -> None:
        """Report the present nodes again and again; calls `end` once the cluster cannot be reached any more."""
        while True:
            looked = asyncio.ensure_future(in_thread(cluster.channels))
            # Seconds of a query until it is reported as long.
            done, _ = await asyncio.wait([looked], timeout=10.0)
            if not done:
                self._say({"away": self._away})
            try:
                self._nodes = await looked
                self._say({"nodes": list(self._nodes)})
                if unnamed := cluster.unnamed():
                    self._say({"unnamed": {id: asdict(facts) for id, facts in unnamed.items()}})
            except ConnectionEnded:
                self._say({"away": self._away})
                return end()
            except InvalidSpec as error:
                self._say({"away": str(error)})
            except Exception as error:  # noqa: BLE001 -- whatever the cluster's library raises
                self._say({"away": f"{self._away} ({type(error).__name__})"})
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        node = NodeId(asked["node"])
        told: dict[str, Any]
        if (channel := self._nodes.get(node)) is None:
            told = {"lost": f"node '{node}' is not there"}
        else:
            try:
                told = {"answer": await channel(asked["request"], asked["limit_s"])}
            except Exception as error:  # noqa: BLE001 -- the host is to hear of it, whatever it is
                told = {"lost": str(error) or type(error).__name__}
        self._say({"id": asked["id"], **told})

    def _say(self, words: Mapping[str, Any]) -> None:
        """Write whole lines; blocks while the host does not read."""
        line = memoryview(json.dumps(words).encode() + b"\n")
        while line:
            line = line[self._output.write(line) :]


def _named(told: tuple[str, dict[str, Any]] | None) -> tuple[NodeId, NodeOverride] | None:
    return None if told is None else (NodeId(told[0]), NodeOverride(**told[1]))


async def _is_asked(cluster: BridgedCluster, bundles: Sequence[Bundle]) -> bool:
    try:
        await in_thread(partial(cluster.request, bundles))
    except Exception:  # noqa: BLE001 -- whatever the cluster's library raises
        _LOG.exception("the cluster cannot be asked for more nodes; it is asked again")
        return False
    return True
