"""Machines of pools that a real autoscaler of Ray starts, as processes of this machine."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.plants.ray_autoscaler import N_NODES_MAX, RayWithAutoscaler
from tests.plants.ray_service import ray_environment
from tests.waiting import wait_until

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.executors.cluster.machines import ClusterPlace, MachinesUnknown, PoolTerms
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.ray_machines import RayMachines, provider
from punctual.executors.ray_requests import RayRequests

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

SPOT = PoolSpec(name="spot", capacity=Resources(cores=1.0), market="spot", most=4)
DEMAND = PoolSpec(name="demand", capacity=Resources(cores=1.0), market="on-demand", most=4)


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pa-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def ray_head(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayWithAutoscaler]:
    for name, value in ray_environment(tmp_path / "home", tmp_path / "token").items():
        monkeypatch.setenv(name, value)
    head = RayWithAutoscaler(folder)
    with ExitStack() as stack:
        stack.callback(head.kill)
        head.start()
        yield head


class Cluster:
    """A provider on a cluster, whose nodes are named by it as an executor has them named."""

    def __init__(self, head: RayWithAutoscaler, folder: Path, wait_s: float) -> None:
        place = ClusterPlace(address=head.address, name="service", folder=str(folder))
        pools = [PoolTerms(spec=spec, price_usd_h=1.0, amounts={"cores": 1.0}) for spec in (SPOT, DEMAND)]
        self.machines: RayMachines = provider(pools, place, {"wait_s": wait_s})
        self._requests = RayRequests(head.address)
        #: Labels of the machine that each node is, by the machine's name.
        self.named: dict[NodeId, Mapping[str, str]] = {}
        self.lost: dict[NodeId, str] = {}

    def look(self) -> dict[NodeId, Mapping[str, str]]:
        """Name the present nodes, and note what is lost."""
        self.named = {}
        try:
            for node, labels in self._requests.nodes().items():
                name = self.machines.name_of(NodeFacts(names=("host",), cores=1.0, gpus=0.0, labels=labels, id=node))
                if name is not None:
                    self.named[name] = labels
            self.machines.offers()
        except MachinesUnknown:
            return {}
        self.lost |= self.machines.lost()
        return self.named

    def n_nodes(self) -> int:
        """Number of nodes beside the head."""
        return len(self._requests.nodes()) - 1

    def close(self, *, for_good: bool = False) -> None:
        self.machines.close(for_good=for_good)
        self._requests.close()


def test_machines_are_nodes_with_the_labels_of_their_pool_until_they_are_given_back(
    ray_head: RayWithAutoscaler, tmp_path: Path
) -> None:
    cluster = Cluster(ray_head, tmp_path, 600.0)
    spot, demand = [NodeId("spot-0"), NodeId("spot-1")], NodeId("demand-0")
    cluster.machines.start(SPOT, spot)
    cluster.machines.start(DEMAND, [demand])
    named = wait_until(cluster.look, lambda named: len(named) == 3)
    assert {name: labels["ray.io/market-type"] for name, labels in named.items()} == {
        "spot-0": "spot", "spot-1": "spot", "demand-0": "on-demand",
    }  # fmt: skip
    cluster.machines.end([spot[0]])
    assert set(cluster.machines.machines()) == {spot[1], demand}
    wait_until(lambda: cluster.look().keys() == {spot[1], demand} and cluster.n_nodes() == 2)
    # Another process of the service knows them.
    cluster.close()
    cluster = Cluster(ray_head, tmp_path, 600.0)
    assert set(cluster.machines.machines()) == {spot[1], demand}
    again = wait_until(cluster.look)
    assert again[spot[1]]["ray.io/node-id"] == named[spot[1]]["ray.io/node-id"]
    assert cluster.lost == {}
    cluster.machines.close(for_good=True)
    wait_until(lambda: cluster.n_nodes() == 0)
    cluster.close()


def test_machines_that_do_not_come_and_one_whose_node_has_ended_are_lost(
    ray_head: RayWithAutoscaler, tmp_path: Path
) -> None:
    cluster = Cluster(ray_head, tmp_path, 600.0)
    asked = [NodeId(f"spot-{i}") for i in range(N_NODES_MAX + 1)]
    cluster.machines.start(SPOT, asked)
    named = wait_until(cluster.look, lambda named: len(named) == N_NODES_MAX)
    (late,) = set(asked) - named.keys()
    cluster.close()
    cluster = Cluster(ray_head, tmp_path, 0.5)
    wait_until(lambda: cluster.look() and cluster.lost)
    assert set(cluster.lost) == {late}
    assert "has started no node (ray.io/market-type=spot) within 0 s" in cluster.lost[late]
    assert cluster.machines.offers()["spot"].obtainable == N_NODES_MAX
    gone = asked[0]
    cluster._requests.ask([], {named[gone]["ray.io/node-id"]: True})
    wait_until(lambda: cluster.look() is not None and gone in cluster.lost)
    assert cluster.lost[gone] == "Ray has ended its node"
    assert set(cluster.machines.machines()) == named.keys() - {gone}
    cluster.close(for_good=True)
