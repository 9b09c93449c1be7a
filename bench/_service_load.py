"""Requests at instants drawn beforehand, over connections that are kept, from one event loop; what an empty server answers.

A request's latency counts from the instant at which it was due, not from when it was sent: a server that is late with one
answer is charged for those that had to wait behind it.
"""

import asyncio
import http.client
import json
import math
import os
import select
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import uvicorn
from _processes import wait_until
from fastapi import FastAPI

from punctual.api.connections import TimedConnection
from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import run_named
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns

N_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Server:
    """Port of a server, and the token that lets a caller in."""

    port: int
    token: str = ""

    def request(self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"Authorization: Bearer {self.token}"] if self.token else []
        lines += ["Content-Type: application/json"] if body else []
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return "\r\n".join([*lines, "", body]).encode()


class Caller:
    """Asks a service for JSON, one request after the other over a connection that is kept."""

    def __init__(self, server: Server) -> None:
        self._token = server.token
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer; raise `RuntimeError` if it is an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        told = json.loads(answer.read())
        if answer.status not in (200, 201, 202):
            raise RuntimeError(f"{path} was answered with {answer.status}: {told}")
        return told

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        self._connection.close()


UP = (sys.executable, "-m", "punctual", "up", "--listen", "127.0.0.1:0", "--json")


class LiveService:
    """`punctual up` in a home of its own, once it answers."""

    def __init__(self, home: Path, command: Sequence[str] = UP) -> None:
        os.environ[HOME_VARIABLE] = str(home)
        self.home, self._command = home, command
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        select.select([self.process.stdout], [], [], 120.0)
        told = json.loads(self.process.stdout.readline())
        token = Path(told["token_file"]).read_text().strip()
        self.server = Server(int(told["addresses"][-1].rpartition(":")[2]), token)
        self.caller, self.run = Caller(self.server), run_named("daemon")

    def give(self, program: Sequence[str], **options: object) -> str:
        """Submit a job; return its name."""
        return str(self.caller.ask("POST", "/v1/jobs", {"program": [*program], **options})["name"])

    def cluster(self) -> dict[str, Any]:
        found: dict[str, Any] = self.caller.ask("GET", "/v1/cluster")
        return found

    def await_running(self, n_jobs: int) -> None:
        """Wait until so many jobs run."""
        if not wait_until(lambda: self.cluster()["jobsByState"].get("running", 0) == n_jobs, 400.0, 0.2):
            raise RuntimeError(f"not all jobs run: {self.cluster()['jobsByState']}")

    def processes(self) -> dict[str, list[int]]:
        """The service and all processes below it, by what they are; `planner` is what runs a policy that takes long."""
        kinds: dict[str, list[int]] = {
            "host": [self.process.pid],
            "planner": [],
            "keepers": [],
            "agents": [],
            "jobs": [],
        }
        for pid in descendants(self.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            marks = {"supervisor.py": "keepers", "policy_worker": "planner", "_scale_agents": "agents"}
            kinds[next((kind for mark, kind in marks.items() if mark in words), "jobs")].append(pid)
        return kinds

    def kill(self) -> None:
        """End it by force, and all that it has started."""
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait(60)
        wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in below), 20.0, 0.2)
        self._close()

    def end(self) -> None:
        """End it with its jobs."""
        down = [sys.executable, "-m", "punctual", "down", "--jobs", "stop"]
        environment = {**os.environ, HOME_VARIABLE: str(self.home)}
        ended = subprocess.run(
            down, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
        )
        if ended.returncode:
            self.process.terminate()
        self.process.wait(60)
        self._close()
        if ended.returncode:
            raise RuntimeError(f"`punctual down --jobs stop` has failed: {ended.stderr[-500:]}")

    def _close(self) -> None:
        self.caller.close()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def cpu_s(kinds: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {kind: sum(cpu_clock_ns(pid) or 0 for pid in pids) / 1e9 for kind, pids in kinds.items()}


def quantile(values: Sequence[float], frac: float) -> float:
    """Return the value below which this share of them lies; not a number where there are none."""
    return sorted(values)[min(len(values) - 1, int(frac * len(values)))] if values else math.nan


class Connection:
    """One that is kept; for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, server: Server) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        if headers.get("transfer-encoding") != "chunked":
            return int(head[0].split()[1]), await self._reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while n_bytes := int(await self._reader.readuntil(b"\r\n"), 16):
            body += (await self._reader.readexactly(n_bytes + 2))[:-2]
        await self._reader.readexactly(2)
        return int(head[0].split()[1]), body

    def close(self) -> None:
        self._writer.close()


async def latencies_s(
    server: Server, requests: Sequence[bytes], per_s: float, lasts_s: float, seed: int
) -> list[float]:
    """Return the latencies of requests drawn from `requests` at instants of a Poisson process; raises `RuntimeError` at an error."""
    random, loop = Random(seed), asyncio.get_running_loop()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(N_CONNECTIONS):
        free.put_nowait(await Connection.to(server))
    found: list[float] = []

    async def ask(due_at: float, request: bytes) -> None:
        connection = await free.get()
        status, body = await connection.ask(request)
        found.append(loop.time() - due_at)
        free.put_nowait(connection)
        if status not in (200, 206):
            raise RuntimeError(f"{request.splitlines()[0]!r} was answered with {status}: {body[:200]!r}")

    begun_at, due_s = loop.time(), random.expovariate(per_s)
    async with asyncio.TaskGroup() as asking:
        while due_s < lasts_s:
            await asyncio.sleep(max(0.0, begun_at + due_s - loop.time()))
            asking.create_task(ask(begun_at + due_s, random.choice(requests)))
            due_s += random.expovariate(per_s)
    while not free.empty():
        free.get_nowait().close()
    return found


def durable(path: Path) -> sqlite3.Connection:
    """A file as the journal is: a write-ahead log, and each transaction through to the disk."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS message (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return connection


def insert(connection: sqlite3.Connection, body: str) -> None:
    connection.execute("INSERT INTO message (body) VALUES (?)", (body,))


def serve_empty(port_file: Path, database: Path, n_body_bytes: int) -> None:
    """A server of the same framework with a route that does nothing, and one that makes a durable insert."""
    app, connection, body = FastAPI(), durable(database), "x" * n_body_bytes

    @app.get("/empty")
    async def empty() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/insert")
    def inserted() -> dict[str, bool]:
        insert(connection, body)
        return {"ok": True}

    with socket.create_server(("127.0.0.1", 0)) as plain:
        listening = socket.socket(plain.family, plain.type, socket.IPPROTO_TCP, fileno=plain.detach())
    port_file.write_text(str(listening.getsockname()[1]))
    config = uvicorn.Config(app, http=TimedConnection, log_level="warning", access_log=False)
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    serve_empty(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
