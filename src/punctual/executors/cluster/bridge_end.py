"""The other end of `punctual.executors.cluster.bridge`: the process that talks to the cluster."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge import LINE_BYTES_MAX
from punctual.executors.cluster.channel import NodeChannel
from punctual.executors.cluster.link_loop import in_thread

#: Between two looks which nodes there are, and how long one may take until that is told.
_LOOK_S, _NODES_S_MAX = 1.0, 10.0

#: Which nodes there are, with their channels; may block.
Channels = Callable[[], Mapping[NodeId, NodeChannel]]


class BridgeEnd:
    """Does what a host asks by standard input, until that ends or the host says so.

    Parameters
    ----------
    open_cluster
        Connects to the cluster: which nodes there are, and what lets go of them, given whether that is for good. Raises `InvalidSpec`.
    away
        What a user is to know when the cluster does not say which nodes there are.
    """

    def __init__(self, open_cluster: Callable[[], tuple[Channels, Callable[[bool], None]]], away: str) -> None:
        # What libraries print must not come between the answers.
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._open_cluster, self._away = open_cluster, away
        self._nodes: Mapping[NodeId, NodeChannel] = {}

    def run(self) -> int:
        """The exit status."""
        try:
            channels, close = self._open_cluster()
        except InvalidSpec as error:
            self._say({"refused": error.as_fields()})
            return 2
        close(asyncio.run(self._serve(channels)))
        return 0

    async def _serve(self, channels: Channels) -> bool:
        """Whether nobody comes back to the agents."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        looking = asyncio.create_task(self._look(channels))
        answers: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            asked = json.loads(line)
            if "close" in asked:
                looking.cancel()
                return bool(asked["close"])
            task = asyncio.create_task(self._answer(asked))
            answers.add(task)
            task.add_done_callback(answers.discard)
        return False

    async def _look(self, channels: Channels) -> None:
        while True:
            looked = asyncio.ensure_future(in_thread(channels))
            done, _ = await asyncio.wait([looked], timeout=_NODES_S_MAX)
            if not done:
                self._say({"away": self._away})
            try:
                self._nodes = await looked
                self._say({"nodes": list(self._nodes)})
            except Exception as error:  # noqa: BLE001 -- whatever the cluster's library raises
                self._say({"away": f"{self._away} ({type(error).__name__})"})
            await asyncio.sleep(_LOOK_S)

    async def _answer(self, asked: Mapping[str, Any]) -> None:
        node = NodeId(asked["node"])
        told: dict[str, Any]
        if (channel := self._nodes.get(node)) is None:
            told = {"lost": f"node '{node}' is not there"}
        else:
            try:
                told = {"answer": await channel.ask(asked["request"], asked["limit_s"])}
            except Exception as error:  # noqa: BLE001 -- the host is to hear of it, whatever it is
                told = {"lost": str(error) or type(error).__name__}
        self._say({"id": asked["id"], **told})

    def _say(self, words: Mapping[str, Any]) -> None:
        """In whole lines; blocks while the host does not read."""
        line = memoryview(json.dumps(words).encode() + b"\n")
        while line:
            line = line[self._output.write(line) :]
