"""What a policy object remembers of the hardware changes no decision, and stays with the object."""

import copy
import pickle
from typing import Any

import pytest
from tests.policies.pictures import job

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import NodeId
from punctual.core.resources import Resources

POLICIES = registry.names("policies")


def snapshot(n_gpus: int) -> Snapshot:
    nodes = [Node(NodeId(f"n{i}"), Resources(cores=8.0, gpus=n_gpus)) for i in range(2)]
    return Snapshot.of(0.0, nodes, [job(f"j{i}", (1, 2, 4), steps=100.0 * (i + 1), deadline_s=500.0) for i in range(4)])


@pytest.mark.parametrize("name", POLICIES)
def test_one_object_decides_about_several_clusters_as_a_new_one_does(name: str) -> None:
    made = registry.load("policies", name)
    used, asked = made(), [snapshot(2), snapshot(4), snapshot(2)]
    assert [used.allocate(each) for each in asked] == [made().allocate(each) for each in asked]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("name", POLICIES)
def test_a_copy_equals_the_original_and_remembers_nothing(name: str, copied: Any) -> None:
    used = registry.load("policies", name)()
    plan = used.allocate(snapshot(2))
    other = copied(used)
    assert other == used
    assert other._memory._hardware is None
    assert other.allocate(snapshot(2)) == plan
