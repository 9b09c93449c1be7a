"""What a policy object remembers of the hardware changes no decision, and stays with the object."""

import copy
import pickle
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import job

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import NodeId
from punctual.core.job import JobView
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


@pytest.mark.parametrize("name", POLICIES)
def test_one_object_decides_as_a_new_one_does_while_jobs_come_change_and_go(name: str) -> None:
    made, drawn = registry.load("policies", name), random.Random(0)
    used = made()
    views = [waiting(i, drawn) for i in range(12)]
    for round_ in range(8):
        views = [waiting(i, drawn) if drawn.random() < 0.2 else view for i, view in enumerate(views)]
        present = [view for i, view in enumerate(views) if (i + round_) % 5]
        asked = Snapshot.of(10.0 * round_, [Node(NodeId("n0"), Resources(cores=8.0, gpus=4))], present)
        assert used.allocate(asked) == made().allocate(asked)


def waiting(i: int, drawn: random.Random) -> JobView:
    """A job that has everything left and waits, or that is being stopped."""
    steps, deadline_s = float(drawn.randrange(50, 60)), drawn.choice([None, 100.0, 200.0])
    view = job(f"j{i:02}", (drawn.choice([1, 2, 4, 8]),), steps=steps, deadline_s=deadline_s)
    return replace(view, status="stopping") if drawn.random() < 0.1 else view
