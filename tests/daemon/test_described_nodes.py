"""A file says which nodes of a live cluster are used, and is checked against what the cluster says."""

import logging
import re
import tomllib
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.daemon.configured_nodes import ConfiguredNodes
from punctual.daemon.host_options import HostOptions
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride
from punctual.request.cluster_file import NodeGroup, groups_of, read_cluster


def node(name: str, cores: float = 8.0, gpus: float = 0.0, device: str = "") -> NodeFacts:
    return NodeFacts(id=name, host=name, address="", cores=cores, gpus=gpus, device=device)


def test_a_node_is_limited_to_what_its_group_says() -> None:
    described = ConfiguredNodes([NodeGroup(nodes=("a",), cores=4.0, device="old"), NodeGroup(n_nodes=1, cores=6.0)])
    limits = described({"1": node("b"), "2": node("a")})
    assert limits == {"1": NodeOverride(cores=6.0, gpus=0), "2": NodeOverride(cores=4.0, gpus=0, device="old")}
    answer = limits["2"].applied({"capacity": {"cores": 8.0, "gpus": 1, "memory_bytes": 0}, "device": "new"})
    assert answer == {"capacity": {"cores": 4.0, "gpus": 0, "memory_bytes": 0}, "device": "old"}
    left = {"capacity": {"cores": 3.0, "gpus": 0, "memory_bytes": 0}, "device": "new", "taken_cores": 5.0}
    assert limits["2"].applied(left)["taken_cores"] == 1.0, "of what is used of it"


def test_who_is_not_described_is_not_used_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    described = ConfiguredNodes([NodeGroup(n_nodes=2, cores=8.0)])
    there = {"1": node("a"), "2": node("small", cores=4.0)}
    with caplog.at_level(logging.WARNING):
        assert described(there).keys() == {"1"}
        assert described(there).keys() == {"1"}
    assert [record.getMessage() for record in caplog.records] == [
        "node 'small' is not used: the cluster file does not describe it (4 cores, 0 GPUs)",
        "1 of the 2 nodes that the cluster file describes are there",
    ]


def test_a_named_node_that_has_less_is_used_and_told(caplog: pytest.LogCaptureFixture) -> None:
    described = ConfiguredNodes([NodeGroup(nodes=("a",), cores=8.0, gpus=1, device="V100")])
    assert described({"1": node("a", gpus=1, device="T4")})["1"].device == "V100"
    assert "it has 8 cores, 1 GPUs of kind T4" in caplog.text


def test_a_node_takes_the_place_of_one_that_has_gone() -> None:
    described = ConfiguredNodes([NodeGroup(n_nodes=1)])
    assert described({"1": node("a"), "2": node("b")}).keys() == {"1"}
    assert described({"2": node("b")}).keys() == {"2"}


def test_the_group_that_asks_for_most_comes_first() -> None:
    described = ConfiguredNodes(
        [NodeGroup(n_nodes=1, cores=4.0), NodeGroup(n_nodes=1, cores=8.0, gpus=2, device="V100")]
    )
    limits = described({"1": node("a", gpus=2), "2": node("b")})
    assert limits["1"].device == "V100"
    assert limits["2"].cores == 4.0


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("[[job]]\nprogram = 'true'", "must describe a cluster"),
        ("[[cluster]]\nnodez = 1", "`cluster[0].nodez` must be a key"),
        ("[[cluster]]\nnodes = ['a', 'a']", "must name each node once"),
        ("[[cluster]]\nnodes = ['a']\n[[cluster]]\nnodes = ['a']", "must name each node once"),
        ("[[cluster]]\nnodes = ['a']\nn_nodes = 2", "must name each node of the group"),
        ("[[cluster]]\nnodes = [['a']]", "must be text"),
        ("[[cluster]]\nnodes = 'a'", "must be a list"),
        ("cluster = 3", "must be"),
        ("[[clusters]]\ncores = 1.0", "a key must be one that such a file has"),
    ],
)
def test_what_is_wrong_with_a_cluster_file_is_told(tmp_path: Path, text: str, must: str) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        read_cluster(tmp_path / "cluster.toml")
    assert must in caught.value.must


def test_a_host_on_one_machine_takes_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="`--cluster` needs a cluster"):
        HostOptions(cluster=str(tmp_path / "cluster.toml")).check()


def test_the_file_of_the_page_about_ray_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "ray.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    named, others = groups_of(tomllib.loads(text)["cluster"], "the page")
    assert named.nodes == ("tick", "tock")
    assert (others.n_nodes, others.gpus, others.device) == (4, 2, "T4")
