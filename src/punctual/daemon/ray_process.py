"""Process that talks to a Ray cluster for a host, see `punctual.executors.cluster.bridge`."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from punctual.core.ids import JobId, NodeId
from punctual.daemon.agent_process import AgentProcess
from punctual.daemon.host_options import HostOptions
from punctual.daemon.logs import log_to_stderr
from punctual.daemon.node_agent import AgentOptions
from punctual.executors.cluster.bridge_end import BridgedCluster, BridgeEnd
from punctual.executors.local.cgroup_files import file_name

_AWAY = (
    "Ray does not say which nodes there are. Jobs go on, or wait after a checkpoint if it is away for long. If its head has "
    "ended, start it again at the same address (`ray start --head`), and then Ray on the other nodes: this service connects again by "
    "itself"
)


def agents_of(name: str, options: HostOptions) -> Callable[[NodeId, str], Callable[[], AgentProcess]]:
    """Return a function that, for a node and its address, returns the maker of the channel to the node's agent."""

    def start_of(node: NodeId, address: str) -> Callable[[], AgentProcess]:
        told = AgentOptions(
            name=f"{name}-{file_name(JobId(node))}",
            node=node,
            actuator=options.actuator,
            lost_after_s=options.lost_after_s,
            address=address,
        )
        return partial(AgentProcess, told)

    return start_of


def opened(name: str, options: Mapping[str, Any]) -> BridgedCluster:
    """Connect to the cluster; raises `InvalidSpec` if it cannot be reached, or lacks the required token check.

    * `name`: name of the agents.
    * `options`: the host's, as JSON values.
    """
    # Once a connection is lost, Ray would start a cluster of its own on this machine at the next call.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    from punctual.executors.ray import RayMembers

    host = HostOptions(**options)
    return RayMembers(host.address, name, agents_of(name, host), needs_token=not host.allow_unauthenticated_ray)


if __name__ == "__main__":
    log_to_stderr("%(message)s")
    sys.exit(BridgeEnd(partial(opened, **json.loads(sys.argv[1])), _AWAY).run())
