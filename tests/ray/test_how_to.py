"""The page about Ray, word for word: but for the commands that start a cluster, which is there already."""

import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.cli.programs import Terminal
from tests.plants.ray_machines import RAY, WITHOUT_MONITORS, free_port
from tests.waiting import wait_until

from punctual.executors.local.job_signals import descendants
from punctual.executors.ray_access import asks_for_token

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ray.md"


@pytest.fixture
def terminal(ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)  # where `auto` looks first
    made = Terminal(tmp_path)
    yield made
    made.punctual("down", "--jobs", "stop")
    made.close()


def test_its_first_commands_make_a_token_and_a_cluster_that_asks_for_it(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = re.findall(r"```console\n(.*?)```", PAGE.read_text().partition("Start a cluster")[2], re.DOTALL)
    commands = re.findall(r"^\$ (.*)$", first, re.MULTILINE)
    assert commands[-1] == "ray start --head"
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{RAY.parent}{os.pathsep}{os.environ['PATH']}")
    port = free_port()
    with TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        # Beside other clusters of this machine; and with a parent that the test can end.
        commands[-1] += f" --block --port={port} --ray-client-server-port={free_port()} {' '.join(WITHOUT_MONITORS)}"
        commands[-1] += f" --disable-usage-stats --num-cpus=1 --node-ip-address=127.0.0.1 --temp-dir={folder}"
        script = subprocess.Popen(
            ["bash", "-ec", "\n".join(commands)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert wait_until(lambda: asks_for_token(f"127.0.0.1:{port}"), lambda asks: asks is not None)
            assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
        finally:
            for pid in (script.pid, *descendants(script.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            script.wait()


def test_every_command_of_the_page_does_what_it_says(terminal: Terminal) -> None:
    page = PAGE.read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    python, _ = terminal.script(script)
    commands = re.findall(r"^\$ punctual (.*)$", page, re.MULTILINE)
    assert len(commands) == 7
    told = {}
    for command in commands:
        done = terminal.punctual(*[python if word == "python" else word for word in command.split()])
        assert done.returncode == 0, (command, done.stderr)
        told[command] = done.stdout
    assert all(name in told["ps"] for name in ("first", "second"))
    assert told["logs second --follow"].splitlines()[-1] == "second has done 200 steps"
    assert told["why second"]
    assert re.findall(r"^(\w+): was stopped ", told["down --jobs stop"], re.MULTILINE) == ["first"]
