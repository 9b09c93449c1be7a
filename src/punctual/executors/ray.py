"""The nodes of a Ray cluster. Ray says which there are, starts something on each, and carries messages.

On each node stands a *relay*, an actor that starts the node's agent, a process of its own, and hands requests on to it. So a
job needs neither the actor nor Ray to go on. The relay holds in Ray what the agent's jobs hold, in whole CPUs and GPUs, so that other
applications do not count on it; and it offers no more than they leave.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

import ray
from ray._private.state import available_resources_per_node  # there is no public way to ask about one node
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import AgentChannel, Answer, Bundle, ChannelLost, Request
from punctual.executors.cluster.node_limits import Limits, NodeFacts, NodeLimit, unlimited

_LOG = logging.getLogger(__name__)

#: Where the names of relays are looked for.
NAMESPACE = "punctual"
#: Between two looks at what other applications leave, and how long it may take until Ray has put something aside.
_LOOK_S, _LEASE_S_MAX = 0.5, 2.0
#: How long Ray may take beyond what the agent may.
_ANSWER_S = 1.0
#: Between two tries to have a relay where none can be had.
_AGAIN_S = 2.0
_N_CALLS_MAX = 8

#: Makes the channel to the agent on the node on which it is called; given the node's name.
StartOf = Callable[[NodeId], Callable[[], AgentChannel]]


class NodeLeases:
    """Placement groups of one CPU or GPU each on one node, as many as its jobs hold; they go with the process that made them."""

    def __init__(self, ray_node: str) -> None:
        self._ray_node = ray_node
        self._groups: dict[str, list[Any]] = {"CPU": [], "GPU": []}
        self._holds: Mapping[str, float] = {}
        self._left = self._total()
        threading.Thread(target=self._watch, name="punctual-leases", daemon=True).start()

    def offered(self, capacity: Mapping[str, float], holds: Mapping[str, float]) -> dict[str, float]:
        """What of `capacity` other applications leave; and have `holds` put aside, soon."""
        self._holds = holds
        cores, gpus = min(capacity["cores"], self._left["CPU"]), min(capacity["gpus"], self._left["GPU"])
        return {**capacity, "cores": cores, "gpus": gpus}

    def _total(self) -> dict[str, float]:
        """What the node has altogether."""
        resources = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == self._ray_node)
        return {kind: float(resources.get(kind, 0.0)) for kind in self._groups}

    def _watch(self) -> None:
        total, ends = self._total(), threading.Event()
        while not ends.wait(_LOOK_S):
            try:
                free = available_resources_per_node().get(self._ray_node, {})
                for kind, groups in self._groups.items():
                    others = max(0.0, total[kind] - free.get(kind, 0.0) - len(groups))
                    self._left[kind] = max(0.0, total[kind] - others)
                    self._bring_to(kind, ceil(self._holds.get({"CPU": "cores", "GPU": "gpus"}[kind], 0.0) - 1e-6), free)
            except Exception:  # noqa: BLE001 -- Ray may be away for a while
                _LOG.exception("what node '%s' has left is not known", self._ray_node)

    def _bring_to(self, kind: str, n_units: int, free: Mapping[str, float]) -> None:
        groups, n_free = self._groups[kind], int(free.get(kind, 0.0))
        for _ in range(min(n_units - len(groups), n_free)):  # what others hold cannot be put aside
            group = placement_group([{kind: 1}], bundle_label_selector=[{"ray.io/node-id": self._ray_node}])
            if not group.wait(_LEASE_S_MAX):
                remove_placement_group(group)
                return
            groups.append(group)
        while len(groups) > n_units:
            remove_placement_group(groups.pop())


class AgentRelay:
    """Stands on a node for its agent, as an actor; `start` makes the channel to the agent there."""

    def __init__(self, start: Callable[[], AgentChannel], ray_node: str) -> None:
        self._channel, self._leases = start(), NodeLeases(ray_node)

    def answer(self, request: Request, limit_s: float) -> Answer:
        """What the agent answers; ``{"lost": why}`` if it does not."""
        try:
            answer = self._channel.call(request, limit_s)
        except ChannelLost as error:
            return {"lost": str(error)}
        if "holds" in answer:
            answer["capacity"] = self._leases.offered(answer["capacity"], answer["holds"])
        return answer


class RayChannel:
    """The channel to the agent of one node, by calls of its relay.

    Attributes
    ----------
    limit
        How much of the node is used.
    """

    def __init__(self, node: NodeId, ray_node: str, start: Callable[[], AgentChannel], name: str) -> None:
        self._node, self._ray_node, self._start, self._name = node, ray_node, start, name
        self._lock = threading.Lock()
        self._relay: Any = None
        self._again_at = 0.0
        self.limit = NodeLimit()

    def call(self, request: Request, limit_s: float) -> Answer:
        """The agent's answer; raises `ChannelLost` if there is none in `limit_s` seconds or so."""
        try:
            answer: Answer = ray.get(self._actor().answer.remote(request, limit_s), timeout=limit_s + _ANSWER_S)
        except (RayError, ConnectionError, ValueError) as error:
            self._relay, self._again_at = None, time.monotonic() + _AGAIN_S
            raise ChannelLost(str(error)) from error
        if "lost" in answer:
            raise ChannelLost(answer["lost"])
        return self.limit.applied(answer)

    def close(self) -> None:
        """Let go of the agent, which goes on."""

    def renew(self) -> None:
        """Have the relay end, in which an earlier version is loaded; the next call makes another one."""
        self._relay = None
        self.remove()

    def remove(self) -> None:
        """Have the relay end; the agent ends by itself when it has no job."""
        with suppress(RayError, ValueError):
            ray.kill(ray.get_actor(self._name, NAMESPACE))

    def _actor(self) -> Any:
        with self._lock:
            if self._relay is None:
                if time.monotonic() < self._again_at:
                    raise ChannelLost("it has just not answered")
                options: dict[str, Any] = {
                    "name": self._name,
                    "namespace": NAMESPACE,
                    "get_if_exists": True,
                    "lifetime": "detached",
                    "num_cpus": 0,
                    "max_restarts": -1,
                    "max_concurrency": _N_CALLS_MAX,
                    "scheduling_strategy": NodeAffinitySchedulingStrategy(self._ray_node, soft=False),
                }
                self._relay = ray.remote(AgentRelay).options(**options).remote(self._start, self._ray_node)
            return self._relay


class RayMembers:
    """The nodes of a Ray cluster that have CPUs.

    Parameters
    ----------
    address
        Of the cluster, as `ray.init` takes it; empty: that of this machine.
    name
        Tells the relays of one service from those of another.
    limits
        Which nodes are used, and how much of them.

    Raises
    ------
    InvalidSpec
        The cluster cannot be reached.
    """

    def __init__(self, address: str, name: str, start_of: StartOf, limits: Limits = unlimited) -> None:
        self._name, self._start_of, self._limits = name, start_of, limits
        self._channels: dict[str, tuple[NodeId, RayChannel]] = {}
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            ray.init(
                address=address or "auto",
                namespace=NAMESPACE,
                log_to_driver=False,
                configure_logging=False,
                ignore_reinit_error=True,
            )
        except Exception as error:
            raise InvalidSpec(
                "the Ray cluster must be reachable",
                f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no answer'}",
                f"address '{address or 'auto'}'",
                "Start one (`ray start --head`), or say where it is (`--address HOST:PORT`) and use its token "
                "(RAY_AUTH_MODE=token, the file ~/.ray/auth_token).",
            ) from error
        finally:
            if threading.current_thread() is threading.main_thread():  # Ray sets its own
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def channels(self) -> Mapping[NodeId, AgentChannel]:
        """The channel of each node that is there now."""
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0}
        limits = self._limits({ray_node: _facts(node) for ray_node, node in alive.items()})
        for ray_node, limit in limits.items():
            if ray_node not in self._channels:
                node = NodeId(f"{alive[ray_node]['NodeManagerHostname']}-{ray_node[-8:]}")
                name = f"{self._name}-{ray_node[-8:]}"
                self._channels[ray_node] = node, RayChannel(node, ray_node, self._start_of(node), name)
            self._channels[ray_node][1].limit = limit
        return dict(self._channels[ray_node] for ray_node in limits)

    def request(self, bundles: Sequence[Bundle]) -> None:
        """Ask Ray's autoscaler for nodes with room for all of these; empty: take that back."""
        request_resources(bundles=[{kind: n for kind, n in bundle.items() if n} for bundle in bundles])

    def close(self, *, for_good: bool) -> None:
        """Let go of the nodes; `for_good`: nothing is left on them. The connection ends with this process."""
        if for_good:
            for _, channel in self._channels.values():
                channel.remove()


def _facts(node: Mapping[str, Any]) -> NodeFacts:
    """What Ray says of a node."""
    resources = node["Resources"]
    return NodeFacts(
        names=(node["NodeManagerHostname"], node["NodeManagerAddress"]),
        cores=float(resources.get("CPU", 0.0)),
        gpus=float(resources.get("GPU", 0.0)),
        device=node.get("Labels", {}).get("ray.io/accelerator-type", ""),
    )
