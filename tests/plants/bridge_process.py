"""The other end of a bridge, with nodes that tests need: ``echo`` answers, ``slow`` takes its time at first, ``gone`` does not answer.

A request with ``{"die": true}`` ends the process, one with ``{"hang": true}`` stops it, one with ``{"lose": true}`` ends its connection to
the cluster, and after one with ``{"stick": true}`` the cluster never tells its nodes, after one with ``{"break": true}`` it cannot. With an argument it refuses to begin.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from threading import Event

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge_end import BridgeEnd, ConnectionEnded
from punctual.executors.cluster.channel import Answer, Bundle, ChannelLost, Request
from punctual.executors.cluster.link_loop import in_thread
from punctual.executors.cluster.node_limits import NodeFacts

_lost, _stuck, _broken = Event(), Event(), Event()
_slow_until_at = time.monotonic() + 1.0


def echo(request: Request) -> Answer:
    if request.get("die"):
        os._exit(3)
    if request.get("hang"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if request.get("lose"):
        _lost.set()
    if request.get("stick"):
        _stuck.set()
    if request.get("break"):
        _broken.set()
    sys.stdout.write("a library prints what it likes\n")
    sys.stdout.flush()
    capacity = {"cores": 2.0, "gpus": 0.0, "memory_bytes": 1.0}
    return {"said": request["say"], "pid": os.getpid(), "capacity": capacity, "device": "blue"}


def slow(request: Request) -> Answer:
    time.sleep(max(0.0, _slow_until_at - time.monotonic()))
    return echo(request)


def gone(_: Request) -> Answer:
    raise ChannelLost("it is gone")


class Agents:
    """Three; and where the cluster is asked for room a second time another one, whose name is what was asked for."""

    def __init__(self) -> None:
        self._n_requests = 0
        agents = {"echo": echo, "slow": slow, "gone": gone}
        self._agents: dict[str, Callable[[Request], Answer]] = dict(agents)

    def nodes(self) -> dict[str, NodeFacts]:
        if _lost.is_set():
            raise ConnectionEnded
        if _stuck.is_set():
            Event().wait()
        if _broken.is_set():
            raise ConnectionError("of another cluster")
        return {
            f"id-{name}": NodeFacts(
                id=f"id-{name}", host=name, address="here", cores=1.0, gpus=0.0, labels={"color": "red"}
            )
            for name in self._agents
        }

    async def ask(self, id: str, name: NodeId, request: Request, limit_s: float) -> Answer:
        return {**await in_thread(self._agents[id.removeprefix("id-")], request), "name": name}

    def request(self, bundles: Sequence[Bundle]) -> None:
        self._n_requests += 1
        if self._n_requests == 1:
            raise ConnectionError("it cannot be asked yet")
        self._agents = {**self._agents, f"cpus-{sum(bundle['CPU'] for bundle in bundles)}": echo}

    def close(self, *, for_good: bool) -> None: ...


def opened() -> Agents:
    if sys.argv[1:]:
        raise InvalidSpec("it must be there", "nothing", "a test", "Start it.")
    return Agents()


if __name__ == "__main__":
    sys.exit(BridgeEnd(opened, "nobody knows", away_s_max=6.0).run())
