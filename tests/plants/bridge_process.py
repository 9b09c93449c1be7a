"""The other end of a bridge, with nodes that tests need: ``echo`` answers, ``slow`` takes its time at first, ``gone`` does not answer.

A request with ``{"die": true}`` ends the process. With an argument it refuses to begin.
"""

import os
import sys
import time
from collections.abc import Callable

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge_end import BridgeEnd, Channels
from punctual.executors.cluster.channel import Answer, ChannelLost, DirectChannel, Request, ThreadedChannel

_slow_until_at = time.monotonic() + 1.0


def echo(request: Request) -> Answer:
    if request.get("die"):
        os._exit(3)
    sys.stdout.write("a library prints what it likes\n")
    sys.stdout.flush()
    return {"said": request["say"], "pid": os.getpid()}


def slow(request: Request) -> Answer:
    time.sleep(max(0.0, _slow_until_at - time.monotonic()))
    return echo(request)


def gone(_: Request) -> Answer:
    raise ChannelLost("it is gone")


def opened() -> tuple[Channels, Callable[[bool], None]]:
    if sys.argv[1:]:
        raise InvalidSpec("it must be there", "nothing", "a test", "Start it.")
    agents = {"echo": echo, "slow": slow, "gone": gone}
    channels = {NodeId(name): ThreadedChannel(DirectChannel(agent)) for name, agent in agents.items()}
    return lambda: channels, lambda _: None


if __name__ == "__main__":
    sys.exit(BridgeEnd(opened, "nobody knows").run())
