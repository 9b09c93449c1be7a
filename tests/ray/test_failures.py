"""What a service and its jobs do when Ray's head, Ray on a node, or the way to it fails; with a cluster for each test."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.executors.conftest import is_alive
from tests.plants.ray_machines import Namespaces, RayMachine, can_make_namespaces, free_port, namespaces
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'punctual[ray]'")

#: Counts its steps in a file, until it may end; each process writes down that it was there.
TRAINING = """
import os, pathlib, time, punctual
with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
for i in punctual.track(range(100000), total_steps=100000):
    time.sleep(0.01)
    pathlib.Path("written").write_text(str(i + 1))
    os.replace("written", "steps")
    if pathlib.Path("go").exists():
        break
"""


class Service:
    """One on a Ray cluster, with a training."""

    def __init__(self, terminal: Terminal, folder: Path, head: str, prefix: list[str]) -> None:
        self._terminal, self._folder = terminal, folder
        up = [
            sys.executable,
            "-m",
            "punctual",
            "up",
            "--engine",
            "ray",
            "--address",
            head,
            "--actuator",
            "pacing",
            "--detach",
        ]
        done = subprocess.run([*prefix, *up], cwd=folder, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        submitted = wait_until(self._submit, lambda done: done.returncode == 0, pause_s=0.2)
        assert submitted.returncode == 0, submitted.stderr
        wait_until(self.is_steered)

    def _submit(self) -> "subprocess.CompletedProcess[str]":
        """Turned away as long as no node has answered."""
        return self._terminal.tell("submit", "--name", "job", "--cores", "0.5", "--", *self._terminal.script(TRAINING))

    @property
    def steps(self) -> int:
        file = self._folder / "steps"
        return int(file.read_text()) if file.exists() else 0

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self._folder / "pids").read_text().split()]

    def told_steps(self) -> float:
        """How far the service knows the training to be."""
        (job,) = self._terminal.jobs()
        return float(job["steps_done"] or 0)

    def is_steered(self) -> bool:
        """Whether the service learns of steps that are done from now on."""
        before = self.steps
        return before > 0 and wait_for(lambda: self.told_steps() > before)

    def end(self) -> None:
        (self._folder / "go").touch()
        wait_until(lambda: not self._terminal.jobs())


def wait_for(holds: Callable[[], bool]) -> bool:
    wait_until(holds, pause_s=0.1)
    return True


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    made = Terminal(tmp_path)
    for name, value in {
        "PUNCTUAL_HOME": str(made.home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }.items():
        monkeypatch.setenv(name, value)
    yield made
    made.tell("down", "--jobs", "stop")
    made.close()
    from punctual.runtime.control_socket import listener_pid

    for record in (made.home / "runtime" / "agents" / "live").glob("*/control.sock"):
        if (pid := listener_pid(record)) is not None:
            os.kill(pid, 15)


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
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))
    machines.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


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
    wait_until(service.is_steered)
    assert len(service.pids) == 1
    assert is_alive(service.pids[0])
    service.end()


@pytest.fixture
def network(machines: ExitStack) -> Namespaces:
    if not can_make_namespaces():
        pytest.skip("network namespaces cannot be made here")
    return machines.enter_context(namespaces(2))


def test_a_training_goes_on_while_its_node_is_cut_off_and_while_ray_is_away_there(
    terminal: Terminal, machines: ExitStack, network: Namespaces, tmp_path: Path
) -> None:
    folder, address = short_folder(machines), f"{network.address(0)}:6379"
    head, node = (
        RayMachine(head_address=address, address=network.address(i), folder=folder, prefix=network.prefix(i), n_cpus=i)
        for i in range(2)
    )
    started(machines, head)
    started(machines, node)
    service = Service(terminal, tmp_path, address, network.prefix(0))
    network.cut(1)
    before = service.steps
    wait_until(lambda: service.steps > before + 100)
    network.mend(1)
    wait_until(service.is_steered)
    node.kill()
    before = service.steps
    wait_until(lambda: service.steps > before + 20)
    node.start()
    wait_until(service.is_steered)
    assert len(service.pids) == 1
    assert is_alive(service.pids[0])
    service.end()
