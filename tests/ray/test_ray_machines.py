"""Machines of pools that a real autoscaler of Ray starts, as processes of this machine."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.cli.programs import Terminal
from tests.plants.ray_autoscaler import N_NODES_MAX, RayWithAutoscaler
from tests.plants.ray_service import TRAINING, end_agents, ray_environment
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


CLUSTER = """
[machines]
provider = "ray"

[[pool]]
name = "spot"
market = "spot"
cores = 1.0
price_usd_h = 1.0
most = 2
"""


@pytest.fixture(scope="module")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayWithAutoscaler]:
    folder = tmp_path_factory.mktemp("home")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in ray_environment(folder, folder / "token").items():
            patch.setenv(name, value)
        head = RayWithAutoscaler(
            Path(stack.enter_context(TemporaryDirectory(prefix="pa-", dir="/tmp", ignore_cleanup_errors=True)))
        )
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
                name = self.machines.name_of(
                    NodeFacts(id=node, host="host", address="", cores=1.0, gpus=0.0, labels=labels)
                )
                if name is not None:
                    self.named[name] = labels
            self.machines.machines()
        except MachinesUnknown:
            return {}
        self.lost |= self.machines.lost()
        return self.named

    def drain(self, node: str) -> None:
        """Have a node end, as a cloud does."""
        self._requests.ask(None, {node: True})

    def n_nodes(self) -> int:
        """Number of nodes beside the head."""
        return len(self._requests.nodes()) - 1

    def close(self, *, for_good: bool = False) -> None:
        self.machines.close(for_good=for_good)
        self._requests.close()


@pytest.fixture
def make(ray_head: RayWithAutoscaler, tmp_path: Path) -> Iterator[Callable[[float], Cluster]]:
    """Return a maker of the provider of one service, whose machines are ended after the test."""
    with ExitStack() as stack:

        def make(wait_s: float) -> Cluster:
            cluster = Cluster(ray_head, tmp_path, wait_s)
            stack.callback(cluster.close, for_good=True)
            return cluster

        yield make


def test_machines_are_nodes_with_the_labels_of_their_pool_until_they_are_given_back(
    make: Callable[[float], Cluster],
) -> None:
    cluster = make(600.0)
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
    cluster = make(600.0)
    assert set(cluster.machines.machines()) == {spot[1], demand}
    again = wait_until(cluster.look)
    assert again[spot[1]]["ray.io/node-id"] == named[spot[1]]["ray.io/node-id"]
    assert cluster.lost == {}
    cluster.machines.end(list(cluster.machines.machines()))
    wait_until(lambda: cluster.look() == {} and cluster.n_nodes() == 0)


def test_more_machines_than_the_autoscaler_may_start_are_lost_and_so_is_one_whose_node_has_ended(
    make: Callable[[float], Cluster],
) -> None:
    cluster = make(600.0)
    asked = [NodeId(f"spot-{i}") for i in range(N_NODES_MAX + 1)]
    cluster.machines.start(SPOT, asked)
    named = wait_until(cluster.look, lambda named: len(named) == N_NODES_MAX)
    assert cluster.lost == {
        asked[-1]: "Ray's autoscaler can never start so many nodes (ray.io/market-type=spot) at once"
    }
    assert named.keys() == set(asked[:-1])
    gone = asked[0]
    cluster.drain(named[gone]["ray.io/node-id"])
    wait_until(lambda: cluster.look() is not None and gone in cluster.lost)
    assert cluster.lost[gone] == "Ray has ended its node"
    assert list(cluster.machines.machines()) == [asked[1]]


def test_a_request_after_the_process_that_asks_has_ended_is_carried_out_at_the_close(
    make: Callable[[float], Cluster],
) -> None:
    cluster = make(600.0)
    cluster.machines.start(SPOT, [NodeId("spot-0")])
    wait_until(cluster.look)
    cluster.machines.close(for_good=False)
    cluster.machines.close(for_good=True)
    wait_until(lambda: cluster.n_nodes() == 0)


def test_a_machine_that_does_not_come_in_time_is_lost(make: Callable[[float], Cluster]) -> None:
    cluster = make(0.0)
    cluster.machines.start(SPOT, [NodeId("spot-0")])
    lost = wait_until(lambda: cluster.look() is not None and cluster.lost)
    assert lost == {"spot-0": "Ray's autoscaler has started no node (ray.io/market-type=spot) within 0 s"}
    assert list(cluster.machines.machines()) == []


def test_a_training_gets_a_machine_of_the_autoscaler_and_gives_it_back(
    ray_head: RayWithAutoscaler, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    with ExitStack() as stack:
        stack.callback(end_agents, Path(os.environ["PUNCTUAL_HOME"]))
        stack.callback(terminal.close)
        stack.callback(terminal.tell, "down", "--jobs", "stop")
        up = ("up", "--engine", "ray", "--address", ray_head.address, "--cluster", "cluster.toml")
        done = terminal.punctual(*up, "--policy", "least-cost", "--actuator", "pacing", "--detach")
        assert done.returncode == 0, done.stderr
        words = ("--name", "job", "--cores", "1", "--deadline", "1h", "--work", "50m", "--steps", "100000")
        done = terminal.punctual("submit", *words, "--", *terminal.script(TRAINING))
        assert done.returncode == 0, done.stderr
        wait_until((tmp_path / "steps").exists)
        (tmp_path / "go").touch()
        requests = RayRequests(ray_head.address)
        stack.callback(requests.close)
        wait_until(lambda: len(requests.nodes()) == 1)
