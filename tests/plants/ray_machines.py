"""Ray as `ray start` starts it, which can be killed and cut off; in network namespaces where these can be made."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until

from punctual.executors.local.job_signals import descendants

RAY = Path(sys.executable).with_name("ray")
#: Options of a head that nobody asks for nodes, and whose workers' logs nobody reads.
WITHOUT_MONITORS = ("--include-dashboard=false", "--include-log-monitor=false", "--no-monitor")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@dataclass(kw_only=True)
class RayMachine:
    """A machine of a Ray cluster.

    Attributes
    ----------
    head_address
        Of the cluster.
    address
        That of this machine; the one of `head_address`: it is the head.
    client_port
        Where the head listens for Ray's client; 0: anywhere.
    prefix
        What runs a command there.
    """

    head_address: str
    address: str
    folder: Path
    n_cpus: int = 1
    client_port: int = 0
    prefix: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        host, port = self.head_address.split(":")
        ports = f"--ray-client-server-port={self.client_port or free_port()}"
        head = ["--head", f"--port={port}", *WITHOUT_MONITORS, f"--temp-dir={self.folder}", ports]
        command = [str(RAY), "start", "--block", f"--num-cpus={self.n_cpus}", "--disable-usage-stats"]
        command += [f"--node-ip-address={self.address}"]
        command += head if host == self.address else [f"--address={self.head_address}", "--include-log-monitor=false"]
        with (self.folder / f"{self.address}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        log_file = self.folder / f"{self.address}.log"
        wait_until(lambda: b"Ray runtime started" in log_file.read_bytes() or self.process.poll() is not None)
        assert self.process.poll() is None, log_file.read_text()
        log_file.write_bytes(b"")

    def kill(self) -> None:
        """End all of Ray there at once, but no agent and nothing that it has started."""
        if self.process is None:
            return
        below = descendants(self.process.pid)
        agents = [pid for pid in below if "punctual.daemon.agent_process" in _command_of(pid)]
        kept = {pid for agent in agents for pid in (agent, *descendants(agent))}
        for pid in (self.process.pid, *below):
            if pid not in kept:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def kill_raylet(self) -> None:
        """End Ray's own process there alone, as the kernel does for want of memory; the rest of Ray then ends by itself."""
        assert self.process is not None
        (raylet,) = [
            pid for pid in descendants(self.process.pid) if Path(f"/proc/{pid}/comm").read_text() == "raylet\n"
        ]
        os.kill(raylet, signal.SIGKILL)
        self.process.wait()
        self.process = None


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has just ended
        return ""


def can_make_namespaces() -> bool:
    """Whether network namespaces can be made here: by root, where the kernel allows it."""
    try:
        with namespaces(1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def namespaces(n: int) -> Iterator["Namespaces"]:
    """So many network namespaces on one bridge, with the addresses 10.77.N.1, 10.77.N.2, ..."""
    made = Namespaces(n)
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Namespaces:
    def __init__(self, n: int) -> None:
        self._tag = f"pn{os.getpid() % 10000}"
        self._net = os.getpid() % 250 + 1
        self.names = [f"{self._tag}-{i}" for i in range(n)]

    def address(self, i: int) -> str:
        return f"10.77.{self._net}.{i + 1}"

    def prefix(self, i: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[i]]

    def make(self) -> None:
        bridge = f"{self._tag}-br"
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", bridge, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", bridge, "link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", bridge, "link", "set", f"v{i}", "master", "br0")
            _ip("-n", bridge, "link", "set", f"v{i}", "up")
            _ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def cut(self, i: int) -> None:
        """Nothing comes from there or goes there any more."""
        _ip("-n", f"{self._tag}-br", "link", "set", f"v{i}", "down")

    def mend(self, i: int) -> None:
        _ip("-n", f"{self._tag}-br", "link", "set", f"v{i}", "up")

    def remove(self) -> None:
        for name in (*self.names, f"{self._tag}-br"):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
