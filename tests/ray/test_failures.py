"""What a service and its jobs do when Ray's head, Ray on a node, or the way to it fails; with a cluster for each test."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.cli.programs import Terminal
from tests.executors.conftest import is_alive
from tests.plants.ray_machines import Namespaces, RayMachine, can_make_namespaces, free_port, namespaces
from tests.plants.ray_service import Service, end_agents, ray_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    for name, value in ray_environment(made.home, tmp_path / "token").items():
        monkeypatch.setenv(name, value)
    yield made
    made.tell("down", "--jobs", "stop")
    made.close()
    end_agents(made.home)


@pytest.fixture
def machines() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(machines: ExitStack, machine: RayMachine) -> RayMachine:
    machines.callback(machine.kill)
    machine.folder.mkdir(exist_ok=True)
    machine.start()
    return machine


def short_folder(machines: ExitStack) -> Path:
    """The paths of sockets must be short."""
    return Path(machines.enter_context(TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True)))


def check_ran_once(service: Service) -> None:
    """The training has been in one process all the time, and ends."""
    assert len(service.pids) == 1
    assert is_alive(service.pids[0])
    service.end()


def test_a_service_and_its_training_outlive_the_head_of_ray(
    terminal: Terminal, machines: ExitStack, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    head = started(machines, RayMachine(head_address=address, address="127.0.0.1", folder=short_folder(machines)))
    service = Service(terminal, tmp_path, address, [])
    head.kill()
    before = service.steps
    wait_until(lambda: service.steps > before + 20)
    head.start()
    service.await_steered()
    check_ran_once(service)


@pytest.fixture
def network(machines: ExitStack) -> Namespaces:
    if not can_make_namespaces():
        pytest.skip("network namespaces cannot be made here")
    return machines.enter_context(namespaces(2))


@pytest.fixture
def distant(terminal: Terminal, machines: ExitStack, network: Namespaces, tmp_path: Path) -> tuple[Service, RayMachine]:
    """A service on a head without CPUs, and the only node that has one, in network namespaces."""
    folder, address = short_folder(machines), f"{network.address(0)}:6379"
    _, node = (
        started(
            machines,
            RayMachine(
                head_address=address, address=network.address(i), folder=folder, prefix=network.prefix(i), n_cpus=i
            ),
        )
        for i in range(2)
    )
    return Service(terminal, tmp_path, address, network.prefix(0)), node


def test_a_training_goes_on_while_its_node_is_cut_off(distant: tuple[Service, RayMachine], network: Namespaces) -> None:
    service, _ = distant
    network.cut(1)
    before = service.steps
    wait_until(lambda: service.steps > before + 100)
    network.mend(1)
    service.await_steered()
    check_ran_once(service)


def test_a_training_goes_on_while_ray_is_away_on_its_node(distant: tuple[Service, RayMachine]) -> None:
    service, node = distant
    node.kill()
    before = service.steps
    wait_until(lambda: service.steps > before + 20)
    node.start()
    service.await_steered()
    check_ran_once(service)


def test_an_agent_and_its_training_outlive_the_raylet(distant: tuple[Service, RayMachine]) -> None:
    """Ray ends the children of a worker whose raylet is gone; the agent is none."""
    service, node = distant
    agents = service.agents()
    assert len(agents) == 1
    node.kill_raylet()
    before = service.steps
    wait_until(lambda: service.steps > before + 200)
    assert service.agents() == agents
    node.start()
    service.await_steered()
    assert service.agents() == agents
    check_ran_once(service)
