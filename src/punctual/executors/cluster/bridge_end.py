"""The bridge process of `punctual.executors.cluster.bridge`, which talks to the cluster."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from typing import Any, Protocol

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, Bundle, Request
from punctual.executors.cluster.line_process import LINE_BYTES_MAX
from punctual.executors.cluster.link_loop import in_thread
from punctual.executors.cluster.node_limits import NodeFacts

_LOG = logging.getLogger(__name__)


class BridgedCluster(Protocol):
    """A connected cluster; each call but `ask` may block."""

    def nodes(self) -> Mapping[str, NodeFacts]:
        """Return the nodes that are there, by their ids."""
        ...

    async def ask(self, id: str, name: NodeId, request: Request, limit_s: float) -> Answer:
        """Return the answer of the agent of a node with this id and name; raises `ChannelLost` if none comes in about the time."""
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
    * `away_s_max`: seconds without an answer about the nodes after which another process is to try; Ray itself ends one that
      cannot reach its head for a minute.
    """

    def __init__(self, open_cluster: Callable[[], BridgedCluster], away: str, away_s_max: float = 90.0) -> None:
        self._output = own_output()
        self._open_cluster, self._away, self._away_s_max = open_cluster, away, away_s_max
        #: Bundles to request from the cluster, and those that were; None: none.
        self._wanted: list[Bundle] | None = None
        self._requested: list[Bundle] | None = None

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
                wanting.cancel()
                with suppress(TimeoutError):
                    # Seconds that the end waits for the last request for room.
                    await asyncio.wait_for(self._request(cluster), 2.0)
                return bool(asked["close"])
            if "want" in asked:
                self._wanted = asked["want"]
                continue
            task = asyncio.create_task(self._answer(cluster, asked))
            answers.add(task)
            task.add_done_callback(answers.discard)
        return False

    async def _want(self, cluster: BridgedCluster) -> None:
        """Request the wanted room again and again, beside the reports of nodes: a request may take long."""
        while True:
            await self._request(cluster)
            # Seconds until a request that failed is repeated.
            await asyncio.sleep(1.0)

    async def _request(self, cluster: BridgedCluster) -> None:
        """Request the wanted room from the cluster, unless it was; what fails is repeated later."""
        if (wanted := self._wanted) is None or wanted == self._requested:
            return
        try:
            await in_thread(cluster.request, wanted)
            self._requested = wanted
        except Exception:  # noqa: BLE001 -- whatever the cluster's library raises
            _LOG.exception("the cluster cannot be asked for more nodes; it is asked again")

    async def _look(self, cluster: BridgedCluster, end: Callable[[], None]) -> None:
        """Report the present nodes where they have changed; calls `end` once the cluster cannot be reached any more."""
        told: Mapping[str, Any] = {}
        now = asyncio.get_running_loop().time
        known_at = now()
        while now() < known_at + self._away_s_max:
            looked = asyncio.ensure_future(in_thread(cluster.nodes))
            while not (await asyncio.wait([looked], timeout=1.0))[0] and now() < known_at + self._away_s_max:
                # Seconds without an answer until the cluster counts as away.
                told = self._tell(told, {"away": self._away} if now() > known_at + 10.0 else {})
            if not looked.done():
                break
            try:
                nodes = {id: asdict(facts) for id, facts in looked.result().items()}
                told, known_at = self._tell(told, {"nodes": nodes}), now()
            except ConnectionEnded:
                break
            except InvalidSpec as error:
                told, known_at = self._tell(told, {"away": str(error)}), now()
            except Exception as error:  # noqa: BLE001 -- whatever the cluster's library raises
                told = self._tell(told, {"away": f"{self._away} ({type(error).__name__})"})
            # Seconds between two queries for the nodes.
            await asyncio.sleep(1.0)
        self._say({"away": self._away})
        end()

    def _tell(self, told: Mapping[str, Any], news: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send news that differ from those told last, else an empty object as a sign of life; return the last news."""
        self._say({} if news == told else news)
        return news or told

    async def _answer(self, cluster: BridgedCluster, asked: Mapping[str, Any]) -> None:
        told: dict[str, Any]
        try:
            answer = await cluster.ask(asked["node"], NodeId(asked["name"]), asked["request"], asked["limit_s"])
            told = {"answer": answer}
        except Exception as error:  # noqa: BLE001 -- the host is to hear of it, whatever it is
            told = {"lost": str(error) or type(error).__name__}
        self._say({"id": asked["id"], **told})

    def _say(self, words: Mapping[str, Any]) -> None:
        """Write whole lines; blocks while the host does not read."""
        line = memoryview(json.dumps(words).encode() + b"\n")
        while line:
            line = line[self._output.write(line) :]
