"""A host on a Ray cluster: its nodes, its jobs, and what other applications see of them."""

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.live_jobs import pid_of_waiting, submission
from tests.daemon.test_cluster import until_all
from tests.executors.conftest import is_alive
from tests.plants.ray_machines import RAY
from tests.waiting import wait_until

from punctual.core.events import JobStarted, NodeNoticed
from punctual.core.ids import JobId
from punctual.daemon import host_executor
from punctual.daemon.control_socket import listener_pid
from punctual.daemon.host import Host
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import messages_of
from punctual.executors.cluster.channel import Answer, Request


def until_there_are(host: Host, n_nodes: int) -> None:
    until_all(host, lambda: len([node for node in host.nodes() if node.capacity.cores >= 1.0]) == n_nodes)


def available_cpus() -> float:
    import ray

    return float(ray.available_resources().get("CPU", 0.0))


class BusyAgent:
    """An agent whose jobs hold a CPU."""

    def call(self, request: Request, limit_s: float) -> Answer:
        return {"capacity": {"cores": 1.0, "gpus": 0.0}, "holds": {"cores": 1.0, "gpus": 0.0}, "ends_at": None}


def test_ray_gets_back_what_jobs_held_where_no_host_asks_any_more(ray_cluster: Any) -> None:
    import ray

    from punctual.executors.ray import NAMESPACE, AgentRelay

    node = next(node["NodeID"] for node in ray.nodes() if node["Alive"])
    made: Any = ray.remote(AgentRelay).options(name="unasked", namespace=NAMESPACE, lifetime="detached", num_cpus=0)
    relay = made.remote(BusyAgent, node, 5.0)

    def is_held() -> bool:
        ray.get(relay.answer.remote({}, 1.0))
        return available_cpus() == 1.0

    wait_until(is_held)
    wait_until(lambda: available_cpus() == 2.0)
    with pytest.raises(ValueError, match="unasked"):
        ray.get_actor("unasked", NAMESPACE)


def test_a_job_outlives_its_agent_and_its_host_and_an_update_of_both(
    options: HostOptions, tmp_path: Path, ray_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    with new_host("host", options) as host:
        until_there_are(host, 2)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        (node,) = host.status(JobId("a")).granted
        name = f"{run_named('host').facts()['agents']}-{node}"
        socket = ray_home / "runtime" / "agents" / "live" / name / "control.sock"
        agent = listener_pid(socket)
        assert agent is not None
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: listener_pid(socket) not in (None, agent))
        host.hand_over()
    pid = pid_of_waiting(go)
    assert is_alive(pid)
    agent = listener_pid(socket)
    monkeypatch.setattr(host_executor, "__version__", "another")  # as after an update
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: host.status(JobId("a")).state == "running")
        assert is_alive(pid)
        assert listener_pid(socket) not in (None, agent)
        go.touch()
        until_all(host, host.all_ended)
    started = [event for event in messages_of(run_named("host")) if isinstance(event, JobStarted)]
    assert {event.job for event in started} == {JobId("a")}
    assert pid_of_waiting(go) == pid


def test_a_job_of_a_node_that_leaves_is_started_again_on_another(
    options: HostOptions, ray_cluster: Any, tmp_path: Path, ray_home: Path
) -> None:
    go = tmp_path / "go"
    options = replace(options, lost_after_s=6.0)
    third = ray_cluster.add_node(num_cpus=2)  # the policy takes the node with most room
    with new_host("host", options) as host:
        until_there_are(host, 3)
        largest = next(node.id for node in host.nodes() if node.capacity.cores > 1.0)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        pid = pid_of_waiting(go)
        assert list(host.status(JobId("a")).granted) == [largest]
        ray_cluster.remove_node(third)
        until_there_are(host, 2)
        assert not is_alive(pid), "nothing runs twice"
        until_all(host, lambda: pid_of_waiting(go) not in (0, pid))
        assert largest not in host.status(JobId("a")).granted
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"


def drain(ray_cluster: Any, node: Any, within_s: int) -> None:
    """Give notice of a node's end, as a provider does."""
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"]
    where = ["--address", ray_cluster.address, "--node-id", node.node_id]
    limit = ["--deadline-remaining-seconds", str(within_s)]
    subprocess.run([RAY, "drain-node", *where, *reason, *limit], check=True, capture_output=True)


def test_jobs_leave_a_node_that_ray_drains(options: HostOptions, ray_cluster: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    third = ray_cluster.add_node(num_cpus=2)
    with new_host("host", options) as host:
        until_there_are(host, 3)
        largest = next(node.id for node in host.nodes() if node.capacity.cores > 1.0)
        host.submit(submission("a", awaited=go, n_retries=0))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        pid = pid_of_waiting(go)
        assert list(host.status(JobId("a")).granted) == [largest]
        drain(ray_cluster, third, within_s=60)
        until_all(host, lambda: pid_of_waiting(go) not in (0, pid))
        assert not is_alive(pid)
        assert largest not in host.status(JobId("a")).granted
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"
    (noticed,) = [event for event in messages_of(run_named("host")) if isinstance(event, NodeNoticed)]
    assert noticed.node == largest
    assert noticed.ends_at is not None
    assert 0.0 < noticed.ends_at - noticed.at <= 60.0
    ray_cluster.remove_node(third)


def requested_of_ray() -> list[dict[str, int]]:
    """What Ray's autoscaler, which this cluster has not, would find that it was asked for."""
    from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    kept = _internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL)
    return [request.get("resources", request) for request in json.loads(kept)] if kept else []


def check_is_asked_for_room_for_all_jobs_while_one_waits(host: Host, folder: Path) -> None:
    go = folder / "go"
    for name in ("one", "another", "no-more"):
        host.submit(submission(name, floor_cores=1.0, awaited=go))
    until_all(host, lambda: requested_of_ray() == [{"CPU": 1}] * 3)
    host.stop(JobId("no-more"), "no longer wanted")
    until_all(host, lambda: requested_of_ray() == [])
    go.touch()
    until_all(host, host.all_ended)


def test_ray_is_asked_for_room_for_all_jobs_by_its_client(
    options: HostOptions, ray_cluster: Any, tmp_path: Path
) -> None:
    with new_host("host", replace(options, address=ray_cluster.client_address, autoscale=3)) as host:
        until_there_are(host, 2)
        check_is_asked_for_room_for_all_jobs_while_one_waits(host, tmp_path)


def test_only_the_nodes_that_a_file_describes_are_used_as_what_it_says(options: HostOptions, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[[cluster]]\ncores = 0.5\ndevice = "small"\n')
    with new_host("host", replace(options, cluster=str(tmp_path / "cluster.toml"))) as host:
        until_all(host, lambda: bool(host.nodes()))
        host.run_for(2.0)
        (node,) = host.nodes()
        assert (node.capacity.cores, node.device) == (0.5, "small")
