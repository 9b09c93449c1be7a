"""A host on a Ray cluster with one job after the other: to make a host takes longer than these tests do."""

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.live_jobs import pid_of_waiting, submission
from tests.daemon.test_cluster import until_all
from tests.daemon.test_spread import COUNTING
from tests.plants.ray_service import end_agents
from tests.ray.test_ray import available_cpus, check_is_asked_for_room_for_all_jobs_while_one_waits, until_there_are
from tests.waiting import wait_until

from punctual.core.ids import JobId
from punctual.daemon.capacity import device_kind
from punctual.daemon.host import Host
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.daemon.paths import HOME_VARIABLE
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of


@pytest.fixture(scope="module")
def shared_home(environment_of_its_own: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give all these tests the home of their host."""
    monkeypatch.setenv(HOME_VARIABLE, str(shared_home))
    return shared_home


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Let Ray warn of what it likes; the agents of the host stay where they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def shared_host(ray_cluster: Any, ray_home: Path, shared_home: Path) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv(HOME_VARIABLE, str(shared_home))
        options = HostOptions(actuator="pacing", policy="fifo", engine="ray", address=ray_cluster.address, autoscale=3)
        with new_host("host", options) as host:
            yield host
        end_agents(ray_home)


@pytest.fixture
def host(shared_host: Host) -> Iterator[Host]:
    """The host, with both nodes and without a job, also for the next test if this one fails."""
    until_there_are(shared_host, 2)
    yield shared_host
    for job in shared_host.open_jobs():
        shared_host.stop(job, "its test has failed")
    until_all(shared_host, shared_host.all_ended)


class Other:
    """Another application."""

    def is_there(self) -> bool:
        return True


def test_two_jobs_have_a_node_each_and_ray_sees_what_they_hold(host: Host, tmp_path: Path) -> None:
    assert {node.device for node in host.nodes()} == {device_kind()}, "nodes tell their kind"
    go = {JobId(name): tmp_path / name for name in ("a", "b")}
    for job, file in go.items():
        host.submit(submission(job, floor_cores=1.0, awaited=file))
    until_all(host, lambda: all(pid_of_waiting(file) for file in go.values()))
    assert len({node for job in go for node in host.status(job).granted}) == 2
    wait_until(lambda: available_cpus() == 0.0)
    go[JobId("a")].touch()
    until_all(host, lambda: host.has_ended(JobId("a")))
    wait_until(lambda: available_cpus() == 1.0)
    go[JobId("b")].touch()
    until_all(host, host.all_ended)
    assert {host.status(job).state for job in go} == {"finished"}


def test_what_other_applications_hold_is_not_given_to_jobs(host: Host) -> None:
    import ray

    actor: Any = ray.remote(num_cpus=1)(Other)
    other = actor.remote()
    try:
        assert ray.get(other.is_there.remote())
        until_there_are(host, 1)
        assert list(host.budget({})["taken_cores"].values()) == [1.0], "and that is told"
    finally:
        ray.kill(other)
    until_there_are(host, 2)
    assert host.budget({})["taken_cores"] == {}


def test_ray_is_asked_for_room_for_all_jobs_while_one_waits(host: Host, tmp_path: Path) -> None:
    check_is_asked_for_room_for_all_jobs_while_one_waits(host, tmp_path)


def test_an_elastic_job_has_workers_on_both_nodes(host: Host, tmp_path: Path) -> None:
    job = JobOptions(
        program=[sys.executable, str(COUNTING), str(tmp_path)], name="job", workers="1..2", cores_per_worker="1"
    )
    host.submit(submission_of(job, time.monotonic(), host.capacity, host.capacity_together))

    def n_workers() -> int:
        status = host.executor.facts(JobId("job")).workers
        return 0 if status is None else status.n_workers

    until_all(host, lambda: n_workers() == 2)
    assert len(host.status(JobId("job")).granted) == 2
    (tmp_path / "end").touch()
    until_all(host, host.all_ended)
    assert host.status(JobId("job")).state == "finished"
