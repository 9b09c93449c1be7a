"""How the nodes of a cluster are called: after their machines, also when the cluster was started again there."""

from pathlib import Path

import pytest

from punctual.core.ids import NodeId
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride
from punctual.executors.cluster.node_names import NodeNames


class Cluster:
    """The nodes that there are, by their ids, and the names that they get."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.nodes: dict[str, NodeFacts] = {}
        #: Machines of pools, by the ids of their nodes; None: there are no pools.
        self.machines: dict[str, str] | None = None
        self.restart()

    def restart(self) -> None:
        """Another process names the nodes from now on."""
        self._names = NodeNames(file=self._file)

    def have(self, *nodes: tuple[str, str, str]) -> None:
        """Have these nodes: id, host name, address."""
        self.nodes = {
            id: NodeFacts(id=id, host=host, address=address, cores=2.0, gpus=0.0) for id, host, address in nodes
        }

    def _named(self, facts: NodeFacts) -> tuple[NodeId, NodeOverride] | None:
        name = (self.machines or {}).get(facts.id)
        return None if name is None else (NodeId(name), NodeOverride(cores=1.0))

    def names(self) -> dict[str, str]:
        """How the used nodes are called, by their ids."""
        used = self._names.used(self.nodes, None if self.machines is None else self._named)
        return {node.id: name for name, node in used.items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "nodes.json")


def test_a_node_is_called_after_its_machine_and_a_second_one_there_has_its_own_name(cluster: Cluster) -> None:
    cluster.have(("a" * 16, "one", "10.0.0.1"), ("b" * 16, "two", "10.0.0.2"), ("c" * 16, "two", "10.0.0.2"))
    assert set(cluster.names().values()) == {"one", "two", "two-cccccccc"}


def test_machines_of_one_hostname_are_told_apart_by_their_addresses(cluster: Cluster) -> None:
    cluster.have(("a", "localhost", "10.0.0.1"))
    assert cluster.names() == {"a": "localhost"}
    cluster.have(("b", "localhost", "10.0.0.2"))
    assert cluster.names() == {"b": "localhost-10.0.0.2"}, "it has none of the jobs of the other"


@pytest.mark.parametrize("ids", ["ab", "ba"])
def test_machines_of_one_hostname_keep_their_names_when_the_cluster_and_the_service_are_started_again(
    cluster: Cluster, ids: str
) -> None:
    cluster.have((ids[0], "ubuntu", "10.0.0.1"), (ids[1], "ubuntu", "10.0.0.2"))
    assert cluster.names() == {ids[0]: "ubuntu", ids[1]: "ubuntu-10.0.0.2"}
    cluster.have(("d", "ubuntu", "10.0.0.1"), ("c", "ubuntu", "10.0.0.2"))
    cluster.restart()
    assert cluster.names() == {"d": "ubuntu", "c": "ubuntu-10.0.0.2"}


def test_a_machine_that_was_there_first_keeps_its_name_whoever_comes_later(cluster: Cluster) -> None:
    cluster.have(("b", "ubuntu", "10.0.0.2"))
    assert cluster.names() == {"b": "ubuntu"}
    cluster.have(("a", "ubuntu", "10.0.0.1"), ("c", "ubuntu", "10.0.0.2"))
    cluster.restart()
    assert cluster.names() == {"a": "ubuntu-10.0.0.1", "c": "ubuntu"}


def test_names_that_cannot_be_kept_or_read_are_found_anew(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text("{")
    cluster.restart()
    cluster.have(("a", "one", "10.0.0.1"))
    (tmp_path / "nodes.json").unlink()
    (tmp_path / "nodes.json").mkdir()
    assert cluster.names() == {"a": "one"}


def test_of_two_nodes_with_the_label_of_one_machine_the_first_is_used_as_long_as_it_is_there(cluster: Cluster) -> None:
    cluster.machines = {"a": "spot-0", "b": "spot-0"}
    first, second = ("a", "one", "10.0.0.2"), ("b", "two", "10.0.0.1")
    cluster.have(first)
    assert cluster.names() == {"a": "spot-0"}
    cluster.have(first, second)
    assert cluster.names() == {"a": "spot-0"}
    cluster.have(second)
    assert cluster.names() == {"b": "spot-0"}


def test_machines_of_pools_have_their_limits_and_others_their_own_names(cluster: Cluster) -> None:
    cluster.machines = {"a": "spot-0"}
    cluster.have(("a", "one", "10.0.0.1"), ("b", "two", "10.0.0.2"))
    assert cluster.names() == {"a": "spot-0", "b": "two"}
