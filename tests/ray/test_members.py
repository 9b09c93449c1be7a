"""How the nodes of a Ray cluster are called: after their machines, also when Ray was started again there."""

import socket
from pathlib import Path
from typing import Any

import pytest
from tests.plants.ray_machines import free_port

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster.node_limits import NodeOverride


def told(ray_node: str, host: str, address: str, port: int = 1, *, alive: bool = True) -> dict[str, Any]:
    """A node as Ray tells it."""
    return {
        "NodeID": ray_node, "NodeManagerHostname": host, "NodeManagerAddress": address, "NodeManagerPort": port,
        "Alive": alive, "Resources": {"CPU": 2.0},
    }  # fmt: skip


class Cluster:
    """What Ray says, and the nodes that are made of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Path) -> None:
        from punctual.executors import ray as ours

        self.nodes: list[dict[str, Any]] = []
        self.asks_names = False
        self._make = lambda: ours.RayMembers(
            "", "service", lambda node, _: lambda: node, names=names, asks_names=self.asks_names  # type: ignore[arg-type, return-value]
        )  # fmt: skip
        monkeypatch.setattr(ours.ray, "init", lambda **_: None)
        monkeypatch.setattr(ours.ray, "nodes", lambda: self.nodes)
        monkeypatch.setattr(ours, "_CONNECT_S_MAX", 0.2)
        self.restart()

    def restart(self) -> None:
        """Another process looks at the cluster from now on."""
        self._members = self._make()

    def name_at(self, address: str) -> str:
        """How the node is called that has this address."""
        self._members.channels()
        (ray_node,) = [node["NodeID"] for node in self.nodes if node["NodeManagerAddress"] == address]
        return self._members._nodes[ray_node]

    def name(self, **machines: str) -> None:
        """Say which machines nodes are, by their ids."""
        self._members.name({node: (NodeId(machine), NodeOverride()) for node, machine in machines.items()})

    def names(self) -> set[str]:
        return set(self._members.channels())

    def channel(self, name: str) -> object:
        return self._members.channels()[NodeId(name)]

    def restart_head(self, ray_node: str) -> None:
        """Have another head, as after a restart of Ray."""
        self.nodes = [told(ray_node, "one", "127.0.0.1")]
        self.nodes[0]["Resources"]["node:__internal_head__"] = 1.0


@pytest.fixture
def cluster(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(monkeypatch, tmp_path / "nodes.json")


def test_a_node_is_called_after_its_machine_and_a_second_one_there_has_its_own_name(cluster: Cluster) -> None:
    cluster.nodes = [
        told("a" * 16, "one", "10.0.0.1"),
        told("b" * 16, "two", "10.0.0.2"),
        told("c" * 16, "two", "10.0.0.2"),
    ]
    assert cluster.names() == {"one", "two", "two-cccccccc"}


def test_machines_of_one_hostname_are_told_apart_by_their_addresses(cluster: Cluster) -> None:
    cluster.nodes = [told("a" * 16, "localhost", "10.0.0.1")]
    assert cluster.names() == {"localhost"}
    cluster.nodes = [told("b" * 16, "localhost", "10.0.0.2")]
    assert cluster.names() == {"localhost-10.0.0.2"}, "it has none of the jobs of the other"


@pytest.mark.parametrize("ids", ["ab", "ba"])
def test_machines_of_one_hostname_keep_their_names_when_ray_and_the_service_are_started_again(
    cluster: Cluster, ids: str
) -> None:
    machines = [("10.0.0.1", ids[0]), ("10.0.0.2", ids[1])]
    cluster.nodes = [told(id * 16, "ubuntu", address) for address, id in machines]
    before = [cluster.name_at(address) for address, _ in machines]
    assert before == ["ubuntu", "ubuntu-10.0.0.2"]
    cluster.nodes = [told(id * 16, "ubuntu", address) for (address, _), id in zip(machines, "dc", strict=True)]
    cluster.restart()
    assert [cluster.name_at(address) for address, _ in machines] == before


def test_a_machine_that_was_there_first_keeps_its_name_whoever_comes_later(cluster: Cluster) -> None:
    cluster.nodes = [told("b" * 16, "ubuntu", "10.0.0.2")]
    assert cluster.names() == {"ubuntu"}
    cluster.nodes = [told("a" * 16, "ubuntu", "10.0.0.1"), told("c" * 16, "ubuntu", "10.0.0.2")]
    cluster.restart()
    assert cluster.name_at("10.0.0.2") == "ubuntu"
    assert cluster.name_at("10.0.0.1") == "ubuntu-10.0.0.1"


def test_names_that_cannot_be_kept_or_read_are_found_anew(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text("{")
    cluster.restart()
    cluster.nodes = [told("a" * 16, "one", "10.0.0.1")]
    (tmp_path / "nodes.json").unlink()
    (tmp_path / "nodes.json").mkdir()
    assert cluster.names() == {"one"}


def test_of_two_nodes_with_the_label_of_one_machine_the_first_is_used_as_long_as_it_is_there(cluster: Cluster) -> None:
    cluster.asks_names = True
    cluster.restart()
    first, second = told("a" * 16, "one", "10.0.0.2"), told("b" * 16, "two", "10.0.0.1")
    cluster.nodes = [first]
    cluster.name(**{"a" * 16: "spot-0", "b" * 16: "spot-0"})
    assert cluster.name_at("10.0.0.2") == "spot-0"
    cluster.nodes = [first, second]
    assert cluster.names() == {"spot-0"}
    assert cluster.name_at("10.0.0.2") == "spot-0"
    cluster.nodes = [{**first, "Alive": False}, second]
    assert cluster.name_at("10.0.0.1") == "spot-0"


def test_a_machine_on_which_ray_was_started_again_is_the_same_node(cluster: Cluster) -> None:
    cluster.nodes = [told("a" * 16, "one", "127.0.0.1")]
    before = cluster.channel("one")
    cluster.nodes = [told("a" * 16, "one", "127.0.0.1", alive=False), told("b" * 16, "one", "127.0.0.1")]
    assert cluster.names() == {"one"}
    assert cluster.channel("one") is before


def test_ray_that_was_killed_counts_as_gone_once_it_was_started_again_though_ray_says_that_it_is_there(
    cluster: Cluster,
) -> None:
    gone = told("a" * 16, "one", "127.0.0.1", free_port())
    cluster.nodes = [gone]
    assert cluster.names() == {"one"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cluster.nodes = [gone, told("b" * 16, "one", "127.0.0.1", listening.getsockname()[1])]
        assert cluster.names() == {"one"}
        assert cluster.names() == {"one"}
        cluster.restart()
        assert cluster.names() == {"one"}


def test_a_head_that_was_started_again_without_a_token_is_used_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from punctual.executors import ray_access

    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: True)
    cluster.restart_head("a" * 16)
    assert cluster.names() == {"one"}
    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: False)
    assert cluster.names() == {"one"}  # it is the same head
    cluster.restart_head("b" * 16)
    for _ in range(2):
        with pytest.raises(InvalidSpec, match="token"):
            cluster.names()
    monkeypatch.setattr(ray_access, "asks_for_token", lambda _: True)
    assert cluster.names() == {"one"}
