"""The nodes of `bench/ray_cluster.py` that have no machine: how they are called, and how their agents are asked."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, ChannelLost, NodeChannel, Request
from punctual.runtime.run_folder import agent_run

_LINE_BYTES_MAX = 1 << 24


def node_name(i: int) -> NodeId:
    return NodeId(f"node-{i:03d}")


def agent_name(i: int) -> str:
    return f"scale-{i:03d}"


class SocketChannel:
    """To an agent behind a Unix socket of this machine, with a connection for each request as `control_socket.ask` has."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(self, request: Request, limit_s: float) -> Answer:
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await asyncio.open_unix_connection(self._path, limit=_LINE_BYTES_MAX)
                try:
                    writer.write(json.dumps(request).encode() + b"\n")
                    envelope = json.loads(await reader.readline())
                finally:
                    writer.close()
            answer: Answer = envelope["answer"]
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            raise ChannelLost(f"{type(error).__name__}: {error}") from error
        return answer

    def close(self) -> None: ...


class SocketMembers:
    """So many nodes, always."""

    def __init__(self, n_nodes: int) -> None:
        self._channels: dict[NodeId, NodeChannel] = {
            node_name(i): SocketChannel(agent_run(agent_name(i)).socket) for i in range(n_nodes)
        }

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        return self._channels

    def close(self, *, for_good: bool) -> None: ...
