"""Nodes of a Ray cluster. Ray lists them, starts a process on each, and carries messages.

On each node stands a *relay*, an actor that starts the node's agent, a process of its own, and hands requests on to it. So a
job needs neither the actor nor Ray to go on. The relay holds in Ray what the agent's jobs hold, in whole CPUs and GPUs, so that other
applications do not count on it; and it offers no more than they leave.
"""

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

import ray
from ray._private.state import available_resources_per_node, state  # there is no public way to ask about one node
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.client import ray as client
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.bridge_end import ConnectionEnded
from punctual.executors.cluster.channel import AgentChannel, Answer, Bundle, ChannelLost, Request
from punctual.executors.cluster.link_loop import in_thread
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.ray_access import check_asks_for_token

_LOG = logging.getLogger(__name__)

#: A resource that the head alone has.
_HEAD = "node:__internal_head__"
#: Ray's namespace of the relays' names.
NAMESPACE = "punctual"
_CONNECT_S_MAX = 2.0

#: Makes the channel to the agent on the node on which it is called; given the node's name, and its address in the cluster.
StartOf = Callable[[NodeId, str], Callable[[], AgentChannel]]


class NodeLeases:
    """Placement groups of one CPU or GPU each on one node, as many as its jobs hold; they end with their actor.

    It ends itself when nobody has asked for `unasked_s` seconds: the host was killed, say, and does not come back.
    """

    def __init__(self, ray_node: str, unasked_s: float) -> None:
        self._ray_node, self._unasked_s = ray_node, unasked_s
        self._groups: dict[str, list[Any]] = {"CPU": [], "GPU": []}
        self._holds: Mapping[str, float] = {}
        self._asked_at = time.monotonic()
        resources = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == self._ray_node)
        self._has = {kind: float(resources.get(kind, 0.0)) for kind in self._groups}
        self._left = dict(self._has)
        #: Instant of this machine's clock at which Ray takes the node away; None: it stays.
        self.ends_at: float | None = None
        threading.Thread(target=self._watch, name="punctual-leases", daemon=True).start()

    def offered(self, capacity: Mapping[str, float], holds: Mapping[str, float]) -> dict[str, Any]:
        """Return what other applications leave of `capacity`, and what they hold; soon reserve `holds` in Ray."""
        self._holds, self._asked_at = holds, time.monotonic()
        cores, gpus = min(capacity["cores"], self._left["CPU"]), min(capacity["gpus"], self._left["GPU"])
        taken_cores = min(capacity["cores"], self._has["CPU"]) - cores
        return {"capacity": {**capacity, "cores": cores, "gpus": gpus}, "taken_cores": taken_cores}

    def _watch(self) -> None:
        total, ends = self._has, threading.Event()
        #: Unix time in milliseconds at which the node is taken away, as Ray told last; 0: at once.
        told_ms: int | None = None
        while not ends.wait(0.5):
            try:
                if time.monotonic() > self._asked_at + self._unasked_s:
                    ray.kill(ray.get_runtime_context().current_actor)
                drained_ms = state.get_draining_nodes().get(self._ray_node)
                if drained_ms != told_ms:
                    told_ms, now = drained_ms, time.monotonic()
                    self.ends_at = None if drained_ms is None else now + max(0.0, drained_ms / 1000 - time.time())
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
            # Seconds for Ray to reserve resources.
            if not group.wait(2.0):
                remove_placement_group(group)
                return
            groups.append(group)
        while len(groups) > n_units:
            remove_placement_group(groups.pop())


class AgentRelay:
    """Relay to the agent of a node, as an actor on that node; `start` makes the channel to the agent there."""

    def __init__(self, start: Callable[[], AgentChannel], ray_node: str, unasked_s: float = 600.0) -> None:
        self._channel, self._leases = start(), NodeLeases(ray_node, unasked_s)

    def answer(self, request: Request, limit_s: float) -> Answer:
        """Return the agent's answer, or ``{"lost": why}`` if none came."""
        try:
            answer = self._channel.call(request, limit_s)
        except ChannelLost as error:
            return {"lost": str(error)}
        if "holds" in answer:
            answer |= self._leases.offered(answer["capacity"], answer["holds"])
            ends_at = self._leases.ends_at
            answer["ends_at"] = min((at for at in (answer["ends_at"], ends_at) if at is not None), default=None)
        return answer


class RayChannel:
    """Channel to the agent of one node, through its relay; usable by several threads."""

    def __init__(self, start: Callable[[], AgentChannel], name: str, ray_node: str) -> None:
        self._start, self._name, self._ray_node = start, name, ray_node
        self._lock = threading.Lock()
        self._relay: Any = None
        self._again_at = 0.0

    def call(self, request: Request, limit_s: float) -> Answer:
        """Return the agent's answer; raises `ChannelLost` if none comes within about `limit_s` seconds."""
        try:
            # Seconds that Ray may take beyond the agent's own time.
            answer: Answer = ray.get(self._actor().answer.remote(request, limit_s), timeout=limit_s + 1.0)
        except (RayError, ConnectionError, ValueError) as error:
            # Seconds between two tries to start a relay.
            self._relay, self._again_at = None, time.monotonic() + 2.0
            raise ChannelLost(str(error) or type(error).__name__) from error
        if "lost" in answer:
            raise ChannelLost(answer["lost"])
        if request["verb"] == "leave":  # the version that leaves is loaded in the relay, too
            self._relay = None
            self.remove()
        return answer

    def remove(self) -> None:
        """End the relay; the agent ends by itself when it has no job."""
        with suppress(RayError, ValueError):
            ray.kill(ray.get_actor(self._relay_name, NAMESPACE))

    @property
    def _relay_name(self) -> str:
        """Name of the relay, different on each start of Ray there: Ray may take a while to give up an earlier one."""
        return f"{self._name}-{self._ray_node[-8:]}"

    def _actor(self) -> Any:
        with self._lock:
            if self._relay is None:
                if time.monotonic() < self._again_at:
                    raise ChannelLost("it has just not answered")
                options: dict[str, Any] = {
                    "name": self._relay_name,
                    "namespace": NAMESPACE,
                    "get_if_exists": True,
                    "lifetime": "detached",
                    "num_cpus": 0,
                    "max_restarts": -1,
                    "max_concurrency": 8,
                    "scheduling_strategy": NodeAffinitySchedulingStrategy(self._ray_node, soft=False),
                }
                self._relay = ray.remote(AgentRelay).options(**options).remote(self._start, self._ray_node)
            return self._relay


class RayMembers:
    """Nodes of a Ray cluster that have CPUs.

    * `address`: address of the cluster, as for `ray.init`; empty: that of this machine.
    * `name`: tells the relays of one service from those of another.
    * `needs_token`: whether the cluster must ask for a token.

    Raises `InvalidSpec`: the cluster cannot be reached, or asks for no token.
    """

    def __init__(self, address: str, name: str, start_of: StartOf, *, needs_token: bool = True) -> None:
        self._name, self._start_of = name, start_of
        #: Nodes that are there, by their ids in Ray, and the channels to those that were used.
        self._alive: Mapping[str, NodeFacts] = {}
        self._channels: dict[str, RayChannel] = {}
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
                "Start one (`ray get-auth-token --generate`, then `RAY_AUTH_MODE=token ray start --head`), or say where it is "
                "(`--address HOST:PORT`) and use its token (RAY_AUTH_MODE=token, the file ~/.ray/auth_token).",
            ) from error
        self._is_client = client.is_connected()
        self._place = address or "auto" if self._is_client else ray.get_runtime_context().gcs_address
        self._needs_token = needs_token
        #: Ids in Ray of the heads that were last asked; None: none was.
        self._heads: set[str] | None = None
        self._check_head(ray.nodes())

    def nodes(self) -> Mapping[str, NodeFacts]:
        """Return the nodes that are there, by their ids in Ray; blocks as long as Ray's head is away.

        Raises `ConnectionEnded` where Ray's client has given up (`ray://`), which never connects again; and `InvalidSpec` if
        the cluster was started again and asks for no token now.
        """
        if self._is_client and not client.is_connected():
            raise ConnectionEnded
        nodes = ray.nodes()
        self._check_head(nodes)
        told = {node["NodeID"]: node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0}
        facts = {ray_node: _facts(node) for ray_node, node in told.items()}
        # Of one that was killed Ray says for a while that it is there. That matters if another was started in its place.
        n_nodes = Counter(known.machine for known in facts.values())
        self._alive = {id: known for id, known in facts.items() if n_nodes[known.machine] == 1 or _listens(told[id])}
        return self._alive

    async def ask(self, id: str, name: NodeId, request: Request, limit_s: float) -> Answer:
        """Return the answer of the agent of a node; raises `ChannelLost` if the node is not there, or none comes."""
        if (facts := self._alive.get(id)) is None:
            raise ChannelLost(f"node '{name}' is not there")
        if id not in self._channels:
            self._channels[id] = RayChannel(self._start_of(name, facts.address), f"{self._name}-{name}", id)
        return await in_thread(self._channels[id].call, request, limit_s)

    def _check_head(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Raise `InvalidSpec` if a new head requires no token although it must."""
        heads = {str(node["NodeID"]) for node in nodes if node["Alive"] and _HEAD in node["Resources"]}
        if self._heads is not None and heads <= self._heads:
            return
        try:
            check_asks_for_token(self._place)
        except InvalidSpec as error:
            if self._needs_token:
                raise
            _LOG.warning("%s: %s", error.where, error.got)
        self._heads = heads

    def request(self, bundles: Sequence[Bundle]) -> None:
        """Ask Ray's autoscaler for nodes with room for all of these; empty: withdraw the request."""
        wanted = [{kind: n for kind, n in bundle.items() if n} for bundle in bundles]
        if self._is_client:  # by an address `ray://`: only a process of the cluster itself can ask
            # Seconds that a request to the autoscaler may take, the start of a process included.
            ray.get(ray.remote(num_cpus=0)(request_resources).remote(bundles=wanted), timeout=30.0)
        else:
            request_resources(bundles=wanted)

    def close(self, *, for_good: bool) -> None:
        """Release the nodes; `for_good`: nothing is left on them. The connection ends with this process."""
        if for_good:
            for channel in self._channels.values():
                channel.remove()


def _facts(told: Mapping[str, Any]) -> NodeFacts:
    """Convert Ray's description of a node."""
    resources, labels = told["Resources"], told.get("Labels", {})
    return NodeFacts(
        id=told["NodeID"],
        host=told["NodeManagerHostname"],
        address=told["NodeManagerAddress"],
        cores=float(resources.get("CPU", 0.0)),
        gpus=float(resources.get("GPU", 0.0)),
        device=labels.get("ray.io/accelerator-type", ""),
        labels=labels,
    )


def _listens(told: Mapping[str, Any]) -> bool:
    """Whether Ray listens on a node."""
    try:
        socket.create_connection((told["NodeManagerAddress"], told["NodeManagerPort"]), _CONNECT_S_MAX).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # it is cut off, say
    return True
