"""A service on a Ray cluster, with a training that shows how far it is."""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.programs import Terminal
from tests.waiting import wait_until

from punctual.daemon.control_socket import listener_pid

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
        self.await_steered()

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

    def declared_steps(self) -> float:
        """How far the service knows the training to be."""
        (job,) = self._terminal.jobs()
        return float(job["steps_done"] or 0)

    def await_steered(self) -> None:
        """Return once the service has learned of steps that are done from now on."""
        before = wait_until(lambda: self.steps)
        wait_until(lambda: self.declared_steps() > before, pause_s=0.1)

    def agents(self) -> list[int]:
        """The agents that are there."""
        return agents_in(self._terminal.home)

    def end(self) -> None:
        (self._folder / "go").touch()
        wait_until(lambda: not self._terminal.jobs())
        self._terminal.tell("down")  # while Ray is there, since nodes that are away are waited for


def ray_environment(home: Path, token: Path) -> Mapping[str, str]:
    """What Ray and a service in `home` are started with; the token is made."""
    token.write_text(secrets.token_hex(32))
    return {
        "PUNCTUAL_HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # A node that is cut off for a while stays one of the cluster, on a busy machine too.
        "RAY_health_check_failure_threshold": "40",
        # Else it starts a worker for each processor when a driver comes, which takes more than most tests.
        "RAY_prestart_worker_first_driver": "0",
    }


def end_agents(home: Path) -> None:
    """End what is left on the nodes."""
    for pid in agents_in(home):
        os.kill(pid, 15)


def agents_in(home: Path) -> list[int]:
    sockets = sorted((home / "runtime" / "agents" / "live").glob("*/control.sock"))
    return [pid for socket in sockets if (pid := listener_pid(socket)) is not None]
