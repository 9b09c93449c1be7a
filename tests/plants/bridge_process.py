"""The other end of a bridge, with nodes that tests need: ``echo`` answers, ``slow`` takes its time at first, ``gone`` does not answer.

A request with ``{"die": true}`` ends the process, one with ``{"lose": true}`` its connection to the cluster. With an argument it refuses to begin.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge_end import BridgeEnd, ConnectionEnded
from punctual.executors.cluster.channel import (
    Answer,
    Bundle,
    ChannelLost,
    DirectChannel,
    NodeChannel,
    Request,
    threaded,
)
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride

_lost = Event()
_slow_until_at = time.monotonic() + 1.0


def echo(request: Request) -> Answer:
    if request.get("die"):
        os._exit(3)
    if request.get("lose"):
        _lost.set()
    sys.stdout.write("a library prints what it likes\n")
    sys.stdout.flush()
    return {"said": request["say"], "pid": os.getpid()}


def slow(request: Request) -> Answer:
    time.sleep(max(0.0, _slow_until_at - time.monotonic()))
    return echo(request)


def limited(limit: NodeOverride) -> Callable[[Request], Answer]:
    return lambda _: {"cores": limit.cores, "device": limit.device}


def gone(_: Request) -> Answer:
    raise ChannelLost("it is gone")


class Agents:
    """Three; where the cluster is asked for room a second time another one, whose name is what was asked for; and one without a name."""

    def __init__(self) -> None:
        self._n_requests = 0
        agents = {"echo": echo, "slow": slow, "gone": gone}
        self._channels = {NodeId(name): threaded(DirectChannel(agent)) for name, agent in agents.items()}
        self._unnamed = {"4f2a": NodeFacts(names=("host",), cores=1.0, gpus=0.0, labels={"color": "red"}, id="4f2a")}

    def channels(self) -> dict[NodeId, NodeChannel]:
        if _lost.is_set():
            raise ConnectionEnded
        return dict(self._channels)

    def unnamed(self) -> dict[str, NodeFacts]:
        return self._unnamed

    def name(self, names: Mapping[str, tuple[NodeId, NodeOverride] | None]) -> None:
        for id, named in names.items():
            del self._unnamed[id]
            if named is not None:
                self._channels = {**self._channels, named[0]: threaded(DirectChannel(limited(named[1])))}

    def request(self, bundles: Sequence[Bundle]) -> None:
        self._n_requests += 1
        if self._n_requests == 1:
            raise ConnectionError("it cannot be asked yet")
        name = NodeId(f"cpus-{sum(bundle['CPU'] for bundle in bundles)}")
        self._channels = {**self._channels, name: threaded(DirectChannel(echo))}

    def close(self, *, for_good: bool) -> None: ...


def opened() -> Agents:
    if sys.argv[1:]:
        raise InvalidSpec("it must be there", "nothing", "a test", "Start it.")
    return Agents()


if __name__ == "__main__":
    sys.exit(BridgeEnd(opened, "nobody knows").run())
