"""Protocol between a host and the agent of a node.

A request and its answer are JSON objects. The host asks, also for events: a `poll` is answered when there are some, or after
a while. So anything that carries a request and an answer will do: a function call, a socket, a remote actor.

Every request says its `generation`: that of the host, and how often it has lost the node. An agent obeys the newest that it
has heard of, and answers others with ``{"superseded": newest}``. Every other answer has `received` and `sent`, instants of
the agent's clock, and `incarnation`, which is another one when the agent was started again. The verbs:

greet
    `reset`: nothing may be left of earlier jobs. Answer: `capacity` and `device` of the node, `held` by job: what, null if it
    has ended, and how it was launched, null for a part of a job that lies on several nodes; what all of it `holds` together, and
    `is_empty`: whether no job is left; `version`, of Punctual.
leave
    The agent ends and leaves its jobs to another one, of the version that is installed now. What an earlier version has put
    between here and the agent ends as well.
do
    `command`; `incarnation` and `seen`, the number of the last event of that incarnation that was known when the command was
    made; for a launch `environment`, null if it is gone, and `argv`. What becomes of it is an event. Answer: `fenced`, if the
    agent has not heard for so long, or is so new, that it obeys only after another poll; `refused`, fields of an `InvalidSpec`,
    if it cannot read the command.
poll
    `incarnation` and `seen`: the number of the last event received; `stamp`: `sent` of the last answer received; `wait_s`;
    `paused`: jobs that are to stay paused; `logged`: how far the logs of jobs are here. Answer: `capacity`, `device` and `holds`;
    `ends_at`, the instant at which the node is taken away, null if it stays (and `taken_cores` that others have of the node: that,
    and another `ends_at`, may come from what lies between here and the agent); `events` with higher numbers, that of the end of a
    job and later ones only with the last of its log; `reports`, the latest progress; `facts` by job; `output`: job, how far its
    log is here with that and, in base64, more of it.
end
    Ends all jobs. Answer: `is_empty`; `last`, the number of the last event that is not known to be received.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from punctual.core.codec import decode, encode, kind_of
from punctual.core.events import Message
from punctual.core.ids import NodeId
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.node_limits import NameOf

Request = dict[str, Any]
#: CPUs and GPUs on one node.
Bundle = dict[str, int]
Answer = dict[str, Any]

#: Shares of the time after which a silent node counts as lost. Its agent first has its jobs end, after a checkpoint; then ends
#: them by force; and a supervisor whose agent is gone ends its job when it has not heard from it for so long. So nothing runs on the
#: node any more when its jobs are started elsewhere.
STOP_FRAC, KILL_FRAC, KEEPER_FRAC = 14 / 24, 17 / 24, 4 / 24


#: Connection to the agent of a node, for the loop of a host, in which nothing may block. It returns the agent's answer, and raises
#: `ChannelLost` if none comes within about so many seconds.
NodeChannel = Callable[[Request, float], Awaitable[Answer]]


class ChannelLost(Exception):
    """Raised if no answer came. The agent may or may not have got the request."""


class AgentChannel(Protocol):
    """The connection to an agent from its own machine; may be used by several threads."""

    def call(self, request: Request, limit_s: float) -> Answer:
        """Return the agent's answer; raises `ChannelLost` if none comes within about `limit_s` seconds."""
        ...


class Members(Protocol):
    """Nodes of a cluster and their channels."""

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None:
        """Start; to be called once, before the rest. The channels will be used in `loop`. May raise `InvalidSpec`.

        `name_of`: has nodes named and limited by it, and may block; None: there are no pools.
        """
        ...

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        """Return each present node's channel; raises `ChannelLost` if the nodes are unknown."""
        ...

    def request(self, bundles: Sequence[Bundle]) -> None:
        """Request room for all of these at once, beside other applications' requests; empty: withdraw the request.

        Never blocks.
        """
        ...

    def close(self, *, for_good: bool) -> None:
        """Release the nodes; `for_good`: no host comes back to the agents."""
        ...


def encode_message(message: Message) -> list[str]:
    """Encode a message for sending."""
    return [kind_of(message), encode(message)]


def decode_message(sent: list[str]) -> Message:
    """Decode a message that `encode_message` encoded; raises `InvalidSpec` if it is invalid."""
    return decode(*sent)
