"""Machines of Ray's autoscaler by what the cluster says of its nodes; an object of the test stands in for the cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.waiting import wait_until

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.executors import ray_machines
from punctual.executors.cluster.machines import ClusterPlace, MachinesUnknown, PoolTerms
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.ray_machines import RayMachines
from punctual.executors.ray_requests import RayRequests, WantedNode

SPOT = PoolSpec(name="spot", capacity=Resources(cores=1.0), market="spot", most=4)
LABELS = {"market": "spot"}


class StandInCluster:
    """Stands in for `RayRequests`; its attributes are what the cluster says, and was asked."""

    n_impossible = 0

    def __init__(self) -> None:
        self.present: dict[str, Mapping[str, str]] = {}
        self.vanished: frozenset[str] = frozenset()
        self.n_wanted, self.drained, self.hears = 0, dict[str, bool](), True

    def ask(self, want: Sequence[WantedNode] | None, drain: Mapping[str, bool]) -> None:
        self.n_wanted, self.drained = len(want or ()), dict(drain)

    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        return self.present

    def close(self) -> bool:
        return self.hears


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    made = StandInCluster()
    monkeypatch.setattr(ray_machines, "RayRequests", lambda _: made)
    return made


@pytest.fixture
def machines(cluster: StandInCluster, tmp_path: Path) -> RayMachines:
    """The provider, with one machine that is node "a"."""
    place = ClusterPlace(address="127.0.0.1:1", name="service", folder=str(tmp_path))
    terms = PoolTerms(spec=SPOT, price_usd_h=1.0, amounts={"cores": 1.0})
    made = RayMachines([terms], place, {"spot": LABELS})
    made.start(SPOT, [NodeId("spot-0")])
    cluster.present = {"a": LABELS}
    assert named(made, "a") == "spot-0"
    assert list(made.machines()) == ["spot-0"]
    return made


def named(machines: RayMachines, node: str) -> NodeId | None:
    return machines.name_of(NodeFacts(id=node, host="host", address="", cores=1.0, gpus=0.0, labels=LABELS))


def test_a_machine_whose_ray_has_vanished_is_kept_until_the_executor_gives_it_up(
    machines: RayMachines, cluster: StandInCluster
) -> None:
    cluster.present, cluster.vanished = {}, frozenset({"a"})
    assert list(machines.machines()) == ["spot-0"], "its jobs may go on"
    assert machines.lost() == {}
    # The autoscaler starts a node in its place, which waits for the next machine.
    cluster.present = {"b": LABELS}
    assert list(machines.machines()) == ["spot-0"]
    assert (named(machines, "b"), cluster.drained) == (None, {})
    machines.end([NodeId("spot-0")])
    machines.start(SPOT, [NodeId("spot-1")])
    assert named(machines, "b") == "spot-1"
    assert list(machines.machines()) == ["spot-1"]
    assert (machines.lost(), cluster.n_wanted) == ({}, 1)


def test_a_machine_whose_node_was_ended_is_lost_at_once(machines: RayMachines, cluster: StandInCluster) -> None:
    cluster.present = {}
    assert list(machines.machines()) == []
    assert machines.lost() == {"spot-0": "Ray has ended its node"}


def test_what_ray_prints_is_no_answer_of_the_process_that_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("print('welcome')\nraise ImportError('it is none')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    requests = RayRequests("127.0.0.1:1")
    with pytest.raises(MachinesUnknown, match="Ray does not tell its nodes"):
        requests.nodes()
    requests.close()


#: Stands in for Ray: it cannot be used, and the first process that tries it a second time hangs.
HANGING = """
import os, pathlib, signal
pids = pathlib.Path(__file__).with_name("pids")
tried = pids.read_text().split() if pids.exists() else []
with pids.open("a") as file:
    file.write(f"{os.getpid()} ")
if tried == [str(os.getpid())]:
    os.kill(os.getpid(), signal.SIGSTOP)
raise ImportError("it is none")
"""


def test_a_process_that_hangs_is_replaced_by_one_that_asks_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    requests = RayRequests("127.0.0.1:1", silent_s_max=5.0)
    with pytest.raises(MachinesUnknown, match="Ray does not tell its nodes"):
        requests.nodes()
    wait_until(lambda: len(set((tmp_path / "ray" / "pids").read_text().split())) > 1)
    with pytest.raises(MachinesUnknown, match="Ray does not tell its nodes"):
        requests.nodes()
    requests.close()
    with pytest.raises(MachinesUnknown, match="Ray does not tell its nodes"):
        requests.nodes()
    requests.close()


def test_a_node_that_nobody_asked_for_is_ended(machines: RayMachines, cluster: StandInCluster) -> None:
    cluster.present = {"a": LABELS, "b": LABELS}
    assert list(machines.machines()) == ["spot-0"]
    assert cluster.drained == {"b": False}


def test_a_cluster_that_does_not_hear_that_no_machine_is_needed_is_told(
    machines: RayMachines, cluster: StandInCluster
) -> None:
    cluster.hears = False
    machines.close(for_good=False)
    with pytest.raises(MachinesUnknown, match="has not been told that no machine is needed any more"):
        machines.close(for_good=True)
    assert cluster.n_wanted == 0
