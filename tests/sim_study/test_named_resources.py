"""Kinds of hardware that have a name only, from a scenario file to what jobs hold."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import Terminal

from punctual import registry
from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import NodeId
from punctual.core.resources import NOTHING, Resources, total
from punctual.history.cluster import ClusterHistory
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.request.cluster_file import nodes_of
from punctual.sim import parts
from punctual.sim.assembly import jobs_of
from punctual.sim.job import SimJob
from punctual.sim.scaling.cores import Cores as CoreShares
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.scenario import Scenario
from punctual.sim.simulation import Simulation
from punctual.sim.traces import TraceJob

#: Eight devices a node, of which its disk feeds five.
TEXT = """
policies = ["fifo"]
seeds = 1
scaling = { name = "elastic", worker_others = { disk_mbps = 100 } }

[trace]
generator = { name = "poisson", gpus = [[1, 0.5], [4, 0.5]] }
jobs = 12
load = 2.0

[[cluster]]
n_nodes = 2
gpus = 8
others = { disk_mbps = 500 }
"""
DISK = Resources(others={"disk_mbps": 100.0})
TRACE = TraceJob(id="a", submitted_at=0.0, n_gpus=2, duration_s=60.0)


def scenario(tmp_path: Path, text: str = TEXT) -> Scenario:
    path = tmp_path / "scenario.toml"
    path.write_text(text, encoding="utf-8")
    return Scenario.read(path)


class Audit:
    """What jobs hold at most on any node at any instant, and that it fits."""

    def __init__(self) -> None:
        self.most_disk_mbps = 0.0
        self.simulation: Simulation | None = None

    def __call__(self, message: Message) -> None:
        assert self.simulation is not None
        held: dict[NodeId, Resources] = {}
        for state in self.simulation.world._states.values():
            for node, amount in state.holds.items():
                held[node] = held.get(node, NOTHING) + amount
        for amount in held.values():
            self.most_disk_mbps = max(self.most_disk_mbps, amount.of("disk_mbps"))
            assert amount.fits_in(Resources(8000.0, 8, 2**54, {"disk_mbps": 500.0}))


@pytest.mark.parametrize("policy", registry.names("policies"))
def test_no_policy_gives_more_of_it_than_there_is_and_all_jobs_end(policy: str, tmp_path: Path) -> None:
    given = scenario(tmp_path)
    jobs, record, audit = jobs_of(given, 0), ClusterHistory(), Audit()
    models = parts.by_default("models", (job.spec.model for job in jobs))
    audit.simulation = Simulation(
        jobs, nodes_of(given.cluster), registry.load("policies", policy)(), models=models, listeners=(record.add, audit)
    )
    audit.simulation.run()
    assert audit.most_disk_mbps == pytest.approx(500.0), "as much as there is"
    assert all(course.jct_s is not None for course in record.jobs())


def test_the_command_takes_such_a_file_and_says_the_same_again(tmp_path: Path) -> None:
    given = scenario(tmp_path)
    out = tmp_path / "out"
    done = Terminal(tmp_path).tell("simulate", "scenario.toml", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert Scenario.read(out / "scenario.toml") == given
    assert given.keys()["cluster"] == [{"n_nodes": 2, "gpus": 8, "others": {"disk_mbps": 500.0}}]
    assert given.scaling.text == "elastic:worker_others={disk_mbps=100}"
    assert Scenario.of({**given.keys(), "scaling": given.scaling.text}) == given


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("others = { disk_mbps = 500 }", "", r"hardware that some nodes have.*disk_mbps"),
        ("others = { disk_mbps = 500 }", "disk_mbps = 500", r"disk_mbps.*others"),
        ("disk_mbps = 500", "gpus = 500", r"letters, digits.*cluster\[0\].others"),
        ("disk_mbps = 500", "disk_mbps = -1", r"finite and not negative"),
        ("disk_mbps = 100", "disk_mbps = -1", r"finite and not negative"),
        ("disk_mbps = 100", '"disk mbps" = 1', r"letters, digits"),
    ],
)
def test_a_slip_is_told_in_four_parts(old: str, new: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=f"(?s){words}") as caught:
        jobs_of(scenario(tmp_path, TEXT.replace(old, new)), 0)
    assert all([caught.value.must, caught.value.got, caught.value.where, caught.value.remedy])


def test_every_rule_gives_it_to_its_workers_and_the_trace_may_say_how_much() -> None:
    given: dict[str, Any] = {"worker_others": {"disk_mbps": 100.0}}
    own = TraceJob(
        id="b", submitted_at=0.0, n_gpus=2, duration_s=60.0,
        parameters={"worker_disk_mbps": 30.0, "worker_gpus": 1.0, "server_cores": 1.0, "server_disk_mbps": 7.0},
    )  # fmt: skip
    for rule in (Rigid(**given), Elastic(**given), Rigid(cores_and_memory=True, **given)):
        assert [_disk(rule.job(trace)) for trace in (TRACE, own)] == [100.0, 30.0]
    served = ParameterServers(server_others={"disk_mbps": 50.0}, **given).job(own).spec
    assert served.worker == Resources(gpus=1, others={"disk_mbps": 30.0})
    assert served.server == Resources(1.0, others={"disk_mbps": 7.0})
    shared = CoreShares(**given).job(TRACE).spec
    assert shared.floor.others == shared.ceiling.others == DISK.others


def _disk(job: SimJob) -> float:
    assert job.spec.worker is not None
    return job.spec.worker.of("disk_mbps")


def test_of_a_kind_that_other_groups_have_a_group_has_none(tmp_path: Path) -> None:
    text = TEXT.replace("n_nodes = 2", "n_nodes = 1") + "\n[[cluster]]\nn_nodes = 3\ngpus = 8\n"
    given, launched = scenario(tmp_path, text), Counter[str]()

    def count(message: Message) -> None:
        if isinstance(message, LaunchJob):
            launched.update(message.grant.keys())
            assert total(message.grant.values()).of("disk_mbps") <= 500.0

    jobs = jobs_of(given, 0)
    models = parts.by_default("models", (job.spec.model for job in jobs))
    Simulation(
        jobs, nodes_of(given.cluster), registry.load("policies", "greedy")(), models=models, listeners=(count,)
    ).run()
    assert set(launched) == {"node-0"}
