"""Commands of Punctual that start with their modules loaded: processes of their own, forked from `command_server`.

To load them takes about a second of CPU time, most of what a test of a command costs otherwise. In everything else such
a process is like one of `python -m punctual`.
"""

import atexit
import functools
import json
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("command_server.py")


class _Server:
    """Where commands are asked for, for all tests of this process; it ends with it."""

    def __init__(self) -> None:
        self.control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER)], stdin=other_end.fileno(), stdout=subprocess.DEVNULL
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self.control.close()
        self._process.wait()


_server = functools.cache(_Server)


class ForkedCommand(subprocess.Popen[str]):
    """A command in `folder`, with pipes for what it writes."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._status, self._status_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(
            ["punctual", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=dict(environment),
        )  # fmt: skip

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Have it forked in place of executing a program; called by the constructor, with the pipes' ends."""
        _executable, _preexec, _close, _pass, cwd, env, _info, _flags, _shell, *pipes = rest
        _p2cread, _p2cwrite, _c2pread, c2pwrite, _errread, errwrite, *_ = pipes
        request = {"arguments": args[1:], "folder": str(cwd), "environment": dict(env)}
        with self._status_there:
            fds = [c2pwrite, errwrite, self._status_there.fileno()]
            socket.send_fds(_server().control, [json.dumps(request).encode()], fds)
        self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]
        self.pid = int(self._status.recv(100))
        self._child_created = True

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        """Its exit status, once it is told within `timeout_s`."""
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int(self._status.recv(100))
            self._status.close()
        return self.returncode
