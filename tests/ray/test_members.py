"""The nodes of a Ray cluster: which of those that Ray tells are there, and that its head must ask for a token."""

import asyncio
import socket
from typing import Any

import pytest
from tests.plants.ray_machines import free_port

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.channel import Answer, ChannelLost, Request


def told(ray_node: str, host: str, address: str, port: int = 1, *, alive: bool = True) -> dict[str, Any]:
    """A node as Ray tells it."""
    return {
        "NodeID": ray_node, "NodeManagerHostname": host, "NodeManagerAddress": address, "NodeManagerPort": port,
        "Alive": alive, "Resources": {"CPU": 2.0},
    }  # fmt: skip


class Cluster:
    """What Ray says, and the nodes that are made of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from punctual.executors import ray as ours

        self.nodes: list[dict[str, Any]] = []
        self._make = lambda: ours.RayMembers("", "service", lambda _, address: address)  # type: ignore[arg-type, return-value]
        monkeypatch.setattr(ours.ray, "init", lambda **_: None)
        monkeypatch.setattr(ours.ray, "nodes", lambda: self.nodes)
        monkeypatch.setattr(ours, "_CONNECT_S_MAX", 0.2)
        self.restart()

    def restart(self) -> None:
        """Another process looks at the cluster from now on."""
        self._members = self._make()

    def ids(self) -> set[str]:
        """Ids of the nodes that are there, by the first letter."""
        return {ray_node[0] for ray_node in self._members.nodes()}

    def ask(self, ray_node: str, name: str) -> None:
        self._members.nodes()
        asyncio.run(self._members.ask(ray_node, NodeId(name), {"verb": "poll"}, 1.0))

    def restart_head(self, ray_node: str) -> None:
        """Have another head, as after a restart of Ray."""
        self.nodes = [told(ray_node, "one", "127.0.0.1")]
        self.nodes[0]["Resources"]["node:__internal_head__"] = 1.0


@pytest.fixture
def cluster(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_node_is_as_ray_tells_it(cluster: Cluster) -> None:
    cluster.nodes = [told("a" * 16, "one", "10.0.0.1"), {**told("b" * 16, "two", "10.0.0.2"), "Resources": {}}]
    (facts,) = cluster._members.nodes().values()
    assert (facts.id, facts.machine, facts.cores, facts.gpus) == ("a" * 16, ("one", "10.0.0.1"), 2.0, 0.0)


def test_a_machine_on_which_ray_was_started_again_is_asked_there_at_its_present_address(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    class Channel:
        def __init__(self, *place: object) -> None:
            self._place = place

        def call(self, *_: object) -> None:
            asked.append(self._place)

    from punctual.executors import ray as ours

    monkeypatch.setattr(ours, "RayChannel", Channel)
    cluster.nodes = [told("a" * 16, "one", "10.0.0.1")]
    cluster.ask("a" * 16, "spot-1")
    cluster.nodes = [told("a" * 16, "one", "10.0.0.1", alive=False), told("b" * 16, "one", "10.0.0.2")]
    cluster.ask("b" * 16, "spot-1")
    with pytest.raises(ChannelLost, match="node 'spot-1' is not there"):
        cluster.ask("a" * 16, "spot-1")
    assert asked == [("10.0.0.1", "service-spot-1", "a" * 16), ("10.0.0.2", "service-spot-1", "b" * 16)]


def test_ray_that_was_killed_counts_as_gone_once_it_was_started_again_though_ray_says_that_it_is_there(
    cluster: Cluster,
) -> None:
    gone = told("a" * 16, "one", "127.0.0.1", free_port())
    cluster.nodes = [gone]
    assert cluster.ids() == {"a"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cluster.nodes = [gone, told("b" * 16, "one", "127.0.0.1", listening.getsockname()[1])]
        assert cluster.ids() == {"b"}
        assert cluster.ids() == {"b"}
        cluster.restart()
        assert cluster.ids() == {"b"}


def test_ray_that_listened_still_when_another_was_started_there_is_gone_once_it_does_not(cluster: Cluster) -> None:
    ports = [free_port(), free_port()]
    cluster.nodes = [told(id * 16, "one", "127.0.0.1", port) for id, port in zip("ab", ports, strict=True)]
    with socket.create_server(("127.0.0.1", ports[1])):
        with socket.create_server(("127.0.0.1", ports[0])):
            assert cluster.ids() == {"a", "b"}
        assert cluster.ids() == {"b"}


@pytest.mark.parametrize(
    ("of_ray", "of_machine", "told"),
    [(None, None, None), (5.0, None, 5.0), (None, 7.0, 7.0), (9.0, 7.0, 7.0), (5.0, 7.0, 5.0)],
)
def test_of_two_notices_the_earlier_holds(
    ray_cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    of_ray: float | None,
    of_machine: float | None,
    told: float | None,
) -> None:
    from punctual.executors import ray as ours

    class Leases:
        ends_at = of_ray

        def __init__(self, *_: object) -> None: ...

        def offered(self, *_: object) -> dict[str, Any]:
            return {}

    class Agent:
        def call(self, request: Request, limit_s: float) -> Answer:
            return {"capacity": {}, "holds": {}, "ends_at": of_machine}

    monkeypatch.setattr(ours, "NodeLeases", Leases)
    assert ours.AgentRelay(Agent, "node").answer({}, 1.0)["ends_at"] == told


def test_a_head_that_was_started_again_without_a_token_is_used_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from punctual.executors import ray_access

    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: True)
    cluster.restart_head("a" * 16)
    assert cluster.ids() == {"a"}
    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: False)
    assert cluster.ids() == {"a"}  # it is the same head
    cluster.restart_head("b" * 16)
    for _ in range(2):
        with pytest.raises(InvalidSpec, match="token"):
            cluster.ids()
    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: True)
    assert cluster.ids() == {"b"}
