"""One Ray cluster of two small nodes on this machine, for all tests; skipped where Ray is not installed."""

import secrets
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.plants.ray_machines import free_port
from tests.plants.ray_service import end_agents

from punctual.daemon.host_options import HostOptions


@pytest.fixture(scope="session")
def ray_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of Punctual for what Ray starts, which has the variables of the process that started the cluster."""
    return tmp_path_factory.mktemp("ray-home")


@pytest.fixture(scope="session")
def ray_cluster(
    environment_of_its_own: None, ray_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        token = tmp_path_factory.mktemp("ray-token") / "token"
        token.write_text(secrets.token_hex(32))
        for name, value in {
            "PUNCTUAL_HOME": str(ray_home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        # At a port of its own: other processes of the test run may have clusters too, each with its own token.
        ports = {"gcs_server_port": free_port(), "ray_client_server_port": free_port()}
        # Nobody reads what workers log, and asks for nodes: the processes for that take as much as a test.
        unneeded = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        head = {"num_cpus": 1, **unneeded, **ports}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=1)
        import ray

        # Tests look at the cluster too; the hosts that they make talk to it by processes of their own.
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        cluster.client_address = f"ray://127.0.0.1:{ports['ray_client_server_port']}"
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def options(ray_cluster: Any) -> HostOptions:
    """Of a host on the cluster."""
    return HostOptions(actuator="pacing", policy="fifo", engine="ray", address=ray_cluster.address)


@pytest.fixture(autouse=True)
def quiet(ray_home: Path) -> Iterator[None]:
    """Let Ray warn of what it likes; and leave no agent behind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    end_agents(ray_home)
