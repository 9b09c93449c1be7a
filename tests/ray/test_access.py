"""A cluster that asks for no token is used only if that is said, whichever way its address is written."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.cli.programs import Terminal, objects
from tests.plants.ray_machines import RayMachine, free_port
from tests.plants.ray_service import end_agents

from punctual.core.errors import InvalidSpec
from punctual.daemon.host_options import HostOptions
from punctual.executors.ray_access import asks_for_token, check_asks_for_token


@pytest.fixture
def terminal(ray_cluster: Any, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.tell("down", "--jobs", "stop")
    made.close()
    end_agents(made.home)


@pytest.fixture
def open_head(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Iterator[tuple[str, str]]:
    """The addresses of a head that was started without a token: of itself, and for Ray's client."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PUNCTUAL_HOME", str(terminal.home))
    address, client_port = f"127.0.0.1:{free_port()}", free_port()
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True))
        head = RayMachine(head_address=address, address="127.0.0.1", folder=Path(folder), client_port=client_port)
        stack.callback(head.kill)
        head.start()
        yield address, f"ray://127.0.0.1:{client_port}"


def test_a_cluster_with_a_token_is_told_by_each_form_of_its_address(
    ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asks_for_token(ray_cluster.address)
    assert asks_for_token(ray_cluster.client_address)
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    assert asks_for_token("auto")
    check_asks_for_token(ray_cluster.address)


@pytest.mark.parametrize(("mode", "levels"), [(0o600, ["ok"]), (0o644, ["ok", "warning"])])
def test_a_token_that_others_can_read_is_told(
    terminal: Terminal, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int, levels: list[str]
) -> None:
    token = tmp_path / "token"
    token.touch()
    token.chmod(mode)
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    told = [each for each in objects(terminal.tell("doctor", "--json").stdout) if each["about"] == "ray cluster"]
    assert [each["level"] for each in told] == levels


def test_where_nobody_answers_it_is_not_taken_for_safe() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for address in (nobody, f"ray://{nobody}"):
        assert asks_for_token(address) is None
        with pytest.raises(InvalidSpec, match="no answer"):
            check_asks_for_token(address)


def test_a_cluster_without_a_token_is_refused_unless_that_is_allowed(
    terminal: Terminal, open_head: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, client_address = open_head
    up = ["up", "--engine", "ray", "--address", address, "--actuator", "pacing", "--listen", "none", "--detach"]
    refused = terminal.punctual(*up)
    assert refused.returncode == 2
    assert "--allow-unauthenticated-ray" in refused.stderr
    assert "get-auth-token --generate" in refused.stderr
    assert "Traceback" not in refused.stderr
    taken = terminal.punctual(*up, "--allow-unauthenticated-ray")
    assert taken.returncode == 0, taken.stderr
    assert "one that asks for none" in (terminal.home / "state" / "daemon.log").read_text()
    monkeypatch.setenv("RAY_ADDRESS", client_address)
    told = [each for each in objects(terminal.tell("doctor", "--json").stdout) if each["about"] == "ray cluster"]
    assert [(each["level"], "no token" in each["text"]) for each in told] == [("warning", True)] * 2


@pytest.mark.parametrize("address", ["local", "10.0.0.1", "ray://10.0.0.1", "http://10.0.0.1:6379", "a b:1", ":6379"])
def test_what_is_no_address_of_a_cluster_is_refused(address: str) -> None:
    with pytest.raises(InvalidSpec, match="--address"):
        HostOptions(engine="ray", address=address).check()


@pytest.mark.parametrize(
    "address", ["", "auto", "10.0.0.1:6379", "head.example:6379", "ray://head:10001", "[::1]:6379"]
)
def test_each_form_of_address_is_taken(address: str) -> None:
    HostOptions(engine="ray", address=address, allow_unauthenticated_ray=True).check()


def test_the_permission_needs_a_cluster() -> None:
    with pytest.raises(InvalidSpec, match="--allow-unauthenticated-ray"):
        HostOptions(allow_unauthenticated_ray=True).check()
