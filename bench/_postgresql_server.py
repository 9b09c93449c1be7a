"""A PostgreSQL server of one's own: on a Unix socket in a temporary folder, of a user without rights."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: Where its programs are; empty: it is not installed.
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
#: The server refuses to run as root.
_USER = "nobody"


@dataclass(frozen=True)
class Server:
    """A server that can be stopped and started again with what it has."""

    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        # Without fsync: what is tested is what a process may lose, not a machine.
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=40"
        self._control("-w", "-t", "120", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """End it; connections are closed. ``immediate``: as when it is killed; ``fast``: what it has is on the disk."""
        self._control("-w", "-t", "120", "-m", mode, "stop")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Inside, it answers nobody; connections stay."""
        processes = [self._postmaster(), *_children(self._postmaster())]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)

    def sql(self, statement: str) -> str:
        """What `psql` prints."""
        command = [
            str(BINARIES[-1] / "psql"),
            "-h",
            str(self.folder),
            "-U",
            "tester",
            "-d",
            "postgres",
            "-qAtc",
            statement,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()

    def make(self) -> None:
        _run("initdb", "-D", str(self.folder / "data"), "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8")

    def _control(self, *arguments: str) -> None:
        _run("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def _postmaster(self) -> int:
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _run(program: str, *arguments: str) -> None:
    # Nothing of this process's environment: a server that has it would be taken for a process of that home.
    as_user: dict[str, Any] = {"env": {"PATH": os.defpath, "LC_ALL": "C"}}
    if os.geteuid() == 0:
        user = pwd.getpwnam(_USER)
        as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    # Not a pipe: the server inherits it, and it would never end.
    with tempfile.TemporaryFile("w+") as output:
        command = [str(BINARIES[-1] / program), *arguments]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd="/", check=False, **as_user)
        output.seek(0)
        assert done.returncode == 0, (command, output.read())


@contextmanager
def running_server() -> Iterator[Server]:
    """A server without tables; it must be installed."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the name of a socket must be short
    try:
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam(_USER).pw_uid, pwd.getpwnam(_USER).pw_gid)
        server = Server(folder)
        server.make()
        server.start()
        try:
            yield server
        finally:
            if (folder / "data/postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder)
