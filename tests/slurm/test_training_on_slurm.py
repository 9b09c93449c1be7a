"""A training on machines of a real Slurm that join a real Ray cluster: the service asks for one, and gives it back."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.cli.programs import Terminal
from tests.plants.ray_machines import RAY, RayMachine, free_port
from tests.plants.ray_service import TRAINING, end_agents, ray_environment
from tests.plants.slurm_cluster import SlurmCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

CLUSTER = """
[machines]
provider = "slurm"
options.ray = "{ray}"

[[pool]]
name = "spot"
market = "spot"
cores = 1.0
price_usd_h = 1.0
most = 2
options.sbatch = ["--constraint=spot"]
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need."""
    with TemporaryDirectory(prefix="ps-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def terminal(slurm: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    environment = ray_environment(made.home, tmp_path / "token")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made.environment |= {**environment, **{name: slurm.environment[name] for name in ("PATH", "SLURM_CONF")}}
    with ExitStack() as stack:
        address = f"127.0.0.1:{free_port()}"
        (folder / "head").mkdir()
        head = RayMachine(head_address=address, address="127.0.0.1", folder=folder / "head", n_cpus=0)
        stack.callback(head.kill)
        head.start()
        # Nodes of one machine need a folder each, and little memory.
        wrapper = folder / "ray"
        more = f"--temp-dir={folder}/$SLURM_JOB_ID --object-store-memory=80000000"
        wrapper.write_text(f'#!/bin/sh\nexec {RAY} "$@" {more}\n')
        wrapper.chmod(0o700)
        (tmp_path / "cluster.toml").write_text(CLUSTER.format(ray=wrapper))
        stack.callback(end_agents, made.home)
        stack.callback(made.close)
        stack.callback(made.tell, "down", "--jobs", "stop")
        made.environment["RAY_HEAD"] = address
        bring_up(made)
        yield made


def bring_up(terminal: Terminal) -> None:
    up = ("up", "--engine", "ray", "--address", terminal.environment["RAY_HEAD"], "--cluster", "cluster.toml")
    done = terminal.punctual(*up, "--policy", "least-cost", "--actuator", "pacing", "--detach")
    assert done.returncode == 0, done.stderr


def test_a_training_has_one_machine_of_slurm_also_after_a_restart_of_the_service_and_gives_it_back(
    terminal: Terminal, slurm: SlurmCluster, tmp_path: Path
) -> None:
    words = ("--name", "job", "--cores", "1", "--deadline", "1h", "--work", "50m", "--steps", "100000")
    done = terminal.punctual("submit", *words, "--", *terminal.script(TRAINING))
    assert done.returncode == 0, done.stderr
    wait_until((tmp_path / "steps").exists)
    (job,) = slurm.jobs()
    assert job.startswith("spot-0@")
    assert job.endswith(" RUNNING")
    assert terminal.tell("down", "--jobs", "continue").returncode == 0
    before = int((tmp_path / "steps").read_text())
    bring_up(terminal)
    wait_until(lambda: terminal.jobs() and (terminal.jobs()[0]["steps_done"] or 0) > before, pause_s=0.2)
    assert slurm.jobs() == [job]
    assert len((tmp_path / "pids").read_text().split()) == 1
    (tmp_path / "go").touch()
    wait_until(lambda: not slurm.jobs())
