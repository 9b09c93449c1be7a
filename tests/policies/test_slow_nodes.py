"""Jobs that start are put on a node that is slow for its kind only where the others have no room."""

import pytest

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.resources import Resources

#: By name the slow one would come first, and last.
NODES = [
    Node(NodeId("a"), Resources(cores=4.0), "x", 1.6),
    Node(NodeId("b"), Resources(cores=4.0), "x"),
    Node(NodeId("c"), Resources(cores=4.0), "x", 1.6),
]


def waiting(spec: JobSpec) -> JobView:
    return JobView(spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={})


def job(name: str, **changes: object) -> JobView:
    spec = JobSpec(
        id=JobId(name),
        ceiling=Resources(cores=4.0),
        floor=Resources(cores=2.5),
        preemptible=True,
        **changes,  # type: ignore[arg-type]
    )
    return waiting(spec)


def placed(policy: str, *views: JobView) -> dict[str, set[str]]:
    plan = registry.load("policies", policy)().allocate(Snapshot.of(0.0, NODES, views))
    return {name: set(map(str, grant)) for name, grant in plan.grants.items()}


@pytest.mark.parametrize("policy", ["promises-first", "elasticflow"])
def test_workers_go_where_no_node_is_slow(policy: str) -> None:
    worker = {"worker": Resources(cores=1.25), "controller": None}
    assert placed(policy, job("j", **worker))["j"] == {"b"}


def test_a_job_on_a_share_of_cores_goes_where_no_node_is_slow() -> None:
    assert placed("promises-first", job("j"))["j"] == {"b"}


def test_a_slow_node_is_better_than_none() -> None:
    nodes = placed("promises-first", job("j"), job("k"))
    assert nodes["j"] == {"b"}
    assert nodes["k"] <= {"a", "c"}
