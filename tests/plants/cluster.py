"""Agents of this process or of others, and what can go wrong between them and a host."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.executors.conftest import is_alive
from tests.waiting import wait_until

from punctual.core.events import Event, NodeJoined
from punctual.core.ids import NodeId
from punctual.daemon.agent_process import AgentProcess
from punctual.daemon.node_agent import AgentOptions, NodeAgent
from punctual.executors.cluster.channel import AgentChannel, Answer, Bundle, ChannelLost, NodeChannel, Request
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.cluster.link_loop import LinkLoop, in_thread
from punctual.executors.cluster.node_limits import NameOf
from punctual.executors.local.output import StartFacts


class DirectChannel:
    """Channel to an agent in this process."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer

    def call(self, request: Request, limit_s: float) -> Answer:
        return self._answer(request)


def threaded(channel: AgentChannel) -> NodeChannel:
    """Return a channel to a node's agent through a blocking one: each request has a thread."""
    return partial(in_thread, channel.call)


class FixedMembers:
    """The nodes that a test puts in and takes out."""

    def __init__(self, channels: Mapping[NodeId, AgentChannel]) -> None:
        self._nodes = {node: threaded(channel) for node, channel in channels.items()}
        self.requests: list[list[Bundle]] = []

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None: ...

    def add(self, node: NodeId, channel: AgentChannel) -> None:
        self._nodes = {**self._nodes, node: threaded(channel)}

    def remove(self, node: NodeId) -> None:
        self._nodes = {name: channel for name, channel in self._nodes.items() if name != node}

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        return self._nodes

    def request(self, bundles: Sequence[Bundle]) -> None:
        self.requests.append(list(bundles))

    def close(self, *, for_good: bool) -> None: ...


class Wire:
    """A channel whose two directions can be cut, and to whose other end another agent can come."""

    def __init__(self, channel: AgentChannel) -> None:
        self.channel = channel
        self.hears = self.tells = True
        self._lock = threading.Lock()

    def cut(self) -> None:
        self.hears = self.tells = False

    def mend(self) -> None:
        self.hears = self.tells = True

    def call(self, request: Request, limit_s: float) -> Answer:
        if not self.hears:
            raise ChannelLost("cut before")
        answer = self.channel.call(request, limit_s)
        if not self.tells:
            raise ChannelLost("cut after")
        return answer


def new_agent(node: NodeId, **options: Any) -> NodeAgent:
    return NodeAgent(AgentOptions(**{"name": f"test-{node}", "node": node, "actuator": "pacing", **options}))


def end(process: AgentProcess) -> None:
    """End the process of an agent, if it is there."""
    pid = process.pid()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid))


def direct(agent: NodeAgent) -> DirectChannel:
    return DirectChannel(agent.answer)


def joined_executor(
    channels: Mapping[NodeId, AgentChannel], events: list[Event], generation: int = 1, **options: Any
) -> ClusterExecutor:
    """An executor whose nodes have all joined."""
    executor = ClusterExecutor(
        FixedMembers(channels), generation=generation,
        start_facts_of=lambda _: StartFacts(environment=os.environ), report_s=0.02, **options,
    )  # fmt: skip
    executor.start(events.append)
    wait_until(lambda: {event.node for event in events if isinstance(event, NodeJoined)} >= channels.keys())
    return executor


class ShiftedClock:
    """A clock that shows another time than that of the machine."""

    def __init__(self, shift_s: float) -> None:
        self.shift_s = shift_s

    def now(self) -> float:
        return time.monotonic() + self.shift_s
