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
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def variables(module_folder: Path) -> Mapping[str, str]:
    """What Ray and services are started with."""
    return ray_environment(module_folder / "home", module_folder / "token")


@pytest.fixture(autouse=True)
def environment(home: Path, variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a test starts of Ray be as the rest of it."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@contextmanager
def terminal_in(folder: Path, home: Path) -> Iterator[Terminal]:
    """A terminal whose service has ended afterwards."""
    made = Terminal(folder, home)
    try:
        yield made
    finally:
        made.tell("down", "--jobs", "stop")
        made.close()
        end_agents(made.home)


@contextmanager
def short_folder() -> Iterator[Path]:
    """The paths of sockets must be short."""
    with TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def check_runs_on(service: Service) -> None:
    """The training has been in one process all the time."""
    assert len(service.pids) == 1
    assert is_alive(service.pids[0])


def test_a_service_and_its_training_outlive_the_head_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, home = f"127.0.0.1:{free_port()}", tmp_path / "home"
    monkeypatch.setenv("PUNCTUAL_HOME", str(home))
    with short_folder() as folder, terminal_in(tmp_path, home) as terminal:
        head = RayMachine(head_address=address, address="127.0.0.1", folder=folder)
        try:
            head.start()
            service = Service(terminal, tmp_path, address, [])
            head.kill()
            before = service.steps
            wait_until(lambda: service.steps > before + 20)
            head.start()
            service.await_steered()
            check_runs_on(service)
            service.end()
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
    """A head without CPUs, and a node that has one, in network namespaces; Ray is not started there."""
    head = f"{network.address(0)}:6379"
    with short_folder() as folder:
        made = [
            RayMachine(head_address=head, address=network.address(i), folder=folder, prefix=network.prefix(i), n_cpus=i)
            for i in range(2)
        ]
        yield made
        for machine in made:
            machine.kill()


@pytest.fixture(scope="module")
def distant(
    machines: list[RayMachine], network: Namespaces, variables: Mapping[str, str], module_folder: Path
) -> Iterator[tuple[Service, RayMachine]]:
    """A service on these machines, whose training ends once all these tests are over, and the node."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        for machine in machines:
            machine.start()
        with terminal_in(module_folder, Path(variables["PUNCTUAL_HOME"])) as terminal:
            service = Service(terminal, module_folder, machines[0].head_address, network.prefix(0))
            yield service, machines[1]
            check_runs_on(service)
            service.end()


def test_a_training_goes_on_while_its_node_is_cut_off(distant: tuple[Service, RayMachine], network: Namespaces) -> None:
    service, _ = distant
    network.cut(1)
    try:
        before = service.steps
        wait_until(lambda: service.steps > before + 100)
    finally:
        network.mend(1)
    service.await_steered()
    check_runs_on(service)


def test_a_training_goes_on_while_ray_is_away_on_its_node(distant: tuple[Service, RayMachine]) -> None:
    service, node = distant
    node.kill()
    try:
        before = service.steps
        wait_until(lambda: service.steps > before + 20)
    finally:
        node.start()
    service.await_steered()
    check_runs_on(service)


def test_an_agent_and_its_training_outlive_the_raylet(distant: tuple[Service, RayMachine]) -> None:
    """Ray ends the children of a worker whose raylet is gone; the agent is none."""
    service, node = distant
    agents = service.agents()
    assert len(agents) == 1
    node.kill_raylet()
    try:
        before = service.steps
        wait_until(lambda: service.steps > before + 200)
        assert service.agents() == agents
    finally:
        node.start()
    service.await_steered()
    assert service.agents() == agents
    check_runs_on(service)
