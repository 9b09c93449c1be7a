"""What a service and its jobs do when Ray's head, Ray on a node, or the way to it fails."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What Ray and services are started with."""
    folder = tmp_path_factory.mktemp("ray")
    return ray_environment(folder / "home", folder / "token")


@pytest.fixture
def terminal(variables: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = Terminal(tmp_path, Path(variables["PUNCTUAL_HOME"]))
    yield made
    made.tell("down", "--jobs", "stop")
    made.close()
    end_agents(made.home)


@contextmanager
def short_folder() -> Iterator[Path]:
    """The paths of sockets must be short."""
    with TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def check_ran_once(service: Service) -> None:
    """The training has been in one process all the time, and ends."""
    assert len(service.pids) == 1
    assert is_alive(service.pids[0])
    service.end()


def test_a_service_and_its_training_outlive_the_head_of_ray(terminal: Terminal, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with short_folder() as folder:
        head = RayMachine(head_address=address, address="127.0.0.1", folder=folder)
        try:
            head.start()
            service = Service(terminal, tmp_path, address, [])
            head.kill()
            before = service.steps
            wait_until(lambda: service.steps > before + 20)
            head.start()
            service.await_steered()
            check_ran_once(service)
        finally:
            head.kill()


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    if not can_make_namespaces():
        pytest.skip("network namespaces cannot be made here")
    with namespaces(2) as made:
        yield made


@pytest.fixture(scope="module")
def machines(network: Namespaces) -> Iterator[list[RayMachine]]:
    """A head without CPUs, and a node that has one, in network namespaces; Ray is started there by the first who needs it."""
    head = f"{network.address(0)}:6379"
    with short_folder() as folder:
        made = [
            RayMachine(head_address=head, address=network.address(i), folder=folder, prefix=network.prefix(i), n_cpus=i)
            for i in range(2)
        ]
        yield made
        for machine in made:
            machine.kill()


@pytest.fixture
def distant(
    terminal: Terminal, machines: list[RayMachine], network: Namespaces, tmp_path: Path
) -> tuple[Service, RayMachine]:
    """A service on these machines, on which Ray runs, and the node."""
    for machine in machines:
        if machine.process is None:
            machine.start()
    return Service(terminal, tmp_path, machines[0].head_address, network.prefix(0)), machines[1]


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
