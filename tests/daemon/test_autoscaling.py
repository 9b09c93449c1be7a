"""Where jobs wait because no node has room, the cluster is asked for room, within a bound, until they have it."""

from dataclasses import replace

import pytest
from tests.plants.cluster import FixedMembers
from tests.waiting import wait_until

from punctual.core.cluster import Node, Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.resources import Resources
from punctual.daemon.host_executor import requested
from punctual.daemon.host_options import HostOptions
from punctual.executors.cluster.channel import Bundle
from punctual.executors.cluster.executor import ClusterExecutor

NODE = Node(NodeId("a"), Resources(cores=4.0, gpus=1))


def view(name: str, floor: Resources, held: Resources | None = None, **changes: object) -> JobView:
    spec = JobSpec(id=JobId(name), ceiling=Resources(cores=8.0, gpus=4), floor=floor, **changes)  # type: ignore[arg-type]
    granted = {} if held is None else {NODE.id: held}
    status = "queued" if held is None else "running"
    return JobView(spec=spec, status=status, submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted=granted)  # type: ignore[arg-type]


def asked(*views: JobView, n_nodes_max: int = 10) -> list[Bundle]:
    return requested(Snapshot.of(60.0, [NODE], views), n_nodes_max)


def test_nothing_is_asked_for_while_none_waits() -> None:
    assert asked() == []
    assert asked(view("runs", Resources(cores=0.5), Resources(cores=3.5))) == []


def test_the_least_of_who_waits_is_asked_for_beside_what_is_held_in_whole_units() -> None:
    worker = Resources(cores=1.5, gpus=1)
    views = (
        view("runs", Resources(cores=0.5), Resources(cores=3.2)),
        view("share", Resources(cores=2.5)),
        view("little", Resources(cores=0.05)),
        view("workers", worker * 2, worker=worker, counts=(2, 4)),
    )
    assert asked(*views) == [
        {"CPU": 1, "GPU": 0}, {"CPU": 3, "GPU": 0}, {"CPU": 4, "GPU": 0}, {"CPU": 3, "GPU": 2},
    ]  # fmt: skip


def test_no_more_is_asked_for_than_that_many_nodes_can_be_added_for() -> None:
    waiting = [view(f"job-{i}", Resources(cores=2.0)) for i in range(5)]
    assert len(asked(*waiting, n_nodes_max=3)) == 2
    assert asked(*waiting, n_nodes_max=1) == []


def test_a_job_that_has_just_come_waits_for_a_plan_and_not_for_room() -> None:
    assert asked(replace(view("new", Resources(cores=2.0)), submitted_at=59.0)) == []


def test_a_job_that_is_to_stop_needs_no_room() -> None:
    assert asked(replace(view("stops", Resources(cores=2.0)), status="stopping")) == []


def test_the_cluster_is_asked_once_and_again_when_it_is_no_longer_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.executors.cluster.executor._POLL_INTERVAL_S", 0.01)
    members = FixedMembers({})
    executor = ClusterExecutor(members, generation=1)
    try:
        for _ in range(3):
            executor.want([{"CPU": 2, "GPU": 0}])
        wait_until(lambda: members.requests == [[{"CPU": 2, "GPU": 0}]])
        executor.want([])
        wait_until(lambda: members.requests[1:] == [[]])
        executor.want([{"CPU": 1, "GPU": 0}])
        wait_until(lambda: len(members.requests) == 3)
    finally:
        executor.release()
    assert members.requests[3:] == [[]], "whoever leaves takes back what was asked for"


def test_a_host_on_one_machine_asks_nobody() -> None:
    with pytest.raises(InvalidSpec, match="`--autoscale` needs a cluster"):
        HostOptions(autoscale=3).check()
